"""The supervised contrastive loss in memory that grows linearly.

Only the log-sum-exp over A(i) needs all pairs, and it is summed tile by tile,
in the gradient once more. What the positives of an anchor add up to follows
from the sum of its class: sum_{p in P(i)} z_p = C_y(i) - z_i. Of several labels
it is a sum of samples, by some rows of their weights at a time.

Two schedules of the same tiles. Unrolled, the fastest, keeps half the matrix
for the gradient; it is used while that takes at most 256 MiB
(`tiles_unrolled.MEMORY`), for "out", on one replica, with a static batch, where
`unit_length` and a temperature of at least 0.025 bound the logits. Looped is
everything else: a few tiles in memory, and where logits are too large for one
shift (checked at run time) each row is shifted by its own maximum.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import tensorflow as tf

from supcon_tf import defaults, distribute, exceptions
from supcon_tf.losses import (
    inputs,
    positive_weights,
    tiles_looped,
    tiles_unrolled,
)

_TILE_ROWS = 512  # 1 MiB of logits, which stays in the cache of a core


def tiled_supcon_loss(
    projections: tf.Tensor,
    labels: tf.Tensor | None = None,
    *,
    temperature: float = defaults.TEMPERATURE,
    formulation: str = "out",
    anchor_views: str = "all",
    positives: str | None = None,
    scale_by_temperature: bool = True,
    tile_rows: int | None = None,
    unit_length: bool = False,
    cross_replica: bool = False,
) -> tf.Tensor:
    """`supcon_loss`, the same value and gradient, without any [A, M] matrix.

      projections: [batch, views, dim] or [batch, dim], any float; of this
        replica. Computed in float32, not normalised.
      labels: as in `supcon_loss`; the denominator is "all". The options
        without a line here are `SupConLoss`'s.
      tile_rows: rows of a tile, and looped; None chooses.
      unit_length: a promise that all projections have length 1.
      cross_replica: contrast with the views of all replicas. The gradient
        then exchanges a few numbers per row, no projections.

    Returns [batch] float32, nats (times tau where scaled), the mean over views.
    Raises ValueError for a shape, dtype or option that is none of these.
    """
    inputs.check_options(temperature, formulation, "all", anchor_views)
    exceptions.require(
        tile_rows is None or tile_rows >= 1,
        "`tile_rows` must be at least 1",
        tile_rows,
    )
    z = inputs.as_views(projections, "projections")
    if labels is None:
        labels = inputs.sample_ids(z)
    labels = positive_weights.canonical(labels, positives)
    inputs.check_shape("labels", labels, [z.shape[0], *labels.shape[1:]])
    batch = _gather(z, labels, positives, temperature, cross_replica)
    unrolls = (
        tile_rows is None
        and unit_length
        and tiles_looped.fits_one_shift(1.0 / temperature)
        and formulation == "out"
        and batch.alone
        and z.shape[0] is not None
        and tiles_unrolled.is_affordable(z.shape[0] * z.shape[1])
    )
    losses = _losses(
        z, batch, formulation, None if unrolls else tile_rows or _TILE_ROWS
    )
    losses = tf.where(batch.total > 0, losses, 0.0)  # [B, V]
    if anchor_views == "first":
        losses = losses[:, :1]
    scale = temperature if scale_by_temperature else 1.0
    return scale * tf.reduce_mean(losses, axis=1)


@dataclasses.dataclass(frozen=True)
class _Batch:
    """The batches of all replicas, S samples, this replica's B first.

    Attributes:
      projections: [S, V, D] float32, without gradient.
      positives: how much samples weigh as positives of each other.
      total: [B, 1] float32, |P(i)| of the rows of a sample, or their weight.
      temperature: tau.
      alone: whether S is B: there are no other replicas.
    """

    projections: tf.Tensor
    positives: positive_weights.Weights
    total: tf.Tensor
    temperature: float
    alone: bool


# A part of the loss [B, V], and the function from its weights [B, V], the
# gradient of whatever comes after, to that with respect to z [B, V, D].
_Part = tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]


def _gather(
    z: tf.Tensor,
    labels: tf.Tensor,
    kind: str | None,
    temperature: float,
    cross_replica: bool,
) -> _Batch:
    """Collects what an anchor is contrasted with."""
    alone = not cross_replica or distribute.replicas_in_sync() == 1
    all_z, all_labels = inputs.gather(not alone, tf.stop_gradient(z), labels)
    positives = positive_weights.of_labels(all_labels, kind)
    ones = tf.ones([tf.shape(all_z)[0], 1])
    total = z.shape[1] * positives.sums(ones, tf.shape(z)[0]) - 1.0
    return _Batch(all_z, positives, total, temperature, alone)


def _losses(
    z: tf.Tensor, batch: _Batch, formulation: str, tile_rows: int | None
) -> tf.Tensor:
    """L_i [B, V] of all rows, before anchors without positives are dropped."""
    own = tf.stop_gradient(z)
    if tile_rows is None:
        plus = tiles_unrolled.log_sum_exp(own, batch.temperature)
        minus = _mean_positive(own, batch)
    else:
        views, dim = z.shape[1:]
        tiling = tiles_looped.make_tiling(
            tf.reshape(own, [-1, dim]),
            tf.reshape(batch.projections, [-1, dim]),
            tf.repeat(batch.positives.marks, views, axis=0),
            batch.positives,
            temperature=batch.temperature,
            tile_rows=tile_rows,
            symmetric=batch.alone,
        )
        plus = _looped(own, batch, tiling)
        if formulation == "out":
            minus = _mean_positive(own, batch)
        else:  # log( 1/|P(i)| sum over P(i) of exp(z_i.z_p / tau) ), Eq. 3
            lse, pull_back = _looped(own, batch, tiling, positives_only=True)
            total = tf.where(batch.total > 0, batch.total, 1.0)
            minus = lse - tf.math.log(total), pull_back

    @tf.custom_gradient
    def difference(z: tf.Tensor) -> tuple:
        del z  # the parts are computed from it already
        return plus[0] - minus[0], lambda w: plus[1](w) - minus[1](w)

    return difference(z)


def _looped(
    z: tf.Tensor,
    batch: _Batch,
    tiling: tiles_looped.Tiling,
    positives_only: bool = False,
) -> _Part:
    """Log-sum-exp over A(i), or over P(i), by tiles_looped.py."""
    shape = tf.shape(z)  # [B, V, D]
    lse = tiles_looped.log_sum_exp(tiling, positives_only)
    lse = tf.reshape(lse, shape[:2])

    def gradient(weights: tf.Tensor) -> tf.Tensor:
        of_all = inputs.gather(not batch.alone, lse, weights)
        of_rows = [tf.reshape(numbers, [-1]) for numbers in of_all]
        sums = tiles_looped.gradient(tiling, *of_rows, positives_only)
        return tf.reshape(sums, shape) / batch.temperature

    return lse + tiling.shift, gradient


def _mean_positive(z: tf.Tensor, batch: _Batch) -> _Part:
    """Weighted mean of z_i.z_p / tau over P(i), which Eq. 2 subtracts."""
    own = tf.shape(z)[0]
    sums = batch.positives.sums(tf.reduce_sum(batch.projections, axis=1), own)
    others = sums[:, tf.newaxis] - z  # sum of z_p over P(i), [B, V, D]
    share = tf.math.divide_no_nan(1.0, batch.total * batch.temperature)

    def gradient(weights: tf.Tensor) -> tf.Tensor:
        weights = weights * share  # [B, V]
        (all_weights,) = inputs.gather(not batch.alone, weights)  # [S, V]
        weighted = all_weights[..., tf.newaxis] * batch.projections
        weighted = tf.reduce_sum(weighted, axis=1)
        weighted = batch.positives.sums(weighted, own)[:, tf.newaxis]
        weights = weights[..., tf.newaxis]
        return weights * others + weighted - weights * z

    return share * tf.reduce_sum(z * others, axis=2), gradient
