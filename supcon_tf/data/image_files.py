"""Labelled image files as a source, which ones are bad, which are for tests."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from supcon_tf import exceptions
from supcon_tf.data import image_bytes, images, sources

EXTENSIONS = (".jpg", ".jpeg", ".png")
_SHOWN_PATHS = 5  # How many bad paths a message lists.


def make_source(
    name: str,
    split: str,
    class_names: Sequence[str],
    root: str,
    ids: Sequence[str],
    labels: np.ndarray,
    *,
    check_images: bool,
    skip_bad_images: bool,
    ignored: Sequence[str] = (),
    weights: np.ndarray | None = None,
    hint: str = "",
) -> sources.Source:
    """The source of image files, encoded, in the order of `ids`.

    Args:
      name: of the source.
      split: "train" or "test".
      class_names: in the order of the labels.
      root: folder of the files.
      ids: paths of the files, relative to it or whole, as gs:// is.
      labels: [files] integers or [files, classes] 0 or 1.
      check_images: decode every file first, which also finds their size.
      skip_bad_images: leave out those that cannot be decoded.
      ignored: of `Source`.
      weights: [files] float32; None for none.
      hint: ends the message of a split without images.

    Raises:
      ValueError: a file is no image, or a class or the split has none.
    """
    exceptions.require(
        check_images or not skip_bad_images,
        "`check_images` must be True for `skip_bad_images` to find the bad "
        "images",
        check_images,
    )
    paths = tf.constant([full_path(root, path) for path in ids], tf.string)
    is_good, image_size = np.ones(len(ids), bool), None
    if check_images:
        is_good, image_size = _check(paths)
    bad = [ids[place] for place in np.flatnonzero(~is_good)]
    if bad:
        if not skip_bad_images:
            _refuse(root, bad, len(ids))
        paths, labels = tf.boolean_mask(paths, is_good), labels[is_good]
        ids = [ids[place] for place in np.flatnonzero(is_good)]
        weights = weights if weights is None else weights[is_good]
    _check_classes(root, split, class_names, labels, hint)
    return sources.Source(
        name=name,
        split=split,
        class_names=tuple(class_names),
        image_size=image_size,
        skipped=tuple(bad),
        ignored=tuple(ignored),
        ids=tuple(ids),
        root=root,
        weights=weights,
        **sources.by_index(paths, labels, tf.io.read_file),
    )


def full_path(root: str, path: str) -> str:
    """Where a file is, whose path may be whole."""
    return path if "://" in path else os.path.join(root, path)


def is_test(ids: Sequence[str], fraction: float, seed: int) -> np.ndarray:
    """Which images are in the test split, by their own file names alone.

    Not by their class: an image that is moved to its right class stays in its
    split, and classes whose files are named alike are split alike.
    """
    exceptions.require(
        0 < fraction < 1, "`test_fraction` must be in (0, 1)", fraction
    )

    def share(path: str) -> float:
        text = f"{seed}/{os.path.basename(path)}"
        digest = hashlib.sha256(text.encode("utf-8", "surrogateescape"))
        return int.from_bytes(digest.digest()[:8], "big") / 2**64

    return np.array([share(path) < fraction for path in ids])


def _refuse(root: str, bad: Sequence[str], total: int) -> None:
    """Says which files are not images and what to do."""
    shown = ", ".join(bad[:_SHOWN_PATHS])
    more = ", ..." if len(bad) > _SHOWN_PATHS else ""
    raise exceptions.InvalidValue(
        f"`data_dir` must hold only readable {' '.join(EXTENSIONS)} images, "
        f"got {len(bad)} bad files of {total} in {root}: {shown}{more}. "
        "Remove them, or leave them out with `skip_bad_images`"
    )


def _check_classes(
    root: str,
    split: str,
    class_names: Sequence[str],
    labels: np.ndarray,
    hint: str,
) -> None:
    """Raises ValueError for classes, or a split, that have no images left."""
    is_there = np.zeros(len(class_names), bool)
    if labels.ndim == 2:
        is_there = labels.any(axis=0)
    else:
        is_there[labels] = True
    for place in np.flatnonzero(~is_there) if split == "train" else ():
        raise exceptions.InvalidValue(
            f"class `{class_names[place]}` must have at least one readable "
            f"image for training, got none in {root}{hint}"
        )
    exceptions.require(
        len(labels) > 0, f"the {split} split must hold images", f"0{hint}"
    )


def _check(paths: tf.Tensor) -> tuple[np.ndarray, int | None]:
    """Returns which files are images, and their side if all have the same."""
    checked = (
        tf.data.Dataset.from_tensor_slices(paths)
        .enumerate()
        .map(_probe, num_parallel_calls=tf.data.AUTOTUNE)
        .ignore_errors()
        .batch(1024)
    )
    good = np.zeros(len(paths), bool)
    sides: set[int] = set()
    for indices, shapes in checked.as_numpy_iterator():
        good[indices] = True
        sides.update(np.unique(shapes[:, :2]).tolist())
    return good, sides.pop() if len(sides) == 1 else None


def _probe(index: tf.Tensor, path: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Decodes one file; what is neither JPEG nor PNG is an error."""
    contents = tf.io.read_file(path)
    # `decode_trusted` takes what evaluation would refuse, whatever its name.
    contents = image_bytes.require(
        image_bytes.find_format(contents) < 2, contents, "neither"
    )
    return index, tf.shape(images.decode_trusted(contents))
