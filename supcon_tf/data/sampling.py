"""Batches with equally many images of each of their classes."""

from __future__ import annotations

import dataclasses

import numpy as np
import tensorflow as tf

from supcon_tf import exceptions
from supcon_tf.augment import randomness
from supcon_tf.data import sources, subsets

_IMAGES, _CLASSES = 0, 1  # Uses of the seeds of an epoch's order.


def class_balanced(
    source: sources.Source, batch_size: int, images_per_class: int
) -> sources.Source:
    """The source with epochs of class-balanced batches.

    With K = `images_per_class` and P = `batch_size` / K, in each epoch:
      * Every batch has P distinct classes and K images of each. Image k of
        every class comes before image k + 1 of any, so that the slices of a
        batch that replicas get differ little in their classes; the slices
        themselves are balanced only if their number divides K.
      * The P classes that were in the fewest batches come next, ties at
        random: the numbers of batches of any two classes differ by at most 1.
      * A class takes its images in a fresh random order, which starts again
        after the last of them. Hence no image comes a second time before all
        of its class came once, nor twice in a batch, unless its class has
        fewer than K images; those share its K places evenly.

    A large class is not used up in an epoch and a small class is repeated; over
    the run, every image is reached. A set in file order is held in memory.

    Example:
      >>> import numpy as np
      >>> from supcon_tf import data
      >>> images = np.zeros([9, 8, 8, 3], np.uint8)
      >>> source = data.from_arrays(images, [0, 0, 0, 0, 0, 0, 1, 1, 2])
      >>> source = data.class_balanced(source, batch_size=6, images_per_class=2)
      >>> _, labels = next(iter(data.make_views(source, 6)))
      >>> np.bincount(labels).tolist()
      [2, 2, 2]

    Returns:
      A source whose `records(seeds)` are to be cut into batches from their
      start, `num_examples` as before.

    Raises:
      ValueError: `images_per_class` does not divide `batch_size`, a batch
        would need more classes than have images, or the source has no labels
        and is a part of a set or too large for the memory.
    """
    source = _check_source(source, batch_size, images_per_class)
    classes, sizes = np.unique(
        source.labels, return_inverse=True, return_counts=True
    )[1:]
    shape = images_per_class, batch_size // images_per_class
    # Eager tensors are captured, not copied into the graph.
    classes, sizes = tf.constant(classes, tf.int32), tf.constant(sizes)

    def records(seeds: tf.Tensor | None) -> tf.data.Dataset:
        if seeds is None:
            return source.records(None)
        order = _by_class(classes, randomness.fold_in(seeds, _IMAGES))
        class_seeds = randomness.fold_in(seeds, _CLASSES)
        batches = _batches(order, sizes, shape, class_seeds)
        return batches.unbatch().take(source.num_examples)

    return dataclasses.replace(source, records=records)


def _check_source(
    source: sources.Source, batch_size: int, images_per_class: int
) -> sources.Source:
    """The source, in memory if labels are unknown; raises ValueError."""
    exceptions.require(
        images_per_class >= 1 and batch_size % images_per_class == 0,
        "`images_per_class` must divide `batch_size`",
        f"{images_per_class} and {batch_size}",
    )
    name = f"{source.name} ({source.split})"
    exceptions.require(
        not source.is_multi_label,
        "`images_per_class` must be left out for images of several labels",
        f"{images_per_class} for {name}",
    )
    if source.labels is None:
        exceptions.require(
            subsets.fits_in_memory(source, source.num_examples),
            "`images_per_class` must be left out for a set that workers share "
            f"by file and for one of more than {subsets.MAX_IN_MEMORY} images "
            "that is read in file order, for it picks images one by one; a "
            "folder has no such limit",
            f"{name} of {source.num_examples} images",
        )
        source = subsets.subset(source, np.arange(source.num_examples))
    present = len(np.unique(source.labels))
    needed = batch_size // images_per_class
    exceptions.require(
        needed <= present,
        "`images_per_class` must be so large that a batch has at most the "
        f"{present} classes of {name}",
        f"{images_per_class} for batches of {batch_size}: {needed} classes",
    )
    return source


def _by_class(classes: tf.Tensor, seeds: tf.Tensor) -> tf.Tensor:
    """All indices [N] int64, class by class, each class shuffled."""
    order = tf.random.experimental.stateless_shuffle(
        tf.range(classes.shape[0], dtype=tf.int64), seeds
    )
    by_class = tf.argsort(tf.gather(classes, order), stable=True)
    return tf.gather(order, by_class)


def _batches(
    order: tf.Tensor, sizes: tf.Tensor, shape: tuple[int, int], seeds: tf.Tensor
) -> tf.data.Dataset:
    """Batches of indices [K * P] without end, `shape` being (K, P).

    `order` [N] has the images class by class, `sizes` [C] of each.
    """
    per_class, num_classes = shape
    starts = tf.cumsum(sizes, exclusive=True)
    next_ranks = tf.range(per_class, dtype=tf.int64)[:, tf.newaxis]  # [K, 1]

    def next_batch(
        used: tf.Tensor, step: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        # `used` [C]: in how many batches each class was.
        step_seeds = tf.random.experimental.stateless_fold_in(seeds, step)
        chosen = _least_used(used, num_classes, step_seeds)  # [P]
        ranks = tf.gather(used, chosen) * per_class + next_ranks
        ranks %= tf.gather(sizes, chosen)  # [K, P]
        indices = tf.gather(order, tf.gather(starts, chosen) + ranks)
        used = tf.tensor_scatter_nd_add(
            used, chosen[:, tf.newaxis], tf.ones_like(chosen, tf.int64)
        )
        return used, tf.reshape(indices, [per_class * num_classes])

    counted = tf.data.Dataset.counter()
    return counted.scan(tf.zeros_like(sizes), next_batch)


def _least_used(used: tf.Tensor, count: int, seeds: tf.Tensor) -> tf.Tensor:
    """The `count` classes that were used least, [count] int32.

    `used` [C] differ by at most 1, before and after; ties fall at random.
    """
    ahead = tf.cast(used - tf.reduce_min(used), tf.float32)  # 0 or 1, exact.
    draws = tf.random.stateless_uniform(used.shape, seeds)  # [0, 1)
    return tf.math.top_k(-(ahead + draws), count).indices
