"""Losses of A anchors by all their pairs with M rows: [A, M] matrices."""

from __future__ import annotations

import tensorflow as tf

from supcon_tf.losses import inputs, log_space


def sets_of(
    anchors: tf.Tensor,
    z: tf.Tensor,
    further: tf.Tensor,
    weights: tf.Tensor,
    contrast_mask: tf.Tensor | None,
    positives_cap: int | None,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Weights of positives, A(i) and N(i) of each anchor: [A, M] each.

    Rows are views in sample-major order: row `s * views + v` is view v of
    sample s. The [B, B + C] weights of samples are repeated over their rows.
    """
    batch, views = tf.shape(z)[0], inputs.static_views(z, positives_cap)
    kept_views = anchors.shape[1]
    sample = tf.repeat(tf.range(batch), kept_views)  # [A]
    own_row = sample * views + tf.tile(tf.range(kept_views), [batch])
    own = tf.repeat(weights[:, :batch], views, axis=1)
    others = tf.repeat(weights[:, batch:], further.shape[1], axis=1)
    weights = tf.repeat(tf.concat([own, others], axis=1), kept_views, axis=0)
    rows = tf.shape(weights)[1]
    contrasted = own_row[:, tf.newaxis] != tf.range(rows)
    queued = 0
    if contrast_mask is not None:
        filled = inputs.queued_rows(contrast_mask, further)  # [Q]
        queued = tf.size(filled)
        contrasted &= tf.pad(filled, [[rows - queued, 0]], constant_values=True)
    weights *= tf.cast(contrasted, tf.float32)
    negative = contrasted & (weights == 0)
    if positives_cap is not None:
        kept = _within_cap(weights > 0, sample, views, positives_cap, queued)
        weights *= tf.cast(kept, tf.float32)
        contrasted = negative | kept
    return weights, contrasted, negative


def _within_cap(
    positives: tf.Tensor,
    anchor_sample: tf.Tensor,
    views: int,
    cap: int,
    queued: int | tf.Tensor,
) -> tf.Tensor:
    """Marks the positives that an anchor keeps under a cap on |P(i)|.

    An anchor keeps its own other views and then the next positives in cyclic
    batch order, starting after its own sample (Suppl. Sec. 7 does not say
    which; this order needs no randomness and does not favour the front of the
    batch). Across replicas the order continues through their rows. The rows
    of a queue are no part of the cycle and come last.

    Positives are [A, M] bool, False at the anchor itself; `anchor_sample` is
    [A] int32; the cap is at least V - 1; the last `queued` rows are a queue's.
    """
    cycle = tf.shape(positives)[1] - queued
    columns = tf.range(tf.shape(positives)[1])[tf.newaxis]  # [1, M]
    start = anchor_sample[:, tf.newaxis] * views  # [A, 1] first own row
    own = (columns >= start) & (columns < start + views)  # [A, M]
    others = tf.cast(positives & ~own, tf.int32)
    rank = tf.cumsum(others, axis=1, exclusive=True)  # [A, M]
    total = tf.reduce_sum(others[:, :cycle], axis=1, keepdims=True)  # [A, 1]
    before = tf.gather(rank, start, axis=1, batch_dims=1)  # [A, 1]
    turned = tf.where(columns >= start, rank - before, rank - before + total)
    rank = tf.where(columns < cycle, turned, rank)
    return positives & (own | (rank < cap - (views - 1)))


def anchor_losses(
    logits: tf.Tensor,
    weights: tf.Tensor,
    contrasted: tf.Tensor,
    negative: tf.Tensor,
    formulation: str,
    denominator: str,
) -> tf.Tensor:
    """Losses [A] of logits, positive weights, A(i) and N(i), all [A, M]."""
    log_d = {
        "all": lambda: _log_sum_exp(logits, contrasted),
        "only_negatives": lambda: _log_sum_exp(logits, negative),
        "one_positive": lambda: log_space.log_add_exp(
            logits, _log_sum_exp(logits, negative)
        ),
    }[denominator]()
    log_p = logits - log_d  # [A, M]
    total = tf.reduce_sum(weights, axis=1)  # [A], |P(i)|
    if formulation == "out":
        losses = -tf.math.divide_no_nan(
            tf.reduce_sum(weights * log_p, axis=1), total
        )
    else:
        is_positive = weights > 0
        log_weights = tf.math.log(tf.where(is_positive, weights, 1.0))
        losses = tf.math.log(tf.where(total > 0, total, 1.0)) - tf.squeeze(
            _log_sum_exp(log_p + log_weights, is_positive), axis=1
        )
    defined = total > 0
    if denominator == "only_negatives":
        defined &= tf.reduce_any(negative, axis=1)
    return tf.where(defined, losses, 0.0)


def _log_sum_exp(logits: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """[A, 1] log of the sum of exp(logits) where `mask`; finite if empty."""
    return tf.reduce_logsumexp(
        tf.where(mask, logits, log_space.LOG_ZERO), axis=1, keepdims=True
    )
