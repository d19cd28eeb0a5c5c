"""Subsets of a split: a few images of each class, a share for validation."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from supcon_tf import exceptions, tracing
from supcon_tf.data import sources

# Examples of a set in file order that are held in memory, encoded, at most:
# CIFAR-10 is 120 MB, 100,000 images of ImageNet are 11 GB.
MAX_IN_MEMORY = 100_000


def labels_of(source: sources.Source) -> np.ndarray:
    """The labels of a split in its fixed order.

    [num_examples] integers, or [num_examples, classes] 0 or 1 of several
    labels. A split in file order is read once for its labels.
    """
    if source.labels is not None:
        return source.labels
    read = tracing.rewritten(source.read)
    labels = source.records(None).map(lambda record: read(record)[1])
    return np.stack([*labels.as_numpy_iterator()])


def draw_per_class(labels: npt.ArrayLike, count: int, seed: int) -> np.ndarray:
    """Draws equally many examples of each class that has any.

    Args:
      labels: [examples] integers.
      count: examples of each class.
      seed: integer; the same seed draws the same examples.

    Returns:
      [classes * count] positions in `labels`, rising.

    Raises:
      ValueError: `count` is not positive, or a class has fewer examples.
    """
    labels = np.asarray(labels)
    classes, sizes = np.unique(labels, return_counts=True)
    exceptions.require(
        1 <= count <= sizes.min(),
        f"`count` must be in 1..{sizes.min()}, the examples of class "
        f"{classes[sizes.argmin()]}",
        count,
    )
    return _draw(labels, classes, np.full(len(classes), count), seed)


def _draw(
    labels: np.ndarray, classes: np.ndarray, counts: np.ndarray, seed: int
) -> np.ndarray:
    """Rising positions of so many random examples of each class."""
    rng = np.random.default_rng(seed)
    drawn = [
        rng.permutation(np.flatnonzero(labels == label))[:count]
        for label, count in zip(classes, counts, strict=True)
    ]
    return np.sort(np.concatenate(drawn))


def draw_long_tail(
    labels: npt.ArrayLike, ratio: float, seed: int
) -> np.ndarray:
    """Draws fewer and fewer examples from the first class to the last.

    Class c in 0..C-1 gets n r^(-c / (C - 1)) examples, rounded down, at least 1
    and at most all of its own, where n is the size of the largest class.

    Args:
      labels: [examples] integers, 0..C-1.
      ratio: r, at least 1; 100 makes CIFAR-10-LT of CIFAR-10.
      seed: integer; the same seed draws the same examples.

    Returns:
      Positions in `labels`, rising.

    Reference: Cui et al. 2019, https://arxiv.org/abs/1901.05555, Sec. 5.1.
    """
    labels = np.asarray(labels)
    exceptions.require(ratio >= 1, "`ratio` must be at least 1", ratio)
    sizes = np.bincount(labels)
    last = max(len(sizes) - 1, 1)
    counts = sizes.max() * float(ratio) ** -(np.arange(len(sizes)) / last)
    # A ratio of 100 makes 49.999... of 5,000 in floats: 50 are meant.
    counts = np.maximum(np.floor(counts + 1e-6).astype(int), 1)
    return _draw(labels, np.arange(len(sizes)), counts, seed)


def flip_labels(
    labels: npt.ArrayLike, num_classes: int, share: float, seed: int
) -> np.ndarray:
    """Replaces a random share of labels by random other labels.

    Args:
      labels: [examples] integers in 0..num_classes-1.
      num_classes: at least 2.
      share: of the examples, in [0, 1]; their number is rounded.
      seed: integer; the same seed flips the same labels.

    Returns:
      [examples] int64.
    """
    labels = np.array(labels, np.int64)
    exceptions.require(
        num_classes >= 2, "`num_classes` must be >= 2", num_classes
    )
    rng = np.random.default_rng(seed)
    positions = rng.permutation(len(labels))[: round(share * len(labels))]
    offsets = rng.integers(1, num_classes, len(positions))
    labels[positions] = (labels[positions] + offsets) % num_classes
    return labels


def with_labels(source: sources.Source, labels: np.ndarray) -> sources.Source:
    """The source with other labels [num_examples] of the same classes.

    A source in file order is held in memory, as of `subset`.
    """
    if source.labels is None:
        source = subset(source, np.arange(source.num_examples))
    fields = sources.by_index(
        np.arange(source.num_examples),
        labels,
        lambda position: source.read(position)[0],
        source.weights,
    )
    return dataclasses.replace(source, **fields)


def select_classes(
    source: sources.Source, names: Sequence[str]
) -> sources.Source:
    """The examples of some classes, which are the classes of the result.

    A source in file order is held in memory, as of `subset`.

    Args:
      source: any split, one label per example.
      names: of the classes, all different; labels are positions in `names`.

    Raises:
      ValueError: examples have several labels, no example is of these classes,
        or there are too many for the memory.
    """
    exceptions.require(
        not source.is_multi_label,
        "`source` must have one label per example to be divided by class",
        "several",
    )
    label_of = {name: label for label, name in enumerate(names)}
    new_labels = [label_of.get(name, -1) for name in source.class_names]
    labels = np.array(new_labels)[labels_of(source)]
    positions = np.flatnonzero(labels >= 0)
    exceptions.require(
        len(positions) > 0,
        f"{source.name} ({source.split}) must have images of "
        f"{exceptions.listed(names)}",
        "none",
    )
    part = with_labels(subset(source, positions), labels[positions])
    return dataclasses.replace(part, class_names=tuple(names))


def draw_evenly(labels: npt.ArrayLike, count: int, seed: int) -> np.ndarray:
    """Draws examples whose counts by class are as equal as they can be.

    Counts differ by one where the classes do not divide `count`, and a small
    class gives all of its examples. `labels` and `seed` are as in
    `draw_per_class`, `count` is at least 1.

    Returns:
      [min(count, examples)] positions in `labels`, rising.
    """
    labels = np.asarray(labels)
    shuffled = np.random.default_rng(seed).permutation(len(labels))
    first = np.argsort(turns(labels[shuffled]), kind="stable")[:count]
    return np.sort(shuffled[first])


def evenly(total: int, count: int) -> np.ndarray:
    """At most `count` of the integers below `total`, evenly spread, rising."""
    count = min(count, total)
    return np.arange(count) * total // max(count, 1)


def turns(labels: npt.ArrayLike) -> np.ndarray:
    """Earlier occurrences of each label in `labels` [n]: 0, 1, ..., int64."""
    labels = np.asarray(labels)
    order = np.argsort(labels, kind="stable")
    ranked = labels[order]
    ranks = np.empty(len(labels), np.int64)
    ranks[order] = np.arange(len(labels)) - np.searchsorted(ranked, ranked)
    return ranks


def hold_out(
    labels: npt.ArrayLike, fraction: float, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Holds a share of every class out, for validation.

    A class of n examples gives round(n * fraction) of them, but at least 1 and
    at most n - 1; a class of a single example gives none. An example of several
    labels [examples, classes] counts by its rarest label; examples without a
    label are one class.

    Args:
      labels: [examples] integers, or [examples, classes] 0 or 1.
      fraction: share held out, in (0, 1).
      seed: integer; the same seed makes the same split.

    Returns:
      The positions in `labels` that are kept, and those held out, both rising.

    Raises:
      ValueError: `fraction` is not in (0, 1), or no class has two examples.
    """
    labels = _drawing_classes(labels)
    classes, sizes = np.unique(labels, return_counts=True)
    counts = _shares(sizes, fraction)
    exceptions.require(
        sizes.max(initial=0) > 1,
        "`labels` must have a class of two examples",
        f"{len(labels)} examples of as many classes",
    )
    held_out = _draw(labels, classes, counts, seed)
    return np.setdiff1d(np.arange(len(labels)), held_out), held_out


def draw_share(labels: npt.ArrayLike, fraction: float, seed: int) -> np.ndarray:
    """Draws a share of every class: the examples that `hold_out` holds out.

    A class of a single example, which `hold_out` keeps, gives this example, so
    that no class is lost. The arguments are those of `hold_out`.

    Returns:
      Positions in `labels`, rising.

    Raises:
      ValueError: `fraction` is not in (0, 1).
    """
    labels = _drawing_classes(labels)
    classes, sizes = np.unique(labels, return_counts=True)
    counts = np.maximum(_shares(sizes, fraction), 1)
    return _draw(labels, classes, counts, seed)


def _drawing_classes(labels: npt.ArrayLike) -> np.ndarray:
    """The class by which `hold_out` counts each example, [examples]."""
    labels = np.asarray(labels)
    if labels.ndim == 2:
        sizes = np.where(labels, labels.sum(axis=0, dtype=int), len(labels) + 1)
        labels = np.where(labels.any(axis=1), sizes.argmin(axis=1), -1)
    return labels


def _shares(sizes: np.ndarray, fraction: float) -> np.ndarray:
    """The examples that `hold_out` holds out of classes of these sizes."""
    exceptions.require(
        0 < fraction < 1, "`fraction` must be in (0, 1)", fraction
    )
    counts = np.maximum(np.round(sizes * fraction).astype(int), 1)
    return np.minimum(counts, sizes - 1)


def train_and_validation(
    source: sources.Source, fraction: float = 0.2, seed: int = 0
) -> tuple[sources.Source, sources.Source]:
    """Holds a share of every class of a training split out, for validation.

    Example:
      >>> from supcon_tf import data
      >>> parts = data.train_and_validation(data.load("photos", "train"), 0.25)
      >>> [(part.split, part.num_examples) for part in parts]
      [('train', 36), ('validation', 12)]

    Returns:
      The training and the validation split. At least one example of each class
      stays in training.

    Raises:
      ValueError: as `hold_out`.
    """
    positions = hold_out(labels_of(source), fraction, seed)
    train, validation = (subset(source, part) for part in positions)
    return train, dataclasses.replace(validation, split="validation")


def subset(source: sources.Source, positions: npt.ArrayLike) -> sources.Source:
    """The source with some of its examples.

    Examples of a set in file order are held in memory.

    Args:
      source: any split.
      positions: [examples] integers in the fixed order, rising.

    Raises:
      ValueError: `positions` is empty, not rising or out of range, or there
        are too many for the memory.
    """
    positions = np.asarray(positions, np.int64)
    records = records_at(source, positions)
    exceptions.require(positions.size > 0, "`positions` must not be empty", 0)
    if source.labels is None:
        exceptions.require(
            fits_in_memory(source, len(positions)),
            f"`positions` must be at most {MAX_IN_MEMORY} of a set that is "
            "read in file order, and not shared by file, for their images are "
            "held in memory; a folder has no such limit",
            f"{len(positions)} of {source.name} ({source.split})",
        )
        batch = records.map(source.read).batch(len(positions))
        values, labels = batch.get_single_element()
        fields = sources.by_index(
            values, labels.numpy(), weights=_rows(source.weights, positions)
        )
    else:
        fields = sources.by_index(
            positions,
            source.labels[positions],
            lambda position: source.read(position)[0],
            _rows(source.weights, positions),
        )
    for name in ("ids", "texts"):
        if (names := getattr(source, name)) is not None:
            fields[name] = tuple(names[position] for position in positions)
    return dataclasses.replace(
        source,
        digests=_rows(source.digests, positions),
        fingerprint=lambda: (
            (of_all := source.fingerprint())
            and sources.fingerprint(of_all, positions)
        ),
        **fields,
    )


def _rows(
    values: np.ndarray | None, positions: np.ndarray
) -> np.ndarray | None:
    return None if values is None else values[positions]


def duplicates(source: sources.Source, other: sources.Source) -> np.ndarray:
    """Positions of the examples that are, byte for byte, in another split.

    Empty where the files of a split were not checked. Copies of images in
    another size or encoding are not found.
    """
    if source.digests is None or other.digests is None:
        return np.zeros(0, np.int64)
    return np.flatnonzero(np.isin(source.digests, other.digests))


def contradictions(source: sources.Source) -> np.ndarray:
    """Positions of the examples that have a copy of another label.

    Copies are byte for byte the same. Empty where the files were not checked,
    or where the labels are read with the examples alone.
    """
    if source.digests is None or source.labels is None:
        return np.zeros(0, np.int64)
    _, firsts, contents = np.unique(
        source.digests, return_index=True, return_inverse=True
    )
    originals = firsts[contents]  # [examples], the first of equal content
    copies = np.flatnonzero(originals != np.arange(len(originals)))
    labels = source.labels.reshape(len(originals), -1)  # [examples, 1 or C]
    differs = (labels[copies] != labels[originals[copies]]).any(axis=1)
    return np.flatnonzero(np.isin(contents, contents[copies[differs]]))


def without_duplicates(
    test: sources.Source, train: sources.Source
) -> sources.Source:
    """The test examples without those that are training examples too.

    Raises:
      ValueError: all are, or the files were not checked.
    """
    exceptions.require(
        test.digests is not None and train.digests is not None,
        "`drop_duplicates` must have files whose bytes the training has read, "
        "by `check_images`",
        f"{test.name}, whose bytes are not known",
    )
    positions = duplicates(test, train)
    remaining = np.setdiff1d(np.arange(test.num_examples), positions)
    exceptions.require(
        len(remaining) > 0,
        "`drop_duplicates` must leave test examples that are no training "
        "examples",
        f"{len(positions)} of {test.num_examples} that are",
    )
    return subset(test, remaining) if len(positions) else test


def fits_in_memory(source: sources.Source, count: int) -> bool:
    """Whether `count` examples of a set in file order may be held in memory."""
    return source.shard is None and count <= MAX_IN_MEMORY


def records_at(
    source: sources.Source, positions: np.ndarray
) -> tf.data.Dataset:
    """The records at `positions` [n] int64 of the fixed order of a split.

    A split in file order is read up to the last of them.

    Raises:
      ValueError: `positions` are not ascending, each once, or out of range.
    """
    bounded = np.concatenate([[-1], positions, [source.num_examples]])
    exceptions.require(
        (np.diff(bounded) > 0).all(),
        "`positions` must be ascending, each once, in "
        f"0..{source.num_examples - 1}",
        positions,
    )
    if source.labels is not None:  # a record is its position
        return tf.data.Dataset.from_tensor_slices(positions)
    numbered = sources.numbered_at(
        source.records(None), positions, source.num_examples
    )
    return numbered.map(lambda _, record: record)
