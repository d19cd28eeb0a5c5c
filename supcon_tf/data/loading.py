"""From the name of a data set to its source."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence

from supcon_tf import datasets, defaults, exceptions
from supcon_tf.data import (
    folder,
    manifest,
    sources,
    tfds_source,
    tfrecords,
)
from supcon_tf.disk import files
from supcon_tf.host import trust


def _load_by_function(
    dataset: str, split: str, data_dir: str | None, channels: int
) -> sources.Source:
    """The source that a user's `function(split, data_dir)` returns."""
    source = trust.import_function(dataset, "dataset")(split, data_dir)
    exceptions.require(
        isinstance(source, sources.Source),
        f"`dataset` {dataset} must return a data.Source, as data.from_arrays "
        "and data.load do",
        type(source),
    )
    exceptions.require(
        source.channels == channels,
        f"`channels` must be those of {dataset}, {source.channels}",
        channels,
    )
    return dataclasses.replace(source, name=dataset, split=split)


# The functions that load a split, by the kinds of `datasets`.
_LOADERS = {
    "digits": sources.load_digits,
    "folder": folder.load_folder,
    "manifest": manifest.load_manifest,
    "tfrecord": tfrecords.load_tfrecords,
    "tfds:NAME": tfds_source.load_tfds,
    trust.FUNCTION: _load_by_function,
}
# Whether a path has a split "validation", for the kinds that may have it.
_HAS_VALIDATION = {
    "folder": folder.has_validation,
    "manifest": manifest.has_validation,
}
# Whether data at a path have splits, for the kinds that a hash may divide.
_HAS_SPLITS = {"folder": folder.has_splits, "manifest": manifest.has_splits}
# Arguments of few kinds: their defaults, and the kinds.
_RARE_ARGUMENTS = {
    "channels": (3, "TFDS and functions"),
    "shard": (None, "TFDS and TFRecord, whose files it divides"),
    "split_by": ("image", "folders and manifests"),
    "tfds_split": (None, "TFDS"),
}


def load(
    dataset: str | os.PathLike[str],
    split: str = "train",
    data_dir: str | None = None,
    *,
    test_fraction: float = 0.2,
    split_seed: int = 0,
    split_by: str = "image",
    check_images: bool = True,
    skip_bad_images: bool = False,
    shard: tuple[int, int] | None = None,
    channels: int = 3,
    tfds_split: str | None = None,
    tfrecord_features: Sequence[str] = defaults.TFRECORD_FEATURES,
) -> sources.Source:
    """Loads one split of a data set by name.

    "digits" is scikit-learn's 1,797 digits, 32 pixels, no download. "folder"
    is `data_dir` with one sub-folder of JPEG and PNG files per class, inside
    `train/` and `test/` (or `val/`, `Training/`, ...), or directly: then a hash
    of each file's name decides on its split, whatever other files come and go
    (`partition.is_test`). "manifest" is a .csv, .tsv or .jsonl file,
    `data_dir`, with the path and the label of an image in each row
    (`manifest.load_manifest`). "tfrecord" is a folder of TFRecord files
    (`tfrecords.load_tfrecords`). "tfds:NAME" is a set of TensorFlow Datasets,
    downloaded and prepared if needed. "package.module:function" is a function
    of yours: it is imported, also from the current folder, and
    function(split, data_dir) returns the source. In the place of a kind, the
    path of a folder or a manifest will do.

    A folder with `train/`, `val/` and `test/`, or a manifest of such splits,
    has "validation" too; `train_and_validation` holds it out of other sets.

    The classes are those of the training split, and the test split may lack
    some. A test split of other classes alone has its own `class_names`.

    Args:
      dataset: "digits", "folder", "manifest", "tfrecord", "tfds:NAME" or
        "package.module:function"; or a path, in the place of `data_dir`.
      split: "train", "test" or "validation".
      data_dir: the folder, the manifest, or the directory of TFDS's sets.
      test_fraction: share of the test split, (0, 1), of a folder or a manifest
        without splits.
      split_seed: seed of that split.
      split_by: what it holds out, "image"s of every class, or whole "class"es,
        which training never sees.
      check_images: decode every image of the split first, except images that
        were checked before and have not changed. Finds bad images before a
        training, and the image size; 50,000 small images take 3 s.
      skip_bad_images: leave images out that cannot be decoded.
      channels: 3; 1 for a TFDS set, or a function, of one channel.
      shard: TFDS, TFRecord: (index, count) of a worker that reads every
        count-th file; None for all files.
      tfds_split: TFDS: the split in its syntax, such as "train+validation".
      tfrecord_features: TFRecord: names of features, of `load_tfrecords`.

    Example:
      >>> from supcon_tf import data
      >>> source = data.load("photos", "train")
      >>> source.num_examples, source.class_names
      (48, ('bright', 'dark', 'mid'))

    Raises:
      ValueError: there is no such data set or split, or `data_dir` or `shard`
        does not fit.
      ImportError, RuntimeError: TFDS does not import, or prepare the set.
    """
    options = dict(locals())
    split = "validation" if split == "val" else split
    exceptions.require_one_of(("train", "test", "validation"), "split", split)
    exceptions.require_one_of(defaults.SPLIT_BY, "split_by", split_by)
    exceptions.require(
        check_images or not skip_bad_images,
        "`check_images` must be True for `skip_bad_images` to find the bad "
        "images",
        check_images,
    )
    if data_dir is None:
        dataset, data_dir = _kind_of(os.fspath(dataset))
    else:
        data_dir = files.expanded(data_dir, "data_dir")
    options |= {"dataset": dataset, "data_dir": data_dir, "split": split}
    kind = datasets.name_of_kind(dataset)
    _check_kind(kind, options)
    arguments = "split", *datasets.KINDS[kind].takes
    return _LOADERS[kind](**{name: options[name] for name in arguments})


def _check_kind(kind: str, options: Mapping[str, object]) -> None:
    """Raises ValueError where arguments of `load` do not suit a kind."""
    dataset = options["dataset"]
    exceptions.require(
        options["split"] != "validation" or kind in _HAS_VALIDATION,
        "`split` must be train or test except for folders and manifests: "
        "`train_and_validation` holds images out, and `tfds_split` names any "
        "split of TFDS",
        f"{options['split']} of {dataset}",
    )
    exceptions.require(
        kind in datasets.KINDS,
        f"`dataset` must be {', '.join(datasets.KINDS)}, or the path of a "
        "folder or a manifest",
        dataset,
    )
    exceptions.require(
        options["data_dir"] is not None or not datasets.KINDS[kind].needs_path,
        f"`data_dir` must be given for the dataset `{dataset}`",
        None,
    )
    for name, (default, exception) in _RARE_ARGUMENTS.items():
        exceptions.require(
            name in datasets.KINDS[kind].takes or options[name] == default,
            f"`{name}` must be {default} except for {exception}",
            f"{options[name]} for {dataset}",
        )


def _kind_of(dataset: str) -> tuple[str, str | None]:
    """The kind of a data set and its path, by its name or path."""
    if dataset in datasets.KINDS:
        return dataset, None
    path = files.expanded(dataset, "dataset")
    if os.path.isdir(path):
        # A folder birds-of-prey is a class.
        has_records = any(
            "-of-" in file.name and not file.is_dir()
            for file in files.children(path)
        )
        return "tfrecord" if has_records else "folder", path
    if os.path.isfile(path):
        return datasets.name_by_path(path, "manifest"), path
    return dataset, None


def has_validation(dataset: str, data_dir: str | None) -> bool:
    """Whether `load` has a split "validation" of a data set by name.

    Example:
      >>> from supcon_tf import data
      >>> data.has_validation("folder", "photos")  # of train and test alone
      False
    """
    return dataset in _HAS_VALIDATION and _HAS_VALIDATION[dataset](data_dir)


def is_split_by_hash(dataset: str, data_dir: str | None) -> bool:
    """Whether the names of files decide which images are test images."""
    return dataset in _HAS_SPLITS and not _HAS_SPLITS[dataset](data_dir)
