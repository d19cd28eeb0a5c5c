"""Log-sum-exp of similarities, tile by tile, all tiles in one graph.

The fastest schedule: tiles run beside each other, and their exponentials are
kept for the gradient, which is 2 bytes per pair of rows. (Recomputing them in
an unrolled graph would not save memory: TensorFlow finds the equal products
of forward and backward pass and merges them. To recompute takes a loop.)
"""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

# Largest peak, bytes, and what was measured per pair of rows: the kept half of
# the matrix, and the tiles of weights on their way through the gradient.
MEMORY = 256 * 2**20
_BYTES_PER_PAIR = 3.5


def is_affordable(rows: int) -> bool:
    """Whether `rows` rows stay within `MEMORY`."""
    return _BYTES_PER_PAIR * rows**2 <= MEMORY


def log_sum_exp(
    z: tf.Tensor, temperature: float
) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
    """lse_i of tiles_looped.py over all rows but i, and its gradient.

    Args:
      z: [B, V, D] float32, static, of B * V rows;
        `tiles_looped.fits_one_shift` must hold.
      temperature: tau.

    Returns:
      lse [B, V], and the function from dL / d lse to dL / dz [B, V, D].
    """
    rows = tf.reshape(z, [-1, z.shape[2]])
    count = rows.shape[0]
    # Few blocks for small batches, where operations cost most.
    blocks = 1 if count <= 256 else 2 if count <= 1024 else 4
    blocks = blocks if count <= 3072 else 8
    sizes = [count // blocks + (a < count % blocks) for a in range(blocks)]
    shift = tf.reduce_max(tf.reduce_sum(tf.square(rows), axis=1)) / temperature
    one = tf.ones([count, 1])
    left = tf.split(tf.concat([rows / temperature, one], axis=1), sizes)
    right = tf.split(tf.concat([rows, -shift * one], axis=1), sizes)
    kept = {}  # (a, b), a <= b -> exp(s - shift) [T_a, T_b]
    sums: list[list[tf.Tensor]] = [[] for _ in sizes]
    for a in range(blocks):
        for b in range(a, blocks):
            tile = tf.exp(tf.matmul(left[a], right[b], transpose_b=True))
            if a == b:  # exactly 0: taking it away later would cancel digits
                tile = tf.linalg.set_diag(tile, tf.zeros([sizes[a]]))
            else:
                sums[b].append(tf.reduce_sum(tile, axis=0))
            kept[a, b] = tile
            sums[a].append(tf.reduce_sum(tile, axis=1))
    totals = [tf.add_n(parts) for parts in sums]

    def gradient(weights: tf.Tensor) -> tf.Tensor:
        weights = tf.split(tf.reshape(weights, [-1]), sizes)
        weights = [  # w_i / sum_i
            tf.math.divide_no_nan(w, total)
            for w, total in zip(weights, totals, strict=True)
        ]
        own = tf.split(rows, sizes)
        sums: list[list[tf.Tensor]] = [[] for _ in sizes]
        for (a, b), tile in kept.items():
            pairs = tile * (weights[a][:, tf.newaxis] + weights[b])
            sums[a].append(tf.matmul(pairs, own[b]))
            if a != b:
                sums[b].append(tf.matmul(pairs, own[a], transpose_a=True))
        parts = [tf.add_n(of_rows) for of_rows in sums]
        return tf.reshape(tf.concat(parts, axis=0) / temperature, z.shape)

    # A single row has no columns: log of a number that no sum falls to.
    total = tf.maximum(tf.concat(totals, axis=0), 1e-37)
    return tf.reshape(tf.math.log(total) + shift, z.shape[:2]), gradient
