"""Losses of a classifier on every view: cross-entropy, with and without margin.

The one-stage baselines of the paper. `y_true` are labels [batch] in 0 ...
classes - 1 or any other form of `supcon_loss`, for the cross-entropy soft
labels too; `y_pred` are [batch, views, classes] as `models.ClassifierModel`
makes them; a loss is [batch] float32, nats, averaged over views.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import tensorflow as tf

from supcon_tf import exceptions
from supcon_tf.keras_2 import keras
from supcon_tf.losses import inputs, positive_weights


@keras.utils.register_keras_serializable(package="supcon_tf")
@dataclasses.dataclass(eq=False)
class CrossEntropyLoss(inputs.Loss):
    """Softmax cross-entropy per sample, the mean over its views.

      L = -log( exp(l_y) / sum_c exp(l_c) )

    Keras' own class takes a label per view, this one a label per sample.
    Labels [batch, classes] of floats, rows that sum to 1, are soft, as
    `augment.MixUp` makes them: L is then the mean over y with these weights.
    Label smoothing eps replaces any weights q by (1 - eps) q + eps / classes.

    With class shares pi, l_c becomes l_c + t log pi_c in the loss alone: what
    the logits are then best for is the mean accuracy over the classes, however
    rare they are (logit adjustment).

    Args:
      label_smoothing: eps, a share from 0 up to, not including, 1.
      class_shares: [classes] positive numbers, pi; empty for no adjustment.
      logit_adjustment: t, not negative.
      reduction: of Keras, as is `name`.

    Example:
      >>> import numpy as np
      >>> from supcon_tf import losses
      >>> logits = np.log([[[0.5, 0.5], [0.25, 0.75]]])  # an image, two views
      >>> loss = losses.CrossEntropyLoss()
      >>> round(float(loss([0], logits)), 2)  # (log 2 + log 4) / 2
      1.04

    Raises:
      ValueError: an argument is out of its range, `y_pred` is not [batch,
        views, classes] of floats, or soft labels or shares have other classes
        than it.
      InvalidArgumentError: a row of soft labels does not sum to 1, or has a
        share below 0.

    Reference: Szegedy et al. 2016, https://arxiv.org/abs/1512.00567, Sec. 7
    (label smoothing, eps = 0.1); Menon et al. 2021,
    https://arxiv.org/abs/2007.07314, Eq. 10 (logit adjustment, t = 1).
    """

    label_smoothing: float = 0.0
    class_shares: Sequence[float] = ()
    logit_adjustment: float = 1.0
    reduction: str = keras.losses.Reduction.AUTO
    name: str = "cross_entropy_loss"

    def __post_init__(self) -> None:
        super().__post_init__()
        exceptions.require(
            0 <= self.label_smoothing < 1,
            "`label_smoothing` must be at least 0 and below 1",
            self.label_smoothing,
        )
        exceptions.require(
            all(share > 0 for share in self.class_shares),
            "`class_shares` must be positive",
            self.class_shares,
        )
        inputs.require_at_least_0(logit_adjustment=self.logit_adjustment)

    @inputs.nan_if_broken
    def call(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        logits = inputs.to_views(y_pred, "logits")
        if len(self.class_shares):
            shares = tf.constant(self.class_shares, tf.float32)
            inputs.check_shape("class_shares", shares, [logits.shape[2]])
            logits += self.logit_adjustment * tf.math.log(shares)
        labels = tf.convert_to_tensor(y_true)
        if labels.dtype.is_floating and labels.shape.rank == 2:
            loss = _soft_cross_entropy(labels, logits)
        else:
            ids = inputs.class_ids_of(labels, logits)
            loss = _cross_entropy(ids, logits)
        if not self.label_smoothing:
            return loss
        smoothing = self.label_smoothing  # the loss is linear in the weights
        log_sums = tf.reduce_logsumexp(logits, axis=2)  # [B, V]
        uniform_loss = log_sums - tf.reduce_mean(logits, axis=2)  # [B, V]
        uniform_loss = tf.reduce_mean(uniform_loss, axis=1)  # [B]
        return (1 - smoothing) * loss + smoothing * uniform_loss


@keras.utils.register_keras_serializable(package="supcon_tf")
@dataclasses.dataclass(eq=False)
class BinaryCrossEntropyLoss(inputs.Loss):
    """Cross-entropy of every label by itself, for samples of several labels.

      L = -sum_c ( y_c log s(l_c) + (1 - y_c) log(1 - s(l_c)) )

    s is the logistic function, and labels [batch, classes] are 0 or 1. It is a
    sum, so that the gradient of a logit is that of softmax cross-entropy: the
    distance of probability and label.

    Args:
      reduction: of Keras, as is `name`.

    Example:
      >>> import numpy as np
      >>> from supcon_tf import losses
      >>> logits = np.zeros([1, 2, 3])  # an image, two views, three labels
      >>> loss = losses.BinaryCrossEntropyLoss()
      >>> round(float(loss(np.array([[1, 0, 1]]), logits)), 2)  # 3 log 2
      2.08

    Raises:
      ValueError: `y_pred` is not [batch, views, classes] of floats, or the
        labels are not [batch, classes].
    """

    reduction: str = keras.losses.Reduction.AUTO
    name: str = "binary_cross_entropy_loss"

    @inputs.nan_if_broken
    def call(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        logits = inputs.to_views(y_pred, "logits")
        labels = positive_weights.canonical(y_true, "any")
        inputs.check_shape("labels", labels, [logits.shape[0], logits.shape[2]])
        labels = tf.broadcast_to(labels[:, tf.newaxis], tf.shape(logits))
        losses = tf.nn.sigmoid_cross_entropy_with_logits(labels, logits)
        return tf.reduce_mean(tf.reduce_sum(losses, axis=2), axis=1)


@keras.utils.register_keras_serializable(package="supcon_tf")
@dataclasses.dataclass(eq=False)
class MaxMarginLoss(inputs.Loss):
    """Large-margin softmax on cosines, additive: AM-Softmax, CosFace.

      L = -log( e^{s (c_y - m)} / (e^{s (c_y - m)} + sum_{j != y} e^{s c_j}) )

    c_j is the cosine between representation and the weights of class j. The
    max-margin column of Table 2 cites the L-Softmax of Liu et al. 2016, whose
    margin multiplies the angle, |W| |r| cos(m theta): it needs a piecewise
    continuation beyond pi / m and a mixing weight that is annealed to train
    at all. This is its successor without either: the margin is subtracted
    from the cosine.

    Args:
      margin: m, not negative, in cosine; 0 is a softmax of scaled cosines.
      scale: s, positive, no unit; logits are in -s ... s.
      reduction: of Keras, as is `name`.

    Example:
      >>> import numpy as np
      >>> from supcon_tf import losses
      >>> cosines = np.array([[0.5, 0.15]])  # ahead by the margin, no more
      >>> loss = losses.MaxMarginLoss(margin=0.35)
      >>> round(float(loss([0], cosines)), 2)  # log 2
      0.69

    Raises:
      ValueError: `margin` is negative, `scale` not positive, or `y_pred` not
        [batch, views, classes] of floats.

    Reference: Wang F. et al. 2018, https://arxiv.org/abs/1801.05599, Eq. 6
    (s = 30, m = 0.35); Wang H. et al. 2018, https://arxiv.org/abs/1801.09414.
    """

    margin: float = 0.35
    scale: float = 30.0
    reduction: str = keras.losses.Reduction.AUTO
    name: str = "max_margin_loss"

    def __post_init__(self) -> None:
        super().__post_init__()
        inputs.require_at_least_0(margin=self.margin)
        inputs.require_positive(scale=self.scale)

    @inputs.nan_if_broken
    def call(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        cosines = inputs.to_views(y_pred, "cosines")
        ids = inputs.class_ids_of(y_true, cosines)
        is_label = tf.one_hot(ids, cosines.shape[2])[:, tf.newaxis]  # [B, 1, C]
        logits = self.scale * (cosines - self.margin * is_label)  # [B, V, C]
        return _cross_entropy(ids, logits)


def _cross_entropy(ids: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    """Returns the cross-entropy of logits [B, V, C], mean over views, [B]."""
    ids = tf.repeat(ids[:, tf.newaxis], logits.shape[1], axis=1)  # [B, V]
    return tf.reduce_mean(
        tf.nn.sparse_softmax_cross_entropy_with_logits(ids, logits), axis=1
    )


def _soft_cross_entropy(labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    """Returns the cross-entropy [B] for weights [B, C] of the classes."""
    inputs.check_shape("labels", labels, [logits.shape[0], logits.shape[2]])
    labels = tf.cast(labels, tf.float32)
    is_share = tf.abs(tf.reduce_sum(labels, axis=1) - 1.0) < 1e-3  # [B]
    is_share &= tf.reduce_all(labels >= 0, axis=1)
    rule = "rows of soft `labels` must sum to 1, of shares of at least 0"
    labels = inputs.checked(labels, is_share, rule)
    labels = tf.repeat(labels[:, tf.newaxis], logits.shape[1], axis=1)
    return tf.reduce_mean(
        tf.nn.softmax_cross_entropy_with_logits(labels, logits), axis=1
    )
