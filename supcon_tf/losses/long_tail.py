"""Contrastive losses with a learned centre for every class, for long tails.

Rows are the views of all samples. The centres follow them, as contrasts that
are no anchors, so that every class is in every batch. Both losses
are dense: [A, M] matrices of A rows of this replica and M rows and centres.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from supcon_tf import defaults, exceptions
from supcon_tf.keras_2 import keras
from supcon_tf.losses import inputs, log_space


class _Pairs(NamedTuple):
    """Pairs of A anchors of a replica and M contrasts: all rows, then centres.

    Attributes:
      logits: [A, M] float32.
      positive: [A, M] bool, True for other columns of the anchor's class.
      contrasted: [A, M] bool, True for all columns but the anchor itself.
      is_centre: [M] bool, True for centres.
      class_sizes: [M] float32, columns of the class of a column.
    """

    logits: tf.Tensor
    positive: tf.Tensor
    contrasted: tf.Tensor
    is_centre: tf.Tensor
    class_sizes: tf.Tensor


@dataclasses.dataclass(eq=False)
class _CentreLoss(inputs.Loss):
    """A loss with centres; `y_true` are ids, 0..classes-1, or one-hot."""

    _PART = "centres"

    centres: keras.layers.Layer | None = None
    temperature: float = defaults.TEMPERATURE
    scale_by_temperature: bool = True
    cross_replica: bool = True
    reduction: str = keras.losses.Reduction.AUTO
    name: str = "loss_with_centres"

    def __post_init__(self) -> None:
        super().__post_init__()
        inputs.require_positive(temperature=self.temperature)
        exceptions.require(
            self.centres is not None, "`centres` must be given", None
        )

    @inputs.nan_if_broken
    def call(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        z = inputs.normalized(inputs.to_batch(y_pred))
        batch, views, dim = tf.shape(z)[0], *z.shape[1:]
        exceptions.require(
            hasattr(self.centres, "centres"),
            "`centres` must be built, by the model that has them as a layer",
            f"a {type(self.centres).__name__} without weights",
        )
        centres = inputs.normalized(tf.cast(self.centres.centres, tf.float32))
        num_classes = centres.shape[0]
        ids = inputs.class_indices(y_true, num_classes, z)
        global_z, global_ids = inputs.gather(self.cross_replica, z, ids)
        rows = tf.reshape(global_z, [-1, dim])  # this replica's come first
        columns = tf.concat([rows, centres], axis=0)  # [M, D]
        row_classes = tf.repeat(global_ids, views)
        column_classes = tf.concat(  # [M]
            [row_classes, tf.range(num_classes, dtype=tf.int64)], axis=0
        )
        anchors = tf.range(batch * views)  # [A], indices of rows
        logits = tf.matmul(  # [A, M]
            rows[: batch * views], columns, transpose_b=True
        )
        anchor_classes = row_classes[: batch * views]
        is_same_class = anchor_classes[:, tf.newaxis] == column_classes
        indices = tf.range(tf.size(column_classes))  # [M]
        is_centre = indices >= tf.size(row_classes)  # [M]
        is_contrast = anchors[:, tf.newaxis] != indices  # [A, M]
        class_sizes = tf.math.unsorted_segment_sum(
            tf.ones_like(column_classes, tf.float32),
            column_classes,
            num_classes,
        )
        pairs = _Pairs(
            logits / self.temperature,
            is_same_class & is_contrast,
            is_contrast,
            is_centre,
            tf.gather(class_sizes, column_classes),
        )
        losses = tf.reshape(self._row_losses(pairs), [batch, views])
        scale = self.temperature if self.scale_by_temperature else 1.0
        return scale * tf.reduce_mean(losses, axis=1)

    def _row_losses(self, pairs: _Pairs) -> tf.Tensor:
        """Returns the losses of the anchors, [A]."""
        raise NotImplementedError


@keras.utils.register_keras_serializable(package="supcon_tf")
@dataclasses.dataclass(eq=False)
class BalancedSupConLoss(_CentreLoss):
    """Balanced contrastive loss (BCL) of Zhu et al. 2022.

      L_i = -1/|P(i)| sum_{p in P(i)} log( exp(z_i.z_p / tau) / D_i )
      D_i = sum_c 1/|B_c| sum_{k in B_c} exp(z_i.z_k / tau)

    B_c are the rows of class c and its centre, without i: each class counts the
    same in the denominator, however many rows it has (class-averaging), and
    every class is there (class-complement). P(i) are the others of the own.

    Args:
      centres: a layer whose `centres` are [classes, dim] floats, of any length,
        such as `models.ClassCentres`; of the model that trains.
      temperature: tau, positive, no unit.
      scale_by_temperature: multiply by tau, see `SupConLoss`.
      cross_replica: contrast with the views of all replicas.
      reduction: of Keras, as is `name`.

    Example:
      >>> import numpy as np
      >>> from supcon_tf import losses, models
      >>> centres = models.ClassCentres(num_classes=2, dim=2)
      >>> centres.build(None)
      >>> centres.set_weights([np.eye(2)])
      >>> loss = losses.BalancedSupConLoss(centres, 1.0, reduction="none")
      >>> values = loss([0, 0, 0, 1], np.eye(2)[[0, 0, 0, 1]])
      >>> [round(float(x), 3) for x in values]  # log(1 + 1 / e), rare or not
      [0.313, 0.313, 0.313, 0.313]

    Raises:
      InvalidArgumentError: a label has no centre.

    Reference: https://arxiv.org/abs/2207.09052, Eq. 5 and 7.
    """

    name: str = "balanced_supcon_loss"

    def _row_losses(self, pairs: _Pairs) -> tf.Tensor:
        weights = tf.cast(pairs.positive, tf.float32)
        # |B_c| of a column, [A, M]: a class without its anchor has one less.
        sizes = pairs.class_sizes - weights
        logits = pairs.logits - tf.math.log(sizes)
        log_d = log_space.log_sum_exp(logits, pairs.contrasted)
        return log_d - log_space.weighted_mean(pairs.logits, weights)


@keras.utils.register_keras_serializable(package="supcon_tf")
@dataclasses.dataclass(eq=False)
class PaCoLoss(_CentreLoss):
    """Parametric contrastive loss (PaCo) of Cui et al. 2021.

      L_i = -1/W sum_{p in P(i), c_y} w(p) log( exp(s_ip) / D_i )
      D_i = sum_{k in A(i), C} exp(s_ik)

    s is z_i.z_k / tau; w is alpha of a row and 1 of the centre c_y of the own
    class, W their sum; D takes all other rows and all centres.
    With class shares pi, a centre's s has log pi added, as in their code. There
    centres take the features before the projection, here the projections, and a
    queue adds further rows, here none does.

    Args:
      centres: as of `BalancedSupConLoss`.
      temperature: tau, positive, no unit.
      scale_by_temperature: multiply by tau, see `SupConLoss`.
      cross_replica: contrast with the views of all replicas.
      alpha: weight of a positive row, positive; 0.05 in their code.
      class_shares: [classes] positive numbers, pi; empty for none.
      reduction: of Keras, as is `name`.

    Example:
      >>> import numpy as np
      >>> from supcon_tf import losses, models
      >>> centres = models.ClassCentres(num_classes=2, dim=2)
      >>> centres.build(None)
      >>> centres.set_weights([np.eye(2)])
      >>> loss = losses.PaCoLoss(centres, temperature=1.0)
      >>> alone = np.eye(2)[:1]  # but for its centre: log(1 + 1 / e)
      >>> round(float(loss([0], alone)), 3)
      0.313

    Raises:
      ValueError: `class_shares` are not one for each centre, or not positive.
      InvalidArgumentError: a label has no centre.

    Reference: https://arxiv.org/abs/2107.12028, Eq. 5 and 6.
    """

    alpha: float = 0.05
    class_shares: Sequence[float] = ()
    name: str = "paco_loss"

    def __post_init__(self) -> None:
        super().__post_init__()
        inputs.require_positive(alpha=self.alpha)
        exceptions.require(
            all(share > 0 for share in self.class_shares),
            "`class_shares` must be positive",
            self.class_shares,
        )

    def _row_losses(self, pairs: _Pairs) -> tf.Tensor:
        logits = pairs.logits
        if len(self.class_shares):
            num_classes = self.centres.centres.shape[0]
            exceptions.require(
                len(self.class_shares) == num_classes,
                f"`class_shares` must be one for each of {num_classes} centres",
                len(self.class_shares),
            )
            log_shares = tf.math.log(tf.constant(self.class_shares, tf.float32))
            num_rows = tf.size(pairs.is_centre) - num_classes
            logits += tf.pad(log_shares, [[num_rows, 0]])  # centres alone
        weights = tf.where(pairs.is_centre, 1.0, self.alpha)
        weights *= tf.cast(pairs.positive, tf.float32)  # [A, M]
        log_d = log_space.log_sum_exp(logits, pairs.contrasted)
        return log_d - log_space.weighted_mean(logits, weights)
