"""The losses that the paper compares SupCon with: thin Keras classes."""

from __future__ import annotations

import dataclasses

import numpy as np
import tensorflow as tf

from supcon_tf import defaults, exceptions
from supcon_tf.keras_2 import keras
from supcon_tf.losses import inputs, log_space, supcon


@keras.utils.register_keras_serializable(package="supcon_tf")
@dataclasses.dataclass(eq=False)
class SimCLRLoss(inputs.Loss):
    """Self-supervised loss of SimCLR, Eq. 1: SupCon with ids for labels.

      L_i = -log( exp(z_i.z_j(i) / tau) / sum_{a in A(i)} exp(z_i.z_a / tau) )

    j(i) is the other view of the same sample; with more than two views the
    loss is the mean over the other views (Eq. 2). `y_true` is ignored: every
    sample of the global batch is a class of its own. `y_pred` are projections
    [batch, views, dim] of this replica, at least two views; the loss is
    [batch] float32, nats (times tau where scaled).

    Args:
      temperature: tau, positive, no unit.
      scale_by_temperature: multiply by tau, see `supcon_loss`.
      normalize: L2-normalise the projections, see `SupConLoss`.
      cross_replica: contrast with the views of all replicas.
      reduction: of Keras, as is `name`.

    Example:
      >>> import numpy as np
      >>> from supcon_tf import losses
      >>> projections = np.eye(2)[[0, 0, 1, 1]].reshape(2, 2, 2)
      >>> loss = losses.SimCLRLoss(temperature=1.0)  # whatever the labels
      >>> round(float(loss([0, 0], projections)), 2)  # log(1 + 2 / e)
      0.55

    Raises:
      ValueError: an option does not exist, or there is only one view.

    Reference: https://arxiv.org/abs/2004.11362, Eq. 1; Suppl. Eq. 20.
    """

    temperature: float = defaults.TEMPERATURE
    scale_by_temperature: bool = True
    normalize: bool = True
    cross_replica: bool = True
    reduction: str = keras.losses.Reduction.AUTO
    name: str = "simclr_loss"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._supcon  # noqa: B018 - which checks the arguments

    @property
    def _supcon(self) -> supcon.SupConLoss:
        """The loss of these attributes, which a user may have set."""
        return supcon.SupConLoss(
            self.temperature,
            scale_by_temperature=self.scale_by_temperature,
            normalize=self.normalize,
            cross_replica=self.cross_replica,
        )

    @inputs.nan_if_broken
    def call(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        z = inputs.to_batch(y_pred)
        exceptions.require(
            z.shape[1] >= 2,
            "`projections` must have at least 2 views, the positives of each "
            "other",
            f"shape {z.shape}",
        )
        return self._supcon.call(inputs.sample_ids(z), z)


@keras.utils.register_keras_serializable(package="supcon_tf")
@dataclasses.dataclass(eq=False)
class NPairsLoss(inputs.Loss):
    """N-pairs loss as the paper has it, Suppl. Eq. 21.

      L_i = -log( exp(z_i.z_k(i)) / sum_{a in A(i)} exp(z_i.z_a) )

    A(i) is every row but i; k(i) is one row of another sample of the same
    class. The paper does not say which: here the same view of the next such
    sample in cyclic batch order. So the own other views are negatives, and an
    anchor whose class has no other sample has loss 0. There is no temperature
    and no normalisation. `y_true` are labels as in `supcon_loss`, `y_pred`
    projections [batch, views, dim] of this replica, unit length along dim;
    the loss is [batch] float32, nats, averaged over views.

    Not `tfa.losses.npairs_loss`: that is a scalar, has no A(i) (the diagonal
    of its square matrix is a positive, never the anchor itself), and shares
    the target among all equal labels. Sohn's N pairs (2016) are of N different
    classes and contrast an anchor with the positives of the other pairs only.

    Args:
      cross_replica: contrast with the views of all replicas.
      reduction: of Keras, as is `name`.

    Example:
      >>> import numpy as np
      >>> from supcon_tf import losses
      >>> projections = np.eye(2)[[0, 0, 1]]
      >>> values = losses.NPairsLoss(reduction="none")([5, 5, 6], projections)
      >>> [round(float(x), 3) for x in values]  # log(1 + 1 / e), the last alone
      [0.313, 0.313, 0.0]

    Reference: https://arxiv.org/abs/2004.11362, Suppl. Eq. 21.
    """

    cross_replica: bool = True
    reduction: str = keras.losses.Reduction.AUTO
    name: str = "n_pairs_loss"

    @inputs.nan_if_broken
    def call(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        # B samples of this replica, G of all, V views, A = B*V, M = G*V
        z = inputs.to_batch(y_pred)
        ids = inputs.class_ids_of(y_true, z)
        batch, views, dim = tf.shape(z)[0], z.shape[1], z.shape[2]
        global_z, global_ids = inputs.gather(self.cross_replica, z, ids)
        next_samples, has_positive = _next_in_class(ids, global_ids)
        rows = tf.reshape(global_z, [-1, dim])  # [M, D]
        anchors = rows[: batch * views]  # own samples come first
        logits = tf.matmul(anchors, rows, transpose_b=True)  # [A, M]
        logits = tf.linalg.set_diag(  # an anchor is no contrast of its own
            logits, tf.fill([batch * views], log_space.LOG_ZERO)
        )
        positive_rows = (  # [B, V], the same view of the next sample
            next_samples[:, tf.newaxis] * views + tf.range(views)
        )
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
            tf.reshape(positive_rows, [-1]), logits
        )
        losses = tf.reduce_mean(tf.reshape(losses, [batch, views]), axis=1)
        return log_space.zero_unless(has_positive, losses)


@keras.utils.register_keras_serializable(package="supcon_tf")
@dataclasses.dataclass(eq=False)
class TripletLoss(inputs.Loss):
    """Triplet loss with mining, on squared distances.

      L_ap = max(0, |z_a - z_p|^2 - |z_a - z_n|^2 + margin)

    Rows are all views, each with the label of its sample, so that the own
    other views are positives. "semi_hard" (FaceNet) takes for every pair a, p
    the nearest n that is farther than p, or the farthest n where there is
    none, and averages over pairs; "hard" takes for every a its farthest p and
    nearest n, and averages over the a that have a p. The contrastive loss of
    one positive and one negative is, to first order, this with margin 2 * tau
    (Suppl. Sec. 4): 0.2, FaceNet's margin too, at tau 0.1.

    Every sample of [batch] gets the mean, so that Keras' reduction returns it;
    sample weights have no meaning. Without a pair of one class, or without a
    second class, the loss is 0. Memory holds matrices of M^2 for M rows.
    `y_true` are labels as in `supcon_loss`, `y_pred` projections [batch, views,
    dim] of this replica, unit length along dim.

    Args:
      margin: positive, in squared distance, which is at most 4.
      mining: "semi_hard" or "hard".
      cross_replica: mine among the views of all replicas; each replica then
        holds the matrices of the global batch.
      reduction: of Keras, as is `name`.

    Example:
      >>> import numpy as np
      >>> from supcon_tf import losses
      >>> loss = losses.TripletLoss(margin=0.2, mining="hard")
      >>> projections = np.eye(2)[[0, 0, 1, 1]]
      >>> round(float(loss([0, 0, 1, 1], projections)), 3)  # 0 - 2 + 0.2
      0.0
      >>> round(float(loss([0, 1, 0, 1], projections)), 3)  # 2 - 0 + 0.2
      2.2

    Raises:
      ValueError: `margin` is not positive or `mining` is unknown.

    Reference: Schroff et al. 2015, https://arxiv.org/abs/1503.03832 (semi-
    hard); Hermans et al. 2017, https://arxiv.org/abs/1703.07737 (hard).
    """

    margin: float = 0.2
    mining: str = "semi_hard"
    cross_replica: bool = True
    reduction: str = keras.losses.Reduction.AUTO
    name: str = "triplet_loss"

    def __post_init__(self) -> None:
        super().__post_init__()
        inputs.require_positive(margin=self.margin)
        exceptions.require_one_of(_MINERS, "mining", self.mining)

    @inputs.nan_if_broken
    def call(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        z = inputs.to_batch(y_pred)
        batch, views, dim = tf.shape(z)[0], z.shape[1], z.shape[2]
        ids = inputs.class_ids_of(y_true, z)
        z, ids = inputs.gather(self.cross_replica, z, ids)
        rows = tf.reshape(z, [-1, dim])  # [M, D]
        ids = tf.repeat(ids, views)  # [M]
        loss = _MINERS[self.mining](ids, rows, self.margin)  # []
        # Mining passes over a NaN, whose gradient reaches every weight.
        is_finite = tf.reduce_all(tf.math.is_finite(rows))
        return tf.fill([batch], tf.where(is_finite, loss, np.nan))


def _hard(ids: tf.Tensor, rows: tf.Tensor, margin: float) -> tf.Tensor:
    """Returns the mean over anchors [], of ids [M] and rows [M, dim]."""
    distances = _squared_distances(rows)  # [M, M]
    same_class = ids[:, tf.newaxis] == ids  # [M, M]
    farthest = tf.reduce_max(tf.where(same_class, distances, 0.0), axis=1)
    nearest = tf.reduce_min(tf.where(same_class, np.inf, distances), axis=1)
    losses = tf.maximum(farthest - nearest + margin, 0.0)  # [M]
    # Not of an anchor to itself, for which `farthest` is 0.
    sizes = tf.reduce_sum(tf.cast(same_class, tf.float32), axis=1)  # [M]
    has_positive = sizes > 1.0
    return tf.math.divide_no_nan(
        tf.reduce_sum(tf.where(has_positive, losses, 0.0)),
        tf.reduce_sum(tf.cast(has_positive, tf.float32)),
    )


def _semi_hard(ids: tf.Tensor, rows: tf.Tensor, margin: float) -> tf.Tensor:
    """Returns the mean over pairs [], of ids [M] and rows [M, dim]."""
    distances = _squared_distances(rows)  # [M, M]
    same_class = ids[:, tf.newaxis] == ids  # [M, M]
    negatives = tf.sort(tf.where(same_class, np.inf, distances), axis=1)
    count = tf.reduce_sum(tf.cast(~same_class, tf.int32), axis=1, keepdims=True)
    # The rank of the nearest negative that is farther than the positive; where
    # there is none, that of the farthest negative.
    rank = tf.searchsorted(negatives, distances, side="right")  # [M, M]
    rank = tf.minimum(rank, tf.maximum(count - 1, 0))
    negative_distances = tf.gather(negatives, rank, batch_dims=1)  # [M, M]
    losses = tf.maximum(distances - negative_distances + margin, 0.0)
    is_pair = tf.linalg.set_diag(same_class, tf.zeros_like(ids, tf.bool))
    return tf.math.divide_no_nan(
        tf.reduce_sum(tf.where(is_pair, losses, 0.0)),
        tf.reduce_sum(tf.cast(is_pair, tf.float32)),
    )


_MINERS = {"semi_hard": _semi_hard, "hard": _hard}


def _squared_distances(rows: tf.Tensor) -> tf.Tensor:
    """Returns the distances of rows [M, dim], [M, M], 0 on the diagonal."""
    squares = tf.reduce_sum(rows**2, axis=1)  # [M]
    products = tf.matmul(rows, rows, transpose_b=True)  # [M, M]
    distances = squares[:, tf.newaxis] + squares - 2.0 * products
    distances = tf.maximum(distances, 0.0)  # rounding may go below
    return tf.linalg.set_diag(distances, tf.zeros_like(squares))


def _next_in_class(
    ids: tf.Tensor, global_ids: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the next sample of the same class, in cyclic order.

    Takes ids [B], the first of the ids [G] of all replicas. Returns [B] int32,
    indices among all samples, and [B] bool, whether there is such a sample.
    """
    positions = tf.range(tf.size(ids))[:, tf.newaxis]  # [B, 1]
    num_samples = tf.size(global_ids)
    offsets = tf.range(num_samples) - positions  # [B, G]
    steps = tf.math.floormod(offsets, num_samples)  # [B, G], forwards
    same_class = (ids[:, tf.newaxis] == global_ids) & (steps > 0)
    steps = tf.where(same_class, steps, num_samples)
    next_samples = tf.argmin(steps, axis=1, output_type=tf.int32)
    return next_samples, tf.reduce_any(same_class, axis=1)
