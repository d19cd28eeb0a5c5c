"""Log-sum-exp of similarities and its gradient, tile by tile, in a loop.

With s_ij = z_i . z_j / tau for rows i and columns j (the first columns are the
rows themselves), A(i) what i is contrasted with, and w_i = dL / d lse_i of any
loss L:

  lse_i     = log( sum_{j in A(i)} exp(s_ij) )
  dL / dz_i = 1/tau * ( sum_{j in A(i)} w_i exp(s_ij - lse_i) z_j
                      + sum_{j: i in A(j)} w_j exp(s_ij - lse_j) z_j )

The gradient takes the log-sum-exp and the weights of all columns, but never a
matrix of rows x columns. Where rows and columns are the same, s is symmetric:
the tiles on and above the diagonal serve their rows and their columns.
"""

from __future__ import annotations

import operator
from collections.abc import Callable

import tensorflow as tf

from supcon_tf.losses import log_space
from supcon_tf.losses.tiling import Tiling

_TILES_AT_ONCE = 2  # hides the latency of the small operations between tiles


def log_sum_exp(tiling: Tiling) -> tf.Tensor:
    """lse_i over what the sets of the tiling have in A(i).

    Returns:
      [R] float32, less `shift`; about `LOG_ZERO` for a sum of nothing.
    """

    def sums(by_row: tf.Tensor, by_column: tf.Tensor) -> list[tf.Tensor]:
        def with_one_shift() -> list[tf.Tensor]:
            x, y = _each(tf.exp, by_row, by_column)
            return [_log_of_sum(x, axis=1), _log_of_sum(y, axis=0)]

        return tf.cond(
            tiling.one_shift,
            with_one_shift,
            lambda: [
                tf.reduce_logsumexp(by_row, axis=1),
                tf.reduce_logsumexp(by_column, axis=0),
            ],
        )

    def tile(a: tf.Tensor, b: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        row_sums, column_sums = _by_sets(tiling, a, b, sums)
        # A tile on the diagonal serves its rows only.
        return row_sums, tf.where(a == b, log_space.LOG_ZERO, column_sums)

    nothing = tf.fill(tf.shape(tiling.rows.vectors)[:2], log_space.LOG_ZERO)
    return tiling.rows.join(
        _over_tiles(tiling, tile, log_space.log_add_exp, nothing)
    )


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
    # exp(s - lse) of a sum of nothing is 0 * inf: an lse of +inf makes it 0.
    lse = tf.where(weights == 0, -log_space.LOG_ZERO, lse)
    of_rows, of_columns = (
        (cut(lse), cut(weights), cut(weights * tf.exp(-lse)))
        for cut in (tiling.rows.cut, tiling.columns.cut)
    )

    def tile(a: tf.Tensor, b: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor | None]:
        lse_a, w_a, row = (x[a][:, tf.newaxis] for x in of_rows)
        lse_b, w_b, column = (x[b] for x in of_columns)

        def pulls(by_row: tf.Tensor, by_column: tf.Tensor) -> tf.Tensor:
            """w_i exp(s_ij - lse_i) + w_j exp(s_ij - lse_j)."""

            def with_one_shift() -> tf.Tensor:
                x, y = _each(tf.exp, by_row, by_column)
                return x * (row + column) if x is y else x * row + y * column

            return tf.cond(
                tiling.one_shift,
                with_one_shift,
                lambda: (
                    w_a * tf.exp(by_row - lse_a)
                    + w_b * tf.exp(by_column - lse_b)
                ),
            )

        pairs = _by_sets(tiling, a, b, pulls)
        row_sums = tf.matmul(pairs, tiling.columns.vectors[b])
        if not tiling.symmetric:
            return row_sums, None
        return row_sums, tf.cond(
            a == b,
            lambda: tf.zeros_like(row_sums),
            lambda: tf.matmul(
                pairs, tiling.columns.vectors[a], transpose_a=True
            ),
        )

    sums = _over_tiles(
        tiling, tile, operator.add, tf.zeros_like(tiling.rows.vectors)
    )
    return tiling.rows.join(sums[..., :-2])


def _by_sets(
    tiling: Tiling, a: tf.Tensor, b: tf.Tensor, function: Callable
) -> tf.Tensor | list[tf.Tensor]:
    """A function of a tile's logits, of the rows and of the columns as anchors.

    `LOG_ZERO` is for what an anchor is not contrasted with. In most tiles that
    is nothing, and both are the same tensor.
    """
    logits = tiling.logits(a, b)

    def compared() -> tf.Tensor | list[tf.Tensor]:
        masks = tiling.both_ways(tiling.sets.contrasted, a, b)
        return function(
            *_each(
                lambda mask: tf.where(mask, logits, log_space.LOG_ZERO), *masks
            )
        )

    return tf.cond(
        tiling.mixed[a, b], compared, lambda: function(logits, logits)
    )


def _each(
    function: Callable[[tf.Tensor], tf.Tensor], x: tf.Tensor, y: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """The function of both, computed once where they are the same tensor."""
    of_x = function(x)
    return of_x, of_x if x is y else function(y)


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
    blocks, column_blocks = tf.unstack(tf.shape(tiling.mixed))

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


def _log_of_sum(exponentials: tf.Tensor, axis: int) -> tf.Tensor:
    """[T] logarithms of sums of a tile, finite of nothing."""
    total = tf.reduce_sum(exponentials, axis)
    return tf.where(total > 0, tf.math.log(total), log_space.LOG_ZERO)
