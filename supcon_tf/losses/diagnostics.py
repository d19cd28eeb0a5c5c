"""Diagnostics of the projections of a batch, as Keras metrics.

`model.compile(optimizer, SupConLoss(), metrics=losses.diagnostics())`. All of
them together cost a few percent of the loss: none builds the matrix of all
pairs of rows. Each is a mean over anchors, so that Keras can add up batches
and replicas of any size, and is 0 where there was no anchor to measure.
Projections have any float dtype and length: they are compared as float32 unit
vectors, as `SupConLoss` does. `name` and `dtype` are Keras'.

Letters in the shapes: B samples, V views, R = B * V rows, A rows of the
subsample.
"""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from supcon_tf import exceptions, keras_2
from supcon_tf.keras_2 import keras
from supcon_tf.losses import inputs, positive_weights

# Two equal cosines may differ by this much in float32, on whatever processor:
# such a lead is a tie.
_TIE = 4e-6
_NO_COSINE = -2.0  # below every cosine


def diagnostics(
    cross_replica: bool = True,
    multi_label: bool = False,
    soft_labels: bool = False,
    ignore_labels: bool = False,
    unsupervised_classes: Sequence[int] = (),
) -> list[keras.metrics.Metric]:
    """One metric of each kind for `compile(metrics=...)`.

    Of samples of several labels those that need no class of a sample, and
    `ContrastiveAccuracy`, whose positives share a label. Of soft labels those
    that need no labels: almost every row is a positive there, more or less.
    With `ignore_labels` the positives are the other views of the same sample,
    as in `SimCLRLoss`, whatever the labels; so are those of samples of
    `unsupervised_classes`, as in `SupConLoss`.

    Example:
      >>> import numpy as np
      >>> from supcon_tf import losses
      >>> projections = np.eye(2)[[0, 0, 1, 1]].reshape(2, 2, 2)
      >>> for metric in losses.diagnostics():
      ...     print(metric.name, round(float(metric([0, 1], projections)), 2))
      contrastive_accuracy 1.0
      alignment 0.0
      uniformity -1.06
      mean_cosine 0.33
      positives_per_anchor 1.0
      share_without_positives 0.0
    """
    if soft_labels:
        return [Uniformity(), MeanCosine()]
    if multi_label and not ignore_labels:
        accuracy = ContrastiveAccuracy(multi_label=True)
        return [accuracy, Uniformity(), MeanCosine()]
    rules = {
        "ignore_labels": ignore_labels,
        "unsupervised_classes": unsupervised_classes,
    }
    return [
        ContrastiveAccuracy(**rules),
        Alignment(**rules),
        Uniformity(),
        MeanCosine(),
        PositivesPerAnchor(cross_replica, **rules),
        AnchorsWithoutPositives(cross_replica, **rules),
    ]


class _Diagnostic(inputs.Configured, keras.metrics.Mean):
    """A mean over anchors, whose values and weights `_measure` returns.

    It takes labels in any form, projections [R, D] of length 1, and V.
    """

    # Whether the other views of a sample are its only positives: of every
    # sample, or of those of some classes.
    ignore_labels = False
    unsupervised_classes: tuple[int, ...] = ()

    def _set_positives(
        self, ignore_labels: bool, unsupervised_classes: Sequence[int]
    ) -> None:
        inputs.require_integers(unsupervised_classes=unsupervised_classes)
        self.ignore_labels = ignore_labels
        self.unsupervised_classes = tuple(unsupervised_classes)

    def update_state(
        self, y_true: tf.Tensor, y_pred: tf.Tensor, sample_weight: None = None
    ) -> tf.Operation | None:
        """Adds a batch: labels as in `supcon_loss`, never None; projections.

        Raises:
          TypeError: Keras 3 calls it, which would take means of its means.
        """
        keras_2.refuse_caller(self, "keras.src.metrics.")
        values_and_weights = self.measure_batch(y_true, y_pred, sample_weight)
        return super().update_state(*values_and_weights)

    def measure_batch(
        self, y_true: tf.Tensor, y_pred: tf.Tensor, sample_weight: None
    ) -> tuple[tf.Tensor, tf.Tensor | None]:
        """Returns the values of a batch, and their weights in the mean."""
        exceptions.require(
            sample_weight is None,
            "`sample_weight` must be None",
            f"a {type(sample_weight)}",
        )
        z = inputs.to_views(y_pred, "projections")
        views, dim = z.shape[1:]
        if self.ignore_labels:
            y_true = inputs.sample_ids(z)
        elif self.unsupervised_classes:
            y_true = inputs.without_classes(
                inputs.class_ids(y_true),
                self.unsupervised_classes,
                inputs.sample_ids(z),
            )
        z = tf.math.l2_normalize(tf.reshape(z, [-1, dim]), axis=1)  # [R, D]
        return self._measure(y_true, z, views)

    def result(self) -> tf.Tensor:
        """Returns the diagnostic over all batches; 0 without any anchor."""
        # Under replicas and mixed precision a variable does not compare.
        count = tf.convert_to_tensor(self.count)
        return self.from_mean(super().result(), count)

    def from_mean(self, mean: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
        """Returns the result, from the mean over `count` anchors."""
        return mean

    def _measure(self, labels: tf.Tensor, z: tf.Tensor, views: int) -> tuple:
        raise NotImplementedError


@keras.utils.register_keras_serializable(package="supcon_tf")
class ContrastiveAccuracy(_Diagnostic):
    """Share of anchors whose most similar other row is a positive.

    Evenly spaced anchors of each batch are compared with all rows of their
    own replica; rows of other replicas, which the loss contrasts too, are left
    out. Anchors without positives do not count. A tie with a negative counts
    as wrong, so that collapsed projections score 0.

    Args:
      anchors: largest number of anchors per batch and replica.
      multi_label: labels are [batch, classes] 0 or 1, several of a sample;
        those of positives overlap.
      ignore_labels: positives are the other views of a sample.
      unsupervised_classes: as `ignore_labels`, for samples of these classes.

    Example:
      >>> import numpy as np
      >>> from supcon_tf import losses
      >>> projections = np.array([[1.0, 0], [1, 0], [0, 1], [2, 1]])
      >>> accuracy = losses.ContrastiveAccuracy()
      >>> float(accuracy([0, 0, 1, 1], projections))  # the last is nearer to 0
      0.75

    Raises:
      ValueError: `anchors` is not positive.
    """

    def __init__(
        self,
        anchors: int = 64,
        name: str = "contrastive_accuracy",
        dtype: str | None = None,
        multi_label: bool = False,
        ignore_labels: bool = False,
        unsupervised_classes: Sequence[int] = (),
    ):
        super().__init__(name, dtype)
        inputs.require_positive(anchors=anchors)
        self.anchors = anchors
        self.multi_label = multi_label
        self._set_positives(ignore_labels, unsupervised_classes)

    def _measure(self, labels: tf.Tensor, z: tf.Tensor, views: int) -> tuple:
        kind = "any" if self.multi_label and not self.ignore_labels else None
        labels = positive_weights.canonical(labels, kind)
        weights = positive_weights.from_labels(labels, kind)
        samples = tf.repeat(tf.range(tf.shape(labels)[0]), views)  # [R]
        anchors = _subsample(z, self.anchors)  # [A]
        cosines = tf.matmul(  # [A, R]
            tf.gather(z, anchors), z, transpose_b=True
        )
        pair_weights = weights.weigh(tf.gather(samples, anchors), samples)
        is_positive = pair_weights > 0  # [A, R], the anchor itself included
        negatives = tf.where(is_positive, _NO_COSINE, cosines)
        is_positive &= anchors[:, tf.newaxis] != tf.range(tf.shape(z)[0])
        positives = tf.where(is_positive, cosines, _NO_COSINE)
        negative = tf.reduce_max(negatives, axis=1)  # [A], the most similar
        positive = tf.reduce_max(positives, axis=1)  # [A], the most similar
        return positive > negative + _TIE, positive > _NO_COSINE


@keras.utils.register_keras_serializable(package="supcon_tf")
class Alignment(_Diagnostic):
    """Mean squared distance of an anchor and its positives, in [0, 4].

      E_i E_{p in P(i)} ||z_i - z_p||^2

    Over all anchors with positives on their replica, and all of those; each
    anchor weighs the same, as in Eq. 2. It is computed exactly and without
    pairs, as the mean of 2n / (n - 1) ||z_i - m||^2, where m is the mean of
    the n rows of a class. 0 is collapse, at least within each class.

    Args:
      ignore_labels: positives are the other views of a sample.
      unsupervised_classes: as `ignore_labels`, for samples of these classes.

    Example:
      >>> import numpy as np
      >>> from supcon_tf import losses
      >>> projections = np.eye(2)  # two of a class, at right angles
      >>> round(float(losses.Alignment()([0, 0], projections)), 3)
      2.0

    Reference: Wang and Isola 2020, https://arxiv.org/abs/2005.10242, Sec. 4.
    """

    def __init__(
        self,
        name: str = "alignment",
        dtype: str | None = None,
        ignore_labels: bool = False,
        unsupervised_classes: Sequence[int] = (),
    ):
        super().__init__(name, dtype)
        self._set_positives(ignore_labels, unsupervised_classes)

    def _measure(self, labels: tf.Tensor, z: tf.Tensor, views: int) -> tuple:
        classes, samples = _classes(inputs.class_ids(labels))
        rows = tf.repeat(classes, views)  # [R]
        n = tf.cast(samples * views, z.dtype)  # [B], 0 past the classes
        sums = tf.math.unsorted_segment_sum(z, rows, tf.size(n))  # [B, D]
        means = tf.math.divide_no_nan(sums, n[:, tf.newaxis])
        means = tf.gather(means, rows)  # [R, D]
        # Not |sum z|^2 - sum |z|^2, which cancels where classes are tight.
        squares = tf.reduce_sum(tf.math.squared_difference(z, means), axis=1)
        n = tf.gather(n, rows)  # [R]
        return tf.math.divide_no_nan(2 * n, n - 1) * squares, n > 1


@keras.utils.register_keras_serializable(package="supcon_tf")
class Uniformity(_Diagnostic):
    """Log of the mean Gaussian potential of two rows, in [-8, 0].

      log E_{i != j} exp(-2 ||z_i - z_j||^2)

    Over all pairs of evenly spaced rows of each batch; the logarithm is taken
    once, of the mean over all batches. 0 is collapse; uniform on the sphere
    of 128 dimensions is -3.94.

    Args:
      anchors: largest number of rows per batch and replica.

    Example:
      >>> import numpy as np
      >>> from supcon_tf import losses
      >>> projections = np.eye(2)  # squared distance 2
      >>> round(float(losses.Uniformity()([0, 1], projections)), 3)
      -4.0

    Raises:
      ValueError: `anchors` is below 2.

    Reference: Wang and Isola 2020, https://arxiv.org/abs/2005.10242, Sec. 4.
    """

    def __init__(
        self,
        anchors: int = 64,
        name: str = "uniformity",
        dtype: str | None = None,
    ):
        super().__init__(name, dtype)
        exceptions.require(
            anchors >= 2, "`anchors` must be at least 2", anchors
        )
        self.anchors = anchors

    def _measure(self, labels: tf.Tensor, z: tf.Tensor, views: int) -> tuple:
        z = tf.gather(z, _subsample(z, self.anchors))  # [A, D]
        cosines = tf.matmul(z, z, transpose_b=True)  # [A, A]
        potentials = tf.exp(4 * (cosines - 1))  # of unit vectors
        num_others = tf.cast(tf.shape(z)[0] - 1, z.dtype)
        sums = tf.reduce_sum(  # [A], without the row itself
            tf.linalg.set_diag(potentials, tf.zeros_like(z[:, 0])), axis=1
        )
        means = tf.math.divide_no_nan(sums, num_others)
        return means, tf.fill(tf.shape(sums), num_others > 0)

    def from_mean(self, mean: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
        """Returns the logarithm; 0 where there were no two rows."""
        return tf.math.log(tf.where(count > 0, mean, 1.0))


@keras.utils.register_keras_serializable(package="supcon_tf")
class MeanCosine(_Diagnostic):
    """Mean cosine similarity of two different rows of a replica, in [-1, 1].

      E_{i != j} z_i . z_j

    Exact over all pairs, from ||sum z||^2. 1 is collapse; uniform on the
    sphere is 0.

    Example:
      >>> import numpy as np
      >>> from supcon_tf import losses
      >>> projections = np.eye(2)[[0, 0, 1]]  # cosines 1, 0 and 0
      >>> round(float(losses.MeanCosine()([0, 0, 1], projections)), 2)
      0.33
    """

    def __init__(self, name: str = "mean_cosine", dtype: str | None = None):
        super().__init__(name, dtype)

    def _measure(self, labels: tf.Tensor, z: tf.Tensor, views: int) -> tuple:
        rows = tf.cast(tf.shape(z)[0], z.dtype)
        total = tf.reduce_sum(tf.reduce_sum(z, axis=0) ** 2)
        mean = tf.math.divide_no_nan(
            total - tf.reduce_sum(z**2), rows * (rows - 1)
        )
        return mean, tf.where(rows > 1, rows, 0.0)


@keras.utils.register_keras_serializable(package="supcon_tf")
class PositivesPerAnchor(_Diagnostic):
    """Mean |P(i)|, before any cap.

    Args:
      cross_replica: count positives on all replicas, as the loss contrasts
        them; False counts within each replica.
      ignore_labels: positives are the other views of a sample.
      unsupervised_classes: as `ignore_labels`, for samples of these classes.

    Example:
      >>> import numpy as np
      >>> from supcon_tf import losses
      >>> projections = np.ones([4, 2, 8])  # two views: 3, 3, 1 and 1 positives
      >>> float(losses.PositivesPerAnchor()([0, 0, 1, 2], projections))
      2.0
    """

    def __init__(
        self,
        cross_replica: bool = True,
        name: str = "positives_per_anchor",
        dtype: str | None = None,
        ignore_labels: bool = False,
        unsupervised_classes: Sequence[int] = (),
    ):
        super().__init__(name, dtype)
        self.cross_replica = cross_replica
        self._set_positives(ignore_labels, unsupervised_classes)

    def _measure(self, labels: tf.Tensor, z: tf.Tensor, views: int) -> tuple:
        ids = inputs.class_ids(labels)
        (global_ids,) = inputs.gather(self.cross_replica, ids)
        classes, samples = _classes(global_ids)
        # [B] int32 |P(i)|, the same for each view of a sample.
        classes = classes[: tf.size(ids)]  # of this replica
        return tf.gather(samples, classes) * views - 1, None


@keras.utils.register_keras_serializable(package="supcon_tf")
class AnchorsWithoutPositives(PositivesPerAnchor):
    """Share of anchors without positives, whose loss is 0, in [0, 1].

    Example:
      >>> import numpy as np
      >>> from supcon_tf import losses
      >>> projections = np.ones([4, 1, 8])  # one view: 1 and 2 are alone
      >>> float(losses.AnchorsWithoutPositives()([0, 0, 1, 2], projections))
      0.5
    """

    def __init__(
        self,
        cross_replica: bool = True,
        name: str = "share_without_positives",
        dtype: str | None = None,
        ignore_labels: bool = False,
        unsupervised_classes: Sequence[int] = (),
    ):
        super().__init__(
            cross_replica, name, dtype, ignore_labels, unsupervised_classes
        )

    def _measure(self, labels: tf.Tensor, z: tf.Tensor, views: int) -> tuple:
        return super()._measure(labels, z, views)[0] == 0, None


def _classes(ids: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns classes [B] int32 in 0..C-1, and the size [B] of each class.

    Both are as long as the batch, so that XLA can compile them: the classes
    C..B-1 have no samples.
    """
    classes = inputs.class_numbers(ids)
    samples = tf.math.unsorted_segment_sum(
        tf.ones_like(classes), classes, tf.size(classes)
    )
    return classes, samples


def _subsample(z: tf.Tensor, limit: int) -> tf.Tensor:
    """Returns the indices of evenly spaced rows of z, `limit` at most."""
    rows = tf.shape(z)[0]
    count = tf.minimum(rows, limit)
    return tf.range(count) * rows // count
