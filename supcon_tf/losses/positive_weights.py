"""Weights of samples as positives of each other.

With one label per sample, samples of the same class weigh 1. With several
labels per sample, [samples, classes] 0 or 1, A and B the labels of two samples:

  any      1 where they share a label
  all      1 where A = B, and not empty
  jaccard  |A and B| / |A or B|

The own other views of a sample weigh 1, also where it has no label. With soft
labels, [samples, classes] of at least 0 as MixUp or a teacher makes them, y and
y' the rows of two samples:

  soft     y . y'
  cosine   y . y' / (|y| |y'|), GenSCL's (Kim et al. 2022, arXiv 2206.00384)

which the own other views weigh too.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import tensorflow as tf

from supcon_tf import exceptions
from supcon_tf.losses import inputs
from supcon_tf.losses.options import Options

_SOFT_KINDS = "soft", "cosine"
_FIRST_CONTRAST_ID = 2**62  # above the ids of the samples of all replicas
_TILE_SAMPLES = 256  # rows of weights that memory holds at once


class _Labels:
    """Labels by which a sample is a positive of itself, with weight 1."""

    def self_weights(self, count: int | tf.Tensor) -> tf.Tensor:
        """Returns the weights of the first samples in their own P(i)."""
        return tf.ones([count])


@dataclasses.dataclass(frozen=True)
class Classes(_Labels):
    """One label per sample.

    Attributes:
      classes: [S] int32.
    """

    classes: tf.Tensor

    def weigh(self, anchors: tf.Tensor, contrasts: tf.Tensor) -> tf.Tensor:
        """Returns the weights [A, M] of samples, named by their indices.

        Args:
          anchors: [A] int32, the sample of each anchor.
          contrasts: [M] int32, the sample of each contrast.
        """
        anchor_classes = tf.gather(self.classes, anchors)  # [A]
        contrast_classes = tf.gather(self.classes, contrasts)  # [M]
        same_class = anchor_classes[:, tf.newaxis] == contrast_classes
        return tf.cast(same_class, tf.float32)

    def sums(self, values: tf.Tensor, count: int | tf.Tensor) -> tf.Tensor:
        """Returns weighted sums over all samples, for the first samples.

        Takes values [S, D] of all samples; returns [count, D].
        """
        num_classes = tf.shape(self.classes)[0]  # at most
        sums = tf.math.unsorted_segment_sum(values, self.classes, num_classes)
        return tf.gather(sums, self.classes[:count])


@dataclasses.dataclass(frozen=True)
class SharedLabels(_Labels):
    """Several labels per sample, or none.

    Attributes:
      labels: [S, classes] float32, 0 or 1.
      kind: "any" or "jaccard".
    """

    labels: tf.Tensor
    kind: str

    def weigh(self, anchors: tf.Tensor, contrasts: tf.Tensor) -> tf.Tensor:
        """Returns the weights [A, M], as `Classes.weigh`."""
        # By sample, [A, S], of which there are fewer than views.
        weights = self._overlap(tf.gather(self.labels, anchors), self.labels)
        samples = tf.range(tf.shape(self.labels)[0])
        is_same_sample = anchors[:, tf.newaxis] == samples  # [A, S]
        weights = tf.where(is_same_sample, 1.0, weights)
        return tf.gather(weights, contrasts, axis=1)  # [A, M]

    def _overlap(
        self, anchor_labels: tf.Tensor, contrast_labels: tf.Tensor
    ) -> tf.Tensor:
        """Returns the weights [A, M] of different samples, by their labels."""
        shared = tf.matmul(anchor_labels, contrast_labels, transpose_b=True)
        if self.kind == "any":
            return tf.minimum(shared, 1.0)
        # A sample without labels counts as one label: it shares none.
        anchor_counts, contrast_counts = (
            tf.maximum(tf.reduce_sum(labels, axis=1, keepdims=True), 1.0)
            for labels in (anchor_labels, contrast_labels)
        )
        return shared / (anchor_counts + tf.transpose(contrast_counts) - shared)

    def sums(self, values: tf.Tensor, count: int | tf.Tensor) -> tf.Tensor:
        """Returns weighted sums, as `Classes.sums`, by tiles of the weights."""
        rows = self.labels[:count]
        tiles = tf.reshape(
            tf.pad(rows, [[0, -count % _TILE_SAMPLES], [0, 0]]),
            [-1, _TILE_SAMPLES, rows.shape[1]],
        )
        sums = tf.map_fn(
            lambda tile: tf.matmul(self._overlap(tile, self.labels), values),
            tiles,
            fn_output_signature=tf.TensorSpec(
                [_TILE_SAMPLES, values.shape[1]], tf.float32
            ),
        )
        sums = tf.reshape(sums, [-1, values.shape[1]])[:count]
        # A sample without labels does not overlap with itself.
        is_unlabelled = tf.reduce_all(rows == 0, axis=1, keepdims=True)
        return sums + tf.where(is_unlabelled, values[:count], 0.0)


@dataclasses.dataclass(frozen=True)
class SoftLabels:
    """A share of each class per sample.

    Attributes:
      labels: [S, classes] float32, at least 0.
    """

    labels: tf.Tensor

    def weigh(self, anchors: tf.Tensor, contrasts: tf.Tensor) -> tf.Tensor:
        """Returns the weights [A, M], as `Classes.weigh`."""
        anchor_labels = tf.gather(self.labels, anchors)  # [A, classes]
        contrast_labels = tf.gather(self.labels, contrasts)  # [M, classes]
        return tf.matmul(anchor_labels, contrast_labels, transpose_b=True)

    def self_weights(self, count: int | tf.Tensor) -> tf.Tensor:
        """Returns the weights of the first samples in their own P(i)."""
        return tf.reduce_sum(tf.square(self.labels[:count]), axis=1)

    def sums(self, values: tf.Tensor, count: int | tf.Tensor) -> tf.Tensor:
        """Returns weighted sums, as `Classes.sums`, class by class."""
        class_sums = tf.matmul(  # [classes, D]
            self.labels, values, transpose_a=True
        )
        return tf.matmul(self.labels[:count], class_sums)


@dataclasses.dataclass(frozen=True)
class PositiveMask:
    """Weights of a `positive_mask`.

    Attributes:
      mask: [anchors, S] float32; row i weighs the positives of sample i.
    """

    mask: tf.Tensor

    def weigh(self, anchors: tf.Tensor, contrasts: tf.Tensor) -> tf.Tensor:
        """Returns the weights [A, M], as `Classes.weigh`."""
        rows = tf.gather(self.mask, anchors)  # [A, S]
        return tf.gather(rows, contrasts, axis=1)  # [A, M]


Labels = Classes | SharedLabels | SoftLabels
Weights = Labels | PositiveMask


def from_labels(labels: tf.Tensor, kind: str | None) -> Weights:
    """Returns the weights of all samples, by their `canonical` labels."""
    if kind is None:
        return Classes(inputs.class_numbers(labels))
    if kind == "all":
        return Classes(inputs.class_numbers(_set_ids(labels)))
    if kind in _SOFT_KINDS:
        return SoftLabels(labels)
    return SharedLabels(labels, kind)


def _set_ids(labels: tf.Tensor) -> tf.Tensor:
    """Returns a class [S] int64 for each set of labels [S, classes].

    Each sample without labels has a class of its own. The classes are sums of
    random numbers: among a million sets, two that differ have the same class
    with a probability of 1e-7.
    """
    numbers = np.random.default_rng(0).integers(2**63, size=labels.shape[1])
    sums = tf.reduce_sum(tf.cast(labels, tf.int64) * numbers, axis=1)
    sums = tf.bitwise.bitwise_and(sums, tf.int64.max)
    unlabelled_ids = -1 - tf.range(tf.shape(labels, tf.int64)[0])
    return tf.where(tf.reduce_any(labels > 0, axis=1), sums, unlabelled_ids)


def canonical(
    labels: tf.Tensor, kind: str | None, name: str = "labels"
) -> tf.Tensor:
    """Returns labels as [S] int64 class identifiers, or [S, classes] float32.

    They are float32 for a `kind` of positives. The errors are
    InvalidArgumentError: one of several labels is neither 0 nor 1, a soft label
    is below 0, or a row of rank 2 is not one-hot.
    """
    if kind is None:
        return inputs.class_ids(labels, name)
    labels = tf.convert_to_tensor(labels)
    exceptions.require(
        labels.shape.rank == 2 and labels.shape[1] is not None,
        f"`{name}` of several labels per sample must be [batch, classes], 0 or "
        "1, or soft",
        f"shape {labels.shape}",
    )
    labels = tf.cast(labels, tf.float32)
    is_valid, rule = (labels == 0) | (labels == 1), "0 or 1"
    if kind in _SOFT_KINDS:
        is_valid, rule = labels >= 0, "at least 0"
    rule = f"`{name}` of several labels per sample must be {rule}"
    labels = inputs.checked(labels, is_valid, rule)
    return tf.math.l2_normalize(labels, axis=1) if kind == "cosine" else labels


def sample_labels(
    views: tf.Tensor,
    labels: tf.Tensor,
    options: Options,
    name: str = "labels",
) -> tf.Tensor:
    """Returns the `canonical` labels of the samples of views [S, V, D].

    Samples of `unsupervised_classes` get a class of their own each.

    Raises:
      ValueError: there are more labels, or fewer, than samples.
    """
    labels = canonical(labels, options.positives, name)
    inputs.check_shape(name, labels, [views.shape[0], *labels.shape[1:]])
    if not options.unsupervised_classes:
        return labels
    is_contrast = name == "contrast_labels"
    return inputs.without_classes(
        labels,
        options.unsupervised_classes,
        inputs.sample_ids(views) + (_FIRST_CONTRAST_ID if is_contrast else 0),
    )
