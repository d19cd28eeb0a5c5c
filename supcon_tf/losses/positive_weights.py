"""Which samples are positives of each other, and how much each weighs.

Of a label per sample, those of the same class weigh 1. Of several labels per
sample, [samples, classes] 0 or 1, with A and B the labels of two samples:

  any      1 where they share a label
  all      1 where A = B, and not empty
  jaccard  |A and B| / |A or B|

The own other views of a sample weigh 1, also where it has no label. Of soft
labels, [samples, classes] of at least 0 as MixUp or a teacher makes them, with
y and y' the rows of two samples:

  soft     y . y'
  cosine   y . y' / (|y| |y'|), GenSCL's (Kim et al. 2022, arXiv 2206.00384)

of the own other views too.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import tensorflow as tf

from supcon_tf import exceptions
from supcon_tf.losses import inputs
from supcon_tf.losses.options import Options

_SOFT = "soft", "cosine"
_CONTRASTS = 2**62  # more ids than the samples of all replicas
_TILE_SAMPLES = 256  # rows of weights that are held at once


class _Labels:
    """Labels by which a sample is its own positive, with weight 1."""

    def of_itself(self, count: int | tf.Tensor) -> tf.Tensor:
        """Weights of the first samples in their own P(i), [count]."""
        return tf.ones([count])


@dataclasses.dataclass(frozen=True)
class Classes(_Labels):
    """One label per sample.

    Attributes:
      classes: [S] int32.
    """

    classes: tf.Tensor

    def weigh(self, a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
        """[A, B] float32 weights, of the numbers of samples [A] and [B]."""
        a, b = tf.gather(self.classes, a), tf.gather(self.classes, b)
        return tf.cast(a[:, tf.newaxis] == b, tf.float32)

    def sums(self, values: tf.Tensor, count: int | tf.Tensor) -> tf.Tensor:
        """Weighted sums over all samples, for the first of them.

        Takes values [S, D] of all samples; returns [count, D].
        """
        classes = tf.shape(self.classes)[0]  # at most
        sums = tf.math.unsorted_segment_sum(values, self.classes, classes)
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

    def weigh(self, a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
        """As of `Classes`."""
        weights = self._overlap(tf.gather(self.labels, a), self.labels)
        itself = a[:, tf.newaxis] == tf.range(tf.shape(self.labels)[0])
        # By sample, of which there are fewer than views.
        return tf.gather(tf.where(itself, 1.0, weights), b, axis=1)

    def _overlap(self, a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
        """[A, B] weights of samples that are not the same, by their labels."""
        shared = tf.matmul(a, b, transpose_b=True)
        if self.kind == "any":
            return tf.minimum(shared, 1.0)
        # 1 for none, which share nothing.
        of_a, of_b = (
            tf.maximum(tf.reduce_sum(labels, axis=1, keepdims=True), 1.0)
            for labels in (a, b)
        )
        return shared / (of_a + tf.transpose(of_b) - shared)

    def sums(self, values: tf.Tensor, count: int | tf.Tensor) -> tf.Tensor:
        """As of `Classes`, some rows of the weights at a time."""
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
        has_none = tf.reduce_all(rows == 0, axis=1, keepdims=True)
        return sums + tf.where(has_none, values[:count], 0.0)


@dataclasses.dataclass(frozen=True)
class SoftLabels:
    """A share of each class per sample.

    Attributes:
      labels: [S, classes] float32, at least 0.
    """

    labels: tf.Tensor

    def weigh(self, a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
        """As of `Classes`."""
        a, b = tf.gather(self.labels, a), tf.gather(self.labels, b)
        return tf.matmul(a, b, transpose_b=True)

    def of_itself(self, count: int | tf.Tensor) -> tf.Tensor:
        """Weights of the first samples in their own P(i), [count]."""
        return tf.reduce_sum(tf.square(self.labels[:count]), axis=1)

    def sums(self, values: tf.Tensor, count: int | tf.Tensor) -> tf.Tensor:
        """As of `Classes`, class by class."""
        by_class = tf.matmul(self.labels, values, transpose_a=True)
        return tf.matmul(self.labels[:count], by_class)


@dataclasses.dataclass(frozen=True)
class Given:
    """Weights of a `positive_mask`.

    Attributes:
      mask: [anchors, S] float32; row i weighs the positives of sample i.
    """

    mask: tf.Tensor

    def weigh(self, a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
        """As of `Classes`."""
        return tf.gather(tf.gather(self.mask, a), b, axis=1)


Labels = Classes | SharedLabels | SoftLabels
Weights = Labels | Given


def of_labels(labels: tf.Tensor, kind: str | None) -> Weights:
    """The positives of all samples, by `canonical` labels."""
    if kind is None:
        return Classes(inputs.class_numbers(labels))
    if kind == "all":
        return Classes(inputs.class_numbers(_set_ids(labels)))
    if kind in _SOFT:
        return SoftLabels(labels)
    return SharedLabels(labels, kind)


def _set_ids(labels: tf.Tensor) -> tf.Tensor:
    """A class for each set of labels [S, classes], and each sample without any.

    [S] int64: sums of random numbers, so that among a million sets two that
    differ are equal with a probability of 1e-7.
    """
    numbers = np.random.default_rng(0).integers(2**63, size=labels.shape[1])
    sums = tf.reduce_sum(tf.cast(labels, tf.int64) * numbers, axis=1)
    sums = tf.bitwise.bitwise_and(sums, tf.int64.max)
    alone = -1 - tf.range(tf.shape(labels, tf.int64)[0])
    return tf.where(tf.reduce_any(labels > 0, axis=1), sums, alone)


def canonical(
    labels: tf.Tensor, kind: str | None, name: str = "labels"
) -> tf.Tensor:
    """Labels as [S] int64 class identifiers, or [S, classes] float32.

    The latter for a `kind` of positives. InvalidArgumentError where a label of
    several is neither 0 nor 1, a soft one below 0, or a row of one not one-hot.
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
    is_right, rule = (labels == 0) | (labels == 1), "0 or 1"
    if kind in _SOFT:
        is_right, rule = labels >= 0, "at least 0"
    check = tf.debugging.Assert(
        tf.reduce_all(is_right),
        [f"`{name}` of several labels per sample must be {rule}"],
    )
    with tf.control_dependencies([check] if check is not None else []):
        if kind == "cosine":
            return tf.math.l2_normalize(labels, axis=1)
        return tf.identity(labels)


def labels_of(
    views: tf.Tensor,
    labels: tf.Tensor,
    options: Options,
    name: str = "labels",
) -> tf.Tensor:
    """`canonical` labels of samples, of which views [S, V, D] are.

    Samples of `unsupervised_classes` get a class of their own each.

    Raises:
      ValueError: there are more labels, or fewer, than samples.
    """
    labels = canonical(labels, options.positives, name)
    inputs.check_shape(name, labels, [views.shape[0], *labels.shape[1:]])
    if not options.unsupervised_classes:
        return labels
    classes = tf.constant(options.unsupervised_classes, tf.int64)
    is_alone = tf.reduce_any(labels[:, tf.newaxis] == classes, axis=1)
    # Far from every class that anybody has, and from each other.
    first = tf.int64.min + (_CONTRASTS if name == "contrast_labels" else 0)
    return tf.where(is_alone, first + inputs.sample_ids(views), labels)
