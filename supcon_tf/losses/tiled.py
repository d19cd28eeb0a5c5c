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
from collections.abc import Callable, Sequence

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
    z = inputs.as_views(projections, "projections")
    if labels is None:
        labels = inputs.sample_ids(z)
    labels = positive_weights.canonical(labels, positives)
    losses = tiled_losses(
        z,
        [labels],
        temperature=temperature,
        formulation=formulation,
        anchor_views=anchor_views,
        positives=positives,
        scale_by_temperature=scale_by_temperature,
        tile_rows=tile_rows,
        unit_length=unit_length,
        cross_replica=cross_replica,
    )
    return losses[:, 0]


def tiled_losses(
    z: tf.Tensor,
    labels: Sequence[tf.Tensor],
    *,
    temperature: float,
    formulation: str,
    anchor_views: str,
    positives: str | None,
    scale_by_temperature: bool,
    tile_rows: int | None,
    unit_length: bool,
    cross_replica: bool,
) -> tf.Tensor:
    """`tiled_supcon_loss` by several labels of the same samples, [B, L].

    Takes z [B, V, D] float32 and L labels as `positive_weights.canonical`
    returns them. What all pairs take is computed once.
    """
    inputs.check_options(temperature, formulation, "all", anchor_views)
    exceptions.require(
        tile_rows is None or tile_rows >= 1,
        "`tile_rows` must be at least 1",
        tile_rows,
    )
    for own in labels:
        inputs.check_shape("labels", own, [z.shape[0], *own.shape[1:]])
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
    )  # [B, V, L]
    if anchor_views == "first":
        losses = losses[:, :1]
    scale = temperature if scale_by_temperature else 1.0
    return scale * tf.reduce_mean(losses, axis=1)


@dataclasses.dataclass(frozen=True)
class _Batch:
    """The batches of all replicas, S samples, this replica's B first.

    Attributes:
      projections: [S, V, D] float32, without gradient.
      positives: by each of the labels, how much samples weigh as positives of
        each other.
      temperature: tau.
      alone: whether S is B: there are no other replicas.
    """

    projections: tf.Tensor
    positives: list[positive_weights.Weights]
    temperature: float
    alone: bool


# A part of the loss [B, V], and the function from its weights [B, V], the
# gradient of whatever comes after, to that with respect to z [B, V, D].
_Part = tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]


def _gather(
    z: tf.Tensor,
    labels: Sequence[tf.Tensor],
    kind: str | None,
    temperature: float,
    cross_replica: bool,
) -> _Batch:
    """Collects what an anchor is contrasted with."""
    alone = not cross_replica or distribute.replicas_in_sync() == 1
    all_z, *every = inputs.gather(not alone, tf.stop_gradient(z), *labels)
    positives = [positive_weights.of_labels(x, kind) for x in every]
    return _Batch(all_z, positives, temperature, alone)


def _losses(
    z: tf.Tensor, batch: _Batch, formulation: str, tile_rows: int | None
) -> tf.Tensor:
    """L_i [B, V, L] of all rows, 0 of anchors without positives."""
    own = tf.stop_gradient(z)
    count, views, dim = tf.shape(z)[0], *z.shape[1:]
    # [B, D + 1], what the samples of P(i) add up to, and their weight
    values = tf.reduce_sum(batch.projections, axis=1)
    values = tf.pad(values, [[0, 0], [0, 1]], constant_values=1.0)
    sums = [positives.sums(values, count) for positives in batch.positives]
    totals = [views * x[:, -1:] - 1.0 for x in sums]  # |P(i)| [B, 1]
    tiling = None
    if tile_rows is None:
        plus = tiles_unrolled.log_sum_exp(own, batch.temperature)
    else:
        tiling = tiles_looped.make_tiling(
            tf.reshape(own, [-1, dim]),
            tf.reshape(batch.projections, [-1, dim]),
            temperature=batch.temperature,
            tile_rows=tile_rows,
            symmetric=batch.alone,
        )
        plus = _looped(own, batch, tiling)
    minus = []
    for positives, of_level, total in zip(
        batch.positives, sums, totals, strict=True
    ):
        if formulation == "out":
            others = of_level[:, tf.newaxis, :-1] - own
            minus.append(_mean_positive(own, others, batch, positives, total))
        else:  # log( 1/|P(i)| sum over P(i) of exp(z_i.z_p / tau) ), Eq. 3
            of_positives = tiling.of_positives(positives, views)
            lse, pull_back = _looped(own, batch, of_positives)
            logs = tf.math.log(tf.where(total > 0, total, 1.0))
            minus.append((lse - logs, pull_back))
    # [B, 1, L], of anchors with positives
    counted = tf.cast(tf.stack(totals, axis=-1) > 0, tf.float32)

    @tf.custom_gradient
    def differences(z: tf.Tensor) -> tuple:
        del z  # the parts are computed from it already
        value = plus[0][..., tf.newaxis] - tf.stack([x[0] for x in minus], -1)

        def gradient(weights: tf.Tensor) -> tf.Tensor:
            weights = weights * counted
            by_labels = tf.unstack(weights, axis=-1)
            pulled = [x[1](w) for x, w in zip(minus, by_labels, strict=True)]
            return plus[1](tf.reduce_sum(weights, -1)) - tf.add_n(pulled)

        # Not times 0: the difference of nothing may be anything.
        return tf.where(counted > 0, value, 0.0), gradient

    return differences(z)


def _looped(
    z: tf.Tensor,
    batch: _Batch,
    tiling: tiles_looped.Tiling,
) -> _Part:
    """Log-sum-exp over what a tiling has, by tiles_looped.py."""
    shape = tf.shape(z)  # [B, V, D]
    lse = tiles_looped.log_sum_exp(tiling)
    lse = tf.reshape(lse, shape[:2])

    def gradient(weights: tf.Tensor) -> tf.Tensor:
        of_all = inputs.gather(not batch.alone, lse, weights)
        of_rows = [tf.reshape(numbers, [-1]) for numbers in of_all]
        sums = tiles_looped.gradient(tiling, *of_rows)
        return tf.reshape(sums, shape) / batch.temperature

    return lse + tiling.shift, gradient


def _mean_positive(
    z: tf.Tensor,
    others: tf.Tensor,
    batch: _Batch,
    positives: positive_weights.Weights,
    total: tf.Tensor,
) -> _Part:
    """Weighted mean of z_i.z_p / tau over P(i), which Eq. 2 subtracts.

    `others` [B, V, D] is the sum of z_p over P(i), `total` [B, 1] its weight.
    """
    own = tf.shape(z)[0]
    share = tf.math.divide_no_nan(1.0, total * batch.temperature)

    def gradient(weights: tf.Tensor) -> tf.Tensor:
        weights = weights * share  # [B, V]
        (all_weights,) = inputs.gather(not batch.alone, weights)  # [S, V]
        weighted = all_weights[..., tf.newaxis] * batch.projections
        weighted = tf.reduce_sum(weighted, axis=1)
        weighted = positives.sums(weighted, own)[:, tf.newaxis]
        weights = weights[..., tf.newaxis]
        return weights * others + weighted - weights * z

    return share * tf.reduce_sum(z * others, axis=2), gradient
