"""The kinds of data sets, and the arguments of each.

Settings and `data.load` check the arguments. This module needs no TensorFlow.
"""

from __future__ import annotations

import dataclasses

from supcon_tf.disk import rows
from supcon_tf.host import trust


@dataclasses.dataclass(frozen=True)
class Kind:
    """A kind of data set.

    Attributes:
      takes: the arguments of `data.load` that its loader takes.
      needs_path: whether `data_dir` must be given.
      suffixes: ends of the names of files that are such data sets.
      skips_images: whether a run may leave bad images out.
    """

    takes: tuple[str, ...] = ("data_dir",)
    needs_path: bool = True
    suffixes: tuple[str, ...] = ()
    skips_images: bool = True


_CHECKED = ("check_images", "skip_bad_images")
_SPLIT = ("data_dir", "test_fraction", "split_seed", "split_by", *_CHECKED)
KINDS = {
    "digits": Kind(takes=(), needs_path=False),
    "folder": Kind(_SPLIT),
    "manifest": Kind(_SPLIT, suffixes=rows.SUFFIXES),
    "tfrecord": Kind(
        ("data_dir", "tfrecord_features", "shard", *_CHECKED),
        skips_images=False,
    ),
    "tfds:NAME": Kind(
        ("dataset", "data_dir", "shard", "channels", "tfds_split", *_CHECKED),
        needs_path=False,
    ),
    trust.FUNCTION: Kind(("dataset", "data_dir", "channels"), needs_path=False),
}


def name_of_kind(dataset: str) -> str:
    """The key of a value of --dataset, which `KINDS` may lack."""
    if trust.names_module(dataset):
        return trust.FUNCTION
    kind, colon, name = dataset.partition(":")
    return f"{kind}:NAME" if colon and name else dataset


def name_by_path(path: str, otherwise: str) -> str:
    """The kind of data set of a file, by the end of its name in any case."""
    ends = path.lower().endswith
    names = (name for name in KINDS if ends(KINDS[name].suffixes))
    return next(names, otherwise)
