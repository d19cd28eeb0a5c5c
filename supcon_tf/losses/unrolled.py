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
    rows: tf.Tensor, temperature: float
) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
    """lse_i of tiles.py over all rows but i, and its gradient.

    Args:
      rows: [M, D] float32, static M; `tiles.fits_one_shift` must hold.
      temperature: tau.

    Returns:
      lse [M], and the function from dL / d lse [M] to dL / dz [M, D].
    """
    count = rows.shape[0]
    blocks = _blocks(count)
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
        parts = _pull_back(
            kept,
            tf.split(rows, sizes),
            [
                tf.math.divide_no_nan(w, total)
                for w, total in zip(
                    tf.split(weights, sizes), totals, strict=True
                )
            ],
        )
        return tf.concat(parts, axis=0) / temperature

    # A single row has no columns: log of a number that no sum falls to.
    total = tf.maximum(tf.concat(totals, axis=0), 1e-37)
    return tf.math.log(total) + shift, gradient


def _pull_back(
    kept: dict[tuple[int, int], tf.Tensor],
    rows: list[tf.Tensor],
    weights: list[tf.Tensor],
) -> list[tf.Tensor]:
    """Gradients [T, D] of the blocks of rows; weights are w_i / sum_i."""
    sums: list[list[tf.Tensor]] = [[] for _ in rows]
    for (a, b), tile in kept.items():
        pairs = tile * (weights[a][:, tf.newaxis] + weights[b])
        sums[a].append(tf.matmul(pairs, rows[b]))
        if a != b:
            sums[b].append(tf.matmul(pairs, rows[a], transpose_a=True))
    return [tf.add_n(parts) for parts in sums]


def _blocks(rows: int) -> int:
    """Blocks of rows: few for small batches, where operations cost most."""
    for most, blocks in ((256, 1), (1024, 2), (3072, 4)):
        if rows <= most:
            return blocks
    return 8
