"""Log-sum-exp of similarities and its gradient, tile by tile, in a loop.

With s_ij = z_i . z_j / tau for rows i and columns j (the first columns are the
rows themselves), and w_i = dL / d lse_i of any loss L:

  lse_i     = log( sum_{j != i} exp(s_ij) )
  dL / dz_i = 1/tau * sum_{j != i} ( w_i exp(s_ij - lse_i)
                                   + w_j exp(s_ij - lse_j) ) z_j

The gradient takes the log-sum-exp and the weights of all columns, but never a
matrix of rows x columns. Where rows and columns are the same, s is symmetric:
the tiles on and above the diagonal serve their rows and their columns.

Letters in the shapes: R rows, M columns, D dimensions, T rows of a tile.
Vectors carry two more numbers, [z / tau, 1, u] and [z, v, 1], so that the
product is s + u + v in one pass: u and v hide padding, and v shifts.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable

import tensorflow as tf

from supcon_tf.losses import log_space, positive_weights

# exp(-80) = 1.8e-35 is a normal float32: while |s| <= c <= 40, no term of a sum
# of exp(s - c) is lost.
_LARGEST_SHIFT = 40.0
_TILES_AT_ONCE = 2  # hides the latency of the small operations between tiles


@dataclasses.dataclass(frozen=True)
class Tiling:
    """Rows and columns, cut into tiles.

    Attributes:
      rows: [R / T, T, D + 2] float32, padded.
      columns: [M / T, T, D + 2] float32, padded.
      count: R.
      symmetric: rows and columns are the same vectors.
      one_shift: scalar bool: logits come shifted by `shift` and lie in
        [-80, 0], so that their plain exponentials neither overflow nor vanish.
      shift: scalar float32, subtracted from all logits; 0 without `one_shift`.
      positives: weighs the columns as positives of each other, which alone are
        summed then; None for all columns.
      marks: [M / T, T, ...], what it compares them by; unused padding.
    """

    rows: tf.Tensor
    columns: tf.Tensor
    count: tf.Tensor
    symmetric: bool
    one_shift: tf.Tensor
    shift: tf.Tensor
    positives: positive_weights.Weights | None = None
    marks: tf.Tensor | None = None

    def of_positives(
        self, positives: positive_weights.Weights, views: int
    ) -> Tiling:
        """The same for positives alone, by the weights of their samples."""
        marks = tf.repeat(positives.marks, views, axis=0)
        marks = _cut(marks, tf.shape(self.rows)[1])
        return dataclasses.replace(self, positives=positives, marks=marks)


def fits_one_shift(largest: float | tf.Tensor) -> bool | tf.Tensor:
    """Whether logits up to `largest` can be shifted by that one number."""
    return largest <= _LARGEST_SHIFT


def make_tiling(
    rows: tf.Tensor,
    columns: tf.Tensor,
    *,
    temperature: float,
    tile_rows: int,
    symmetric: bool,
) -> Tiling:
    """Cuts rows [R, D] and columns [M, D], of which the rows come first."""
    count = tf.shape(rows)[0]
    tile_rows = tf.minimum(tile_rows, count)
    # Bounds |s|, for the rows are among the columns.
    squares = tf.reduce_sum(tf.square(columns), axis=1)
    largest = tf.reduce_max(squares) / temperature
    one_shift = fits_one_shift(largest)
    shift = tf.where(one_shift, largest, 0.0)
    left, right = _cut(rows / temperature, tile_rows), _cut(columns, tile_rows)
    hide_rows = _hidden_padding(left, count)
    hide_columns = _hidden_padding(right, tf.shape(columns)[0])
    return Tiling(
        rows=tf.concat([left, tf.ones_like(hide_rows), hide_rows], axis=2),
        columns=tf.concat(
            [right, hide_columns - shift, tf.ones_like(hide_columns)], axis=2
        ),
        count=count,
        symmetric=symmetric,
        one_shift=one_shift,
        shift=shift,
    )


def _cut(tensor: tf.Tensor, tile_rows: int | tf.Tensor) -> tf.Tensor:
    """[N, ...] as tiles [ceil(N / T), T, ...], padded with zeros."""
    missing = -tf.shape(tensor)[0] % tile_rows
    pads = [[0, missing]] + [[0, 0]] * (tensor.shape.rank - 1)
    return tf.reshape(tf.pad(tensor, pads), [-1, tile_rows, *tensor.shape[1:]])


def _hidden_padding(tiles: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
    """[N / T, T, 1]: 0 for the first `count` rows, `LOG_ZERO` for padding."""
    shape = tf.shape(tiles)[:2]
    index = tf.reshape(tf.range(tf.reduce_prod(shape)), shape)
    return tf.where(index < count, 0.0, log_space.LOG_ZERO)[..., tf.newaxis]


def log_sum_exp(tiling: Tiling) -> tf.Tensor:
    """lse_i over all columns but i, or over its positives, weighted.

    Returns:
      [R] float32, less `shift`; about `LOG_ZERO` for a sum of nothing.
    """

    def tile(a: tf.Tensor, b: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        logits = _logits(tiling, a, b)
        row_sums, column_sums = tf.cond(
            tiling.one_shift,
            lambda: [_log_of_sum(tf.exp(logits), axis) for axis in (1, 0)],
            lambda: [tf.reduce_logsumexp(logits, axis) for axis in (1, 0)],
        )
        # A tile on the diagonal serves its rows only.
        return row_sums, tf.where(a == b, log_space.LOG_ZERO, column_sums)

    nothing = tf.fill(tf.shape(tiling.rows)[:2], log_space.LOG_ZERO)
    sums = _over_tiles(tiling, tile, log_space.log_add_exp, nothing)
    return tf.reshape(sums, [-1])[: tiling.count]


def gradient(
    tiling: Tiling,
    lse: tf.Tensor,
    weights: tf.Tensor,
) -> tf.Tensor:
    """DL / dz of the rows, times tau: the second formula of the module.

    Args:
      tiling: rows and columns.
      lse: of the columns, [M] float32, less `shift`, as `log_sum_exp` returns
        them for rows.
      weights: dL / d lse of the columns, [M] float32.

    Returns:
      [R, D] float32.
    """
    tile_rows = tf.shape(tiling.rows)[1]
    lse, weights = _cut(lse, tile_rows), _cut(weights, tile_rows)
    # exp(s - lse) of a sum of nothing is 0 * inf: an lse of +inf makes it 0.
    lse = tf.where(weights == 0, -log_space.LOG_ZERO, lse)

    def tile(a: tf.Tensor, b: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor | None]:
        logits = _logits(tiling, a, b)
        # The rows are the first of the columns.
        lse_a, lse_b, w_a, w_b = lse[a], lse[b], weights[a], weights[b]
        rows, columns = w_a * tf.exp(-lse_a), w_b * tf.exp(-lse_b)
        pairs = tf.cond(  # w_i exp(s_ij - lse_i) + w_j exp(s_ij - lse_j)
            tiling.one_shift,
            lambda: tf.exp(logits) * (rows[:, tf.newaxis] + columns),
            lambda: (
                w_a[:, tf.newaxis] * tf.exp(logits - lse_a[:, tf.newaxis])
                + w_b * tf.exp(logits - lse_b)
            ),
        )
        row_sums = tf.matmul(pairs, tiling.columns[b])
        if not tiling.symmetric:
            return row_sums, None
        return row_sums, tf.cond(
            a == b,
            lambda: tf.zeros_like(row_sums),
            lambda: tf.matmul(pairs, tiling.columns[a], transpose_a=True),
        )

    nothing = tf.zeros_like(tiling.rows)
    sums = _over_tiles(tiling, tile, operator.add, nothing)[..., :-2]
    return tf.reshape(sums, [-1, sums.shape[2]])[: tiling.count]


def _over_tiles(
    tiling: Tiling,
    tile: Callable[..., tuple[tf.Tensor, tf.Tensor | None]],
    add: Callable[[tf.Tensor, tf.Tensor], tf.Tensor],
    sums: tf.Tensor,
) -> tf.Tensor:
    """Adds to `sums` [R / T, T, ...] what every tile gives its rows.

    `tile` takes the numbers of a block of rows and of one of columns, and
    returns what the rows get, and what, by symmetry, the columns get as rows.
    """
    symmetric = tiling.symmetric
    blocks = tf.shape(tiling.rows)[0]
    column_blocks = tf.shape(tiling.columns)[0]

    def add_tile(
        a: tf.Tensor, b: tf.Tensor, of_rows: tf.Tensor, sums: tf.TensorArray
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.TensorArray]:
        rows, columns = tile(a, b)
        if symmetric:
            sums = sums.write(b, add(sums.read(b), columns))
        return a, b + 1, add(of_rows, rows), sums

    def add_tiles_of_rows(
        a: tf.Tensor, sums: tf.TensorArray
    ) -> tuple[tf.Tensor, tf.TensorArray]:
        _, _, of_rows, sums = tf.while_loop(
            lambda a, b, *_: b < column_blocks,
            add_tile,
            (a, a if symmetric else 0, sums.read(a), sums),
            parallel_iterations=_TILES_AT_ONCE,
        )
        return a + 1, sums.write(a, of_rows)

    array = tf.TensorArray(  # which a loop changes in place
        sums.dtype,
        size=tf.shape(sums)[0],
        clear_after_read=False,
        element_shape=sums.shape[1:],
    ).unstack(sums)
    _, array = tf.while_loop(
        lambda a, _: a < blocks, add_tiles_of_rows, (0, array)
    )
    return array.stack()


def _logits(tiling: Tiling, a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    """[T, T] logits of a tile; `LOG_ZERO` for a row with itself."""
    logits = tf.matmul(tiling.rows[a], tiling.columns[b], transpose_b=True)
    if tiling.positives is not None:
        weights = tiling.positives.weigh(tiling.marks[a], tiling.marks[b])
        logits = tf.where(
            weights > 0,
            logits + tf.math.log(tf.where(weights > 0, weights, 1.0)),
            log_space.LOG_ZERO,
        )
    return tf.cond(
        a == b,
        lambda: tf.linalg.set_diag(
            logits, tf.fill([tf.shape(logits)[0]], log_space.LOG_ZERO)
        ),
        lambda: logits,
    )


def _log_of_sum(exponentials: tf.Tensor, axis: int) -> tf.Tensor:
    """[T] logarithms of sums of a tile, finite of nothing."""
    total = tf.reduce_sum(exponentials, axis)
    return tf.where(total > 0, tf.math.log(total), log_space.LOG_ZERO)
