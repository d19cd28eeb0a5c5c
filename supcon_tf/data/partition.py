"""Which examples train and which test: by names of splits, or by a hash."""

from __future__ import annotations

import collections
import hashlib
import re
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from supcon_tf import exceptions

# What splits are called, in any case. Images of `val` are those of the test
# split where there are none of `test`.
_SPLITS = {
    "train": "train",
    "training": "train",
    "test": "test",
    "testing": "test",
    "val": "val",
    "valid": "val",
    "validation": "val",
}
NAMES = "train and test (or val)"


def split_of(name: str) -> str | None:
    """The split that a folder or a row names: train, test, val; None: none."""
    return _SPLITS.get(name.strip().lower())


def split_of_file(name: str) -> str | None:
    """The split that a file has among the words of its name, the last one.

    As in cifar10-train.tfrecord-00000-of-00001; `strain` is another word.
    """
    words = map(split_of, re.split("[^a-z]+", name.lower()))
    return ([None] + [word for word in words if word])[-1]


def is_test(
    paths: Sequence[str], labels: npt.ArrayLike, fraction: float, seed: int
) -> np.ndarray:
    """Which images are in the test split, [images] bool.

    A hash of its own file name decides for an image, whatever others come and
    go. Not its class: an image that is moved to its right class stays in its
    split. Two exceptions keep small classes usable: of a class that would have
    no training image the one with the highest hash is a training image, and
    where no image at all would test, one of each class with two or more does.

    Args:
      paths: of the images.
      labels: [images] integers, or [images, classes] 0 or 1.
      fraction: share of the test split, in (0, 1).
      seed: another one splits otherwise.

    Raises:
      ValueError: `fraction` is out of range.
    """
    exceptions.require(
        0 < fraction < 1, "`test_fraction` must be in (0, 1)", fraction
    )
    shares = np.array([_share(path, seed) for path in paths])
    classes = _positions_by_class(labels)
    is_held = _with_training(shares < fraction, shares, classes)
    if not is_held.any():
        for positions in classes:
            if len(positions) > 1:
                is_held[positions[shares[positions].argmin()]] = True
        is_held = _with_training(is_held, shares, classes)
    return is_held


def _with_training(
    is_held: np.ndarray, shares: np.ndarray, classes: list[np.ndarray]
) -> np.ndarray:
    """The test images, without one of each class that tests with all it has."""
    for positions in classes:
        if is_held[positions].all():
            is_held[positions[shares[positions].argmax()]] = False
    return is_held


def _share(path: str, seed: int) -> float:
    """A number in [0, 1) that the name of a file has."""
    text = f"{seed}/{path.rpartition('/')[2]}"
    digest = hashlib.sha256(text.encode("utf-8", "surrogateescape"))
    return int.from_bytes(digest.digest()[:8], "big") / 2**64


def _positions_by_class(labels: npt.ArrayLike) -> list[np.ndarray]:
    """The positions of the images of every class that has any, rising."""
    labels = np.asarray(labels)
    if labels.ndim == 2:
        columns = map(np.flatnonzero, labels.T)
        return [positions for positions in columns if len(positions)]
    order = np.argsort(labels, kind="stable")
    ends = np.flatnonzero(np.diff(labels[order])) + 1
    return np.split(order, ends) if len(order) else []


def class_names(
    train: Sequence[str], test: Sequence[str], split: str, place: str
) -> list[str]:
    """The classes that the labels of a split are of, in the order given.

    They are those of the training split, of which the test split may lack
    some. A test split of other classes alone, such as the unseen birds of
    CUB-200, has its own: there, images are searched for images.

    Args:
      train: classes with training images.
      test: classes with test images.
      split: "train", or what `test` is of.
      place: of the data, for the message.

    Raises:
      ValueError: the test split has classes of both kinds, or its names differ
        from those of the training split in capitals or blanks alone.
    """
    unseen = sorted(set(test) - set(train))
    if not unseen:
        return list(train)
    alike = {_plain(name) for name in train} & {_plain(name) for name in unseen}
    if not train or len(unseen) < len(set(test)) or alike:
        marked = [f"- {name}" for name in sorted(set(train) - set(test))]
        marked += [f"+ {name}" for name in unseen]
        raise exceptions.InvalidValue(
            f"{place} must have training images of every class that is tested, "
            "or of none, got a difference (- only in train, + only in test): "
            + exceptions.listed(marked)
        )
    return list(train if split == "train" else test)


def _plain(name: str) -> str:
    return " ".join(name.casefold().split())


def check_class_names(names: Sequence[str], place: str) -> None:
    """Raises ValueError for names that some later file could not hold."""
    for name in names:
        encodable = name.encode("utf-8", "ignore").decode()
        exceptions.require(
            name.strip() and encodable.splitlines() == [name],
            f"{place} must have classes that are called by a line of text each",
            repr(name),
        )
    counts = collections.Counter(names)
    repeated = [name for name, count in counts.items() if count > 1]
    exceptions.require(
        not repeated,
        f"{place} must have a name of its own for every class",
        exceptions.listed(repeated),
    )
