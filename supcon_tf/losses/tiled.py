"""The supervised contrastive loss in memory that grows linearly.

Only sums over all pairs need them, and they are summed tile by tile, in the
gradient once more. What the positives of an anchor add up to in "out" follows
from the sum of its class: sum_{p in P(i)} z_p = C_y(i) - z_i. Of several labels
it is a sum of samples, by some rows of their weights at a time.

Two schedules of the log-sum-exp over all of A(i). Unrolled, the fastest, keeps
half the matrix for the gradient; it is used while that takes at most 256 MiB
(`tiles_unrolled.MEMORY`), for "out", denominator "all", no cap, on one replica,
with a static batch, where `unit_length` and a temperature of at least 0.025
bound the logits. Looped is everything else: a few tiles in memory, and where
logits are too large for one shift (checked at run time) each row is shifted by
its own maximum. Where denominators or caps ask which pairs are positives, the
rows are sorted by class, so that only few tiles compare them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import tensorflow as tf

from supcon_tf import defaults, exceptions
from supcon_tf.losses import (
    contrasts,
    inputs,
    log_space,
    positive_weights,
    tiles_looped,
    tiles_positives,
    tiles_unrolled,
    tiling,
)

_TILE_ROWS = 768  # the fastest of 256 to 2,048, for 8,192 to 32,768 rows
_POSITIVES_ROWS = 128  # the smaller, the fewer pairs beside the positives


def tiled_supcon_loss(
    projections: tf.Tensor,
    labels: tf.Tensor | None = None,
    *,
    temperature: float = defaults.TEMPERATURE,
    formulation: str = "out",
    denominator: str = "all",
    anchor_views: str = "all",
    positives: str | None = None,
    positives_cap: int | None = None,
    positive_mask: tf.Tensor | None = None,
    scale_by_temperature: bool = True,
    tile_rows: int | None = None,
    unit_length: bool = False,
    cross_replica: bool = False,
) -> tf.Tensor:
    """`supcon_loss`, the same value and gradient, without any [A, M] matrix.

      projections: [batch, views, dim] or [batch, dim], any float; of this
        replica. Computed in float32, not normalised.
      labels, positive_mask: as in `supcon_loss`; the mask is [batch, batch],
        on one replica. The options without a line here are `SupConLoss`'s, a
        cap without `positives` or with "all".
      tile_rows: rows of a tile, and looped; None chooses.
      unit_length: a promise that all projections have length 1.
      cross_replica: contrast with the views of all replicas. The gradient
        then exchanges a few numbers per row, no projections.

    Example:
      >>> import numpy as np
      >>> from supcon_tf import losses
      >>> same = np.ones([512, 2, 1], np.float32)  # 1,024 rows
      >>> loss = losses.tiled_supcon_loss(same, np.arange(512) // 2)
      >>> round(float(loss[0]), 3), round(losses.chance_loss(1023, 0.1), 3)
      (0.693, 0.693)

    Returns [batch] float32, nats (times tau where scaled), the mean over views.
    Raises ValueError for a shape, dtype or option that is none of these.
    """
    z = inputs.as_views(projections, "projections")
    if positive_mask is not None:
        exceptions.require(
            labels is None and not cross_replica,
            "`positive_mask` must be without labels, and of one replica",
            "both",
        )
        labels = tf.cast(positive_mask, tf.float32)
        inputs.check_shape("positive_mask", labels, [z.shape[0]] * 2)
        positives = positive_weights.GIVEN
    else:
        if labels is None:
            labels = inputs.sample_ids(z)
        labels = positive_weights.canonical(labels, positives)
    losses = tiled_losses(
        z,
        [labels],
        temperature=temperature,
        formulation=formulation,
        denominator=denominator,
        anchor_views=anchor_views,
        positives=positives,
        positives_cap=positives_cap,
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
    denominator: str,
    anchor_views: str,
    positives: str | None,
    positives_cap: int | None,
    scale_by_temperature: bool,
    tile_rows: int | None,
    unit_length: bool,
    cross_replica: bool,
    queue: tuple[tf.Tensor, tf.Tensor, tf.Tensor] | None = None,
) -> tf.Tensor:
    """`tiled_supcon_loss` by several labels of the same samples, [B, L].

    Takes z [B, V, D] float32 and L labels as `positive_weights.canonical`
    returns them, and what `ProjectionQueue.rows` returns. What all pairs take
    is computed once.
    """
    inputs.check_options(temperature, formulation, denominator, anchor_views)
    inputs.static_views(z, positives_cap)
    exceptions.require(
        tile_rows is None or tile_rows >= 1,
        "`tile_rows` must be at least 1",
        tile_rows,
    )
    exceptions.require(
        positives in (None, "all") or positives_cap is None,
        f"`positives_cap` must be None in tiles with positives={positives!r}",
        positives_cap,
    )
    for own in labels:
        inputs.check_shape("labels", own, [z.shape[0], *own.shape[1:]])
    batch = contrasts.gather(z, labels, positives, queue, cross_replica)
    options = _Options(
        temperature,
        formulation,
        denominator,
        positives_cap,
        tile_rows or _TILE_ROWS,
        unrolls=tile_rows is None
        and unit_length
        and tiling.fits_one_shift(1.0 / temperature)
        and (formulation, denominator, positives_cap) == ("out", "all", None)
        and positives != positive_weights.GIVEN
        and batch.alone
        and queue is None
        and z.shape[0] is not None
        and tiles_unrolled.is_affordable(z.shape[0] * z.shape[1]),
    )
    losses = _losses(z, batch, options)  # [B, V, L]
    if anchor_views == "first":
        losses = losses[:, :1]
    scale = temperature if scale_by_temperature else 1.0
    return scale * tf.reduce_mean(losses, axis=1)


@dataclasses.dataclass(frozen=True)
class _Options:
    """Those of `tiled_losses`, and whether the log-sum-exp unrolls."""

    temperature: float
    formulation: str
    denominator: str
    cap: int | None
    tile_rows: int
    unrolls: bool


@dataclasses.dataclass(frozen=True)
class _Sum:
    """A log-sum-exp of each view, [B, V].

    Attributes:
      value: of the logits.
      in_tiles: the same less the shift of the tiles, if there are any.
      pull: from its weights [B, V], the gradient of whatever comes after, to
        the gradient with respect to z [B, V, D].
    """

    value: tf.Tensor
    in_tiles: tf.Tensor | None
    pull: Callable[[tf.Tensor], tf.Tensor]


@dataclasses.dataclass(frozen=True)
class _Loss:
    """The loss of each view by one label per sample or several.

    Attributes:
      value: [B, V].
      counted: [B, V] float32, 0 where it does not exist.
      passed: dL_i / d log D_i of a denominator that others share, [B, V].
      pull: as of `_Sum`, of all but such a denominator.
    """

    value: tf.Tensor
    counted: tf.Tensor
    passed: tf.Tensor
    pull: Callable[[tf.Tensor], tf.Tensor]


def _losses(
    z: tf.Tensor, batch: contrasts.Batch, options: _Options
) -> tf.Tensor:
    """L_i [B, V, L] of all rows, 0 of anchors without positives."""
    own = tf.stop_gradient(z)
    every = None
    if options.denominator == "all" and options.cap is None:
        every = _sum_over_all(own, batch, options)
    levels = [
        _loss_by_labels(own, batch, options, positives, every)
        for positives in batch.positives
    ]

    @tf.custom_gradient
    def losses(z: tf.Tensor) -> tuple:
        del z  # all is computed from it already

        def gradient(upstream: tf.Tensor) -> tf.Tensor:
            by_labels = tf.unstack(upstream, axis=-1)
            weights = [
                level.counted * x
                for level, x in zip(levels, by_labels, strict=True)
            ]
            pulls = [x.pull(w) for x, w in zip(levels, weights, strict=True)]
            if every is not None:
                passed = [
                    x.passed * w for x, w in zip(levels, weights, strict=True)
                ]
                pulls.append(every.pull(tf.add_n(passed)))
            return tf.add_n(pulls)

        # Not times 0: the difference of nothing may be anything.
        values = [tf.where(x.counted > 0, x.value, 0.0) for x in levels]
        return tf.stack(values, axis=-1), gradient

    return losses(z)


def _sum_over_all(
    z: tf.Tensor, batch: contrasts.Batch, options: _Options
) -> _Sum:
    """The log-sum-exp over all views but the anchor."""
    if options.unrolls:
        value, pull = tiles_unrolled.log_sum_exp(z, options.temperature)
        return _Sum(value, None, pull)
    of_its_own = positive_weights.Classes(tf.range(tf.shape(batch.columns)[0]))
    sets = tiling.make_sets(of_its_own, hidden=batch.hidden)
    return _looped(z, batch, options, sets)


def _tiles(
    z: tf.Tensor,
    batch: contrasts.Batch,
    sets: tiling.Sets,
    options: _Options,
    tile_rows: int,
) -> tiling.Tiling:
    return tiling.make_tiling(
        tf.reshape(z, [-1, z.shape[2]]),
        batch.columns,
        sets,
        hidden=batch.hidden,
        temperature=options.temperature,
        tile_rows=tile_rows,
        symmetric=batch.alone and batch.queue.shape[0] == 0,
    )


def _looped(
    z: tf.Tensor, batch: contrasts.Batch, options: _Options, sets: tiling.Sets
) -> _Sum:
    """Log-sum-exp over what the sets have in A(i), by tiles_looped.py."""
    tiles = _tiles(z, batch, sets, options, options.tile_rows)
    shape = tf.shape(z)  # [B, V, D]
    lse = tf.reshape(tiles_looped.log_sum_exp(tiles), shape[:2])

    def pull(weights: tf.Tensor) -> tf.Tensor:
        of_all = batch.of_columns(lse), batch.of_columns(weights)
        sums = tiles_looped.gradient(tiles, *of_all)
        return tf.reshape(sums, shape) / tiles.temperature

    return _Sum(lse + tiles.shift, lse, pull)


def _loss_by_labels(
    z: tf.Tensor,
    batch: contrasts.Batch,
    options: _Options,
    positives: positive_weights.Weights,
    every: _Sum | None,
) -> _Loss:
    """L_i of all rows by how much they weigh as positives of each other."""
    sums_suffice = (
        options.formulation == "out"
        and options.denominator != "one_positive"
        and options.cap is None
        and not isinstance(positives, positive_weights.Given)
    )
    if every is None or not sums_suffice:
        sets = tiling.make_sets(
            positives,
            views=z.shape[1],
            queued=batch.queue.shape[0],
            hidden=batch.hidden,
            cap=options.cap,
        )
    denominator = every or _looped(z, batch, options, sets)
    if sums_suffice:
        mean, total, pull = contrasts.mean_positive(
            z, batch, positives, options.temperature
        )
        value, passed = denominator.value - mean, tf.ones_like(mean)
    else:
        value, passed, total, pull = _by_positives(
            z, batch, options, sets, denominator.in_tiles
        )
    counted = total > 0
    if options.denominator == "only_negatives":
        counted &= denominator.value > log_space.LOG_ZERO / 2
    counted = tf.cast(counted, tf.float32) * tf.ones_like(value)
    if every is not None:
        return _Loss(value, counted, passed, pull)
    return _Loss(
        value, counted, passed, lambda w: pull(w) + denominator.pull(passed * w)
    )


def _by_positives(
    z: tf.Tensor,
    batch: contrasts.Batch,
    options: _Options,
    sets: tiling.Sets,
    log_d: tf.Tensor,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, Callable]:
    """L_i, dL_i / dD_i and W_i [B, V], by tiles_positives.py, and the pull."""
    size = min(options.tile_rows, _POSITIVES_ROWS)
    tiles = _tiles(z, batch, sets, options, size)
    how = tiles_positives.Options(
        options.formulation,
        is_alone=options.denominator == "one_positive",
        adds=options.denominator == "all" and options.cap is not None,
    )
    parts = tiles_positives.losses(tiles, tf.reshape(log_d, [-1]), how)
    shape = tf.shape(z)

    def pull(weights: tf.Tensor) -> tf.Tensor:
        numbers = parts.log_d, parts.norm, weights
        of_all = (batch.of_columns(tf.reshape(x, shape[:2])) for x in numbers)
        sums = tiles_positives.gradient(tiles, *of_all, how)
        return tf.reshape(sums, shape) / tiles.temperature

    by_views = parts.value, parts.passed, parts.total
    return *(tf.reshape(x, shape[:2]) for x in by_views), pull
