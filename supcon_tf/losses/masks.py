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
    positives: tf.Tensor, anchor_sample: tf.Tensor, views: int, cap: int
) -> tf.Tensor:
    """Marks the positives that an anchor keeps under a cap on |P(i)|.

    An anchor keeps its own other views and then the next positives in cyclic
    batch order, starting after its own sample (Suppl. Sec. 7 does not say
    which; this order needs no randomness and does not favour the front of the
    batch). Across replicas the order continues through their rows.

    Args:
      positives: [A, M] bool, False at the anchor itself.
      anchor_sample: [A] int32, each anchor's sample.
      views: V, views per sample.
      cap: largest |P(i)|, at least V - 1.

    Returns:
      [A, M] bool, a subset of `positives`.
    """
    columns = tf.range(tf.shape(positives)[1])[tf.newaxis]  # [1, M]
    start = anchor_sample[:, tf.newaxis] * views  # [A, 1] first own row
    own = (columns >= start) & (columns < start + views)  # [A, M]
    others = tf.cast(positives & ~own, tf.int32)
    rank = tf.cumsum(others, axis=1, exclusive=True)  # [A, M]
    total = tf.reduce_sum(others, axis=1, keepdims=True)  # [A, 1]
    before = tf.gather(rank, start, axis=1, batch_dims=1)  # [A, 1]
    rank = tf.where(columns >= start, rank - before, rank - before + total)
    return positives & (own | (rank < cap - (views - 1)))
