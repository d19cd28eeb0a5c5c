"""The partition into training and test examples: by names, or by a hash."""

from __future__ import annotations

import collections
import hashlib
import re
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from supcon_tf import exceptions

# Names of splits, in lower case. Where there is no `test`, `val` is the test
# split.
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
_LEAST_CLASSES = 2  # of a split: among one class, retrieval is always right


def split_of(name: str) -> str | None:
    """The split of a folder's or a row's name: train, test, val, or None."""
    return _SPLITS.get(name.strip().lower())


def split_of_file(name: str) -> str | None:
    """The last split among the words of a file's name, or None.

    cifar10-train.tfrecord-00000-of-00001 is "train"; `strain` is another word.
    """
    words = map(split_of, re.split("[^a-z]+", name.lower()))
    return ([None] + [word for word in words if word])[-1]


def is_test(
    paths: Sequence[str], labels: npt.ArrayLike, fraction: float, seed: int
) -> np.ndarray:
    """The mask of the test split, [images] bool.

    A hash of its file name decides for each image, whatever other images come
    and go. The class does not count: an image that is moved to its right class
    stays in its split. Two exceptions keep small classes usable: in a class
    without training images the image with the highest hash trains, and without
    any test image, one of each class of two or more tests.

    Args:
      paths: of the images.
      labels: [images] integers, or [images, classes] 0 or 1.
      fraction: share of the test split, in (0, 1).
      seed: of the hash.

    Raises:
      ValueError: `fraction` is out of range.
    """
    exceptions.require(
        0 < fraction < 1, "`test_fraction` must be in (0, 1)", fraction
    )
    shares = np.array([_share(path.rpartition("/")[2], seed) for path in paths])
    classes = _positions_by_class(labels)
    test_mask = _with_training(shares < fraction, shares, classes)
    if not test_mask.any():
        for positions in classes:
            if len(positions) > 1:
                test_mask[positions[shares[positions].argmin()]] = True
        test_mask = _with_training(test_mask, shares, classes)
    return test_mask


def _with_training(
    test_mask: np.ndarray, shares: np.ndarray, classes: list[np.ndarray]
) -> np.ndarray:
    """The mask of test images, where each class keeps a training image."""
    for positions in classes:
        if test_mask[positions].all():
            test_mask[positions[shares[positions].argmax()]] = False
    return test_mask


def describe_uneven(
    paths: Sequence[str], test_mask: np.ndarray, fraction: float, remedy: str
) -> str:
    """A sentence on a split by `is_test` far from its fraction; "" for none.

    The split of a few names, such as a main.jpg in every folder, is a draw of a
    few parts. `remedy` ends the sentence.
    """
    names = {path.rpartition("/")[2] for path in paths}
    share = test_mask.mean()
    is_far = share < fraction / 2 or 1 - share < (1 - fraction) / 2
    if len(names) > len(paths) / 2 or not is_far:
        return ""
    return (
        f"{test_mask.sum():,} of {len(paths):,} images are test images, a "
        f"share of {share:.2g} instead of {fraction:g}: a hash of its file "
        f"name decides for each image, and they have {len(names):,} names, "
        f"such as {min(names)}; {remedy}"
    )


def is_test_class(
    names: Sequence[str], fraction: float, seed: int, data_name: str
) -> np.ndarray:
    """The mask of the classes that training never sees, [classes] bool.

    A hash of its name decides for each class, whatever other classes there are;
    but the two classes of the lowest hashes test, and the two of the highest
    train.

    Args:
      names: of the classes, all different.
      fraction: share of the test classes, in (0, 1).
      seed: of the hash.
      data_name: names the data in messages.

    Raises:
      ValueError: there are fewer than four classes.
    """
    exceptions.require(
        len(names) >= 2 * _LEAST_CLASSES,
        f"{data_name} must have {2 * _LEAST_CLASSES} classes or more for a "
        "split by class",
        len(names),
    )
    shares = np.array([_share(name, seed) for name in names])
    order = np.argsort(shares)
    test_mask = shares < fraction
    test_mask[order[:_LEAST_CLASSES]] = True
    test_mask[order[-_LEAST_CLASSES:]] = False
    return test_mask


def _share(name: str, seed: int) -> float:
    """A hash of the name of a file or a class, in [0, 1)."""
    text = f"{seed}/{name}"
    digest = hashlib.sha256(text.encode("utf-8", "surrogateescape"))
    return int.from_bytes(digest.digest()[:8], "big") / 2**64


def _positions_by_class(labels: npt.ArrayLike) -> list[np.ndarray]:
    """The rising positions of the images of every class that has images."""
    labels = np.asarray(labels)
    if labels.ndim == 2:
        columns = map(np.flatnonzero, labels.T)
        return [positions for positions in columns if len(positions)]
    order = np.argsort(labels, kind="stable")
    ends = np.flatnonzero(np.diff(labels[order])) + 1
    return np.split(order, ends) if len(order) else []


def class_names(
    train: Sequence[str], test: Sequence[str], split: str, data_name: str
) -> list[str]:
    """The class names of a split, in the order of its labels.

    They are those of the training split; the test split may lack some. A test
    split of other classes alone, such as the unseen birds of CUB-200, has its
    own class names, for retrieval.

    Args:
      train: classes with training images.
      test: classes with test images.
      split: "train", or the split of `test`.
      data_name: names the data in messages.

    Raises:
      ValueError: the test split has seen and unseen classes, or its names
        differ from those of the training split in capitals or blanks alone.
    """
    unseen = sorted(set(test) - set(train))
    if not unseen:
        return list(train)
    respelled = {*map(_plain, train)} & {*map(_plain, unseen)}
    if not train or len(unseen) < len(set(test)) or respelled:
        differences = [f"- {name}" for name in sorted(set(train) - set(test))]
        differences += [f"+ {name}" for name in unseen]
        raise exceptions.InvalidValue(
            f"{data_name} must have training images of every class that is "
            "tested, or of none, got a difference (- only in train, + only in "
            "test): " + exceptions.listed(differences)
        )
    return list(train if split == "train" else test)


def _plain(name: str) -> str:
    return " ".join(name.casefold().split())


def check_class_names(names: Sequence[str], data_name: str) -> None:
    """Raises ValueError for names that are no line of text each."""
    for name in names:
        exceptions.require(
            isinstance(name, str),
            f"{data_name} must have classes that are called by texts, such as "
            "str(name)",
            repr(name),
        )
        encodable = name.encode("utf-8", "ignore").decode()
        exceptions.require(
            name.strip() and encodable.splitlines() == [name],
            f"{data_name} must have classes that are called by a line of text "
            "each",
            repr(name),
        )
    counts = collections.Counter(names)
    repeated = [name for name, count in counts.items() if count > 1]
    exceptions.require(
        not repeated,
        f"{data_name} must have a name of its own for every class",
        exceptions.listed(repeated),
    )
