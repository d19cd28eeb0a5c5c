"""Which contrasts are positives of an anchor, and which take no part.

Rows are views in sample-major order: row `s * views + v` is view v of sample
s. Letters in the shapes: B samples, V views, A anchor rows, R = B * V batch
rows, E further contrast rows, M = R + E.
"""

from __future__ import annotations

import tensorflow as tf


def expand_to_rows(
    mask: tf.Tensor, views: int, contrast_views: int, anchor_views: int
) -> tf.Tensor:
    """Repeats a [B, B + samples] mask over samples into [A, M] over rows."""
    batch = tf.shape(mask)[0]
    mask = tf.repeat(mask, anchor_views, axis=0)
    own = tf.repeat(mask[:, :batch], views, axis=1)
    further = tf.repeat(mask[:, batch:], contrast_views, axis=1)
    return tf.concat([own, further], axis=1)


def within_cap(
    positives: tf.Tensor,
    anchor_sample: tf.Tensor,
    views: int,
    cap: int,
    queued: int | tf.Tensor = 0,
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
