"""Log-sum-exp of similarities beyond a window, tile by tile, and its gradient.

With s_ij = scale * z_i . c_j for R rows z_i and M columns c_j, of which a part,
slope * z_i . c_j, has a gradient, and a window of columns W(i) = first_i ..
stop_i - 1 for each row:

  l_i       = log( sum_{j not in W(i)} exp(s_ij) )
  dL / dz_i = slope * sum_{j not in W(i)} ( w_i exp(s_ij - l_i)
                                          + w_j exp(s_ij - l_j) ) c_j

where w = dL / dl of whatever comes after, 0 of a column that is no anchor. The
second term is what z_i gets as a column: the columns are the rows of all
replicas, and the window is the same from both sides, so that each replica owns
the gradient of its rows. All that it needs of others are l_j and w_j.

No matrix of rows x columns is made. Where the rows are the columns, the tiles
on and above the diagonal serve their rows and their columns, in the same pass.

Logits within [-40, 40] are shifted by one number, so that sums of plain
exponentials neither overflow nor lose a term. Larger ones take the maximum of
every tile.
"""

from __future__ import annotations

import bisect
import functools
import math
import operator
from collections.abc import Callable
from typing import TypeVar

import tensorflow as tf

from supcon_tf import exceptions
from supcon_tf.losses import log_space

_T = TypeVar("_T")

# exp(-80) = 1.8e-35 is a normal float32: while |s| <= c <= 40, no term of a sum
# of exp(s - c) is lost.
_LARGEST_SHIFT = 40.0
# The fastest of 256 to 2,048 on a CPU, for 8,192 to 32,768 rows. A GPU, which
# waits for the launches of small tiles, is four to nine times faster with more.
_TILE_ROWS, _GPU_TILE_ROWS = 768, 4096
_TILES_AT_ONCE = 2  # hides the latency of the small operations between tiles
# While the exponentials of all tiles stay within so many bytes, one graph has
# all tiles, runs them beside each other, and saves them for the gradient.
UNROLLED_BYTES, _GPU_UNROLLED_BYTES = 256 * 2**20, 2 * 2**30
_BYTES_PER_PAIR = 3.5  # measured: half a matrix, and tiles on their way

# A function of two numbers: of a block of rows and of a block of columns. It
# returns sums of the rows and, where the columns are the rows, of the columns.
_TileFunction = Callable[..., tuple[tf.Tensor, tf.Tensor | None]]


def log_sum_exp(
    rows: tf.Tensor,
    columns: tf.Tensor | None,
    window: tuple[tf.Tensor, tf.Tensor] | None,
    *,
    scale: float,
    slope: float,
    unit_length: bool,
    is_hidden: tf.Tensor,
    to_columns: Callable[[tf.Tensor], tf.Tensor],
    has_derivatives: bool = True,
    tile_rows: int | None = None,
) -> tf.Tensor:
    """Returns l_i of the rows, with a gradient for the rows.

    Args:
      rows: [R, D] float32.
      columns: [M, D] float32; None for the rows themselves.
      window: first_i and stop_i, [R] int32 each; None for i and i + 1.
      scale: factor of the products.
      slope: the part of the scale that has a gradient.
      unit_length: a promise that all vectors have at most length 1.
      is_hidden: [M] bool, columns that no sum has.
      to_columns: function from values of the rows, [R], to values of the
        columns, [M], which are 0 for a column that is no anchor.
      has_derivatives: whether the gradient may be differentiated: the rows of
        the columns are all here, and the slope is the scale.
      tile_rows: rows and columns of a tile, in a loop; None chooses.

    Returns:
      [R] float32; `log_space.LOG_ZERO` for a sum of nothing.
    """
    is_bounded = unit_length and scale <= _LARGEST_SHIFT
    blocks = None
    if is_bounded and tile_rows is None and columns is None:
        blocks = _unrolled_blocks(rows.shape[0])
    if blocks:
        tile_rows = -(-rows.shape[0] // blocks)

    # The columns are an argument: a tensor of the surroundings would be traced
    # to the variables of the encoder, which have no gradient here.
    @tf.custom_gradient
    def compute(rows: tf.Tensor, *columns: tf.Tensor) -> tuple:
        tiles = _Tiles(
            rows,
            *(columns or [None]),
            window,
            scale=scale,
            is_hidden=is_hidden,
            is_bounded=is_bounded,
            tile_rows=tile_rows or _by_device(_TILE_ROWS, _GPU_TILE_ROWS),
            is_unrolled=blocks is not None,
        )
        sums = tiles.sums()  # [A, T]

        def gradient(upstream: tf.Tensor) -> list[tf.Tensor | None]:
            gradients = tiles.gradients(sums, upstream, to_columns)  # [R, D]
            gradients *= slope / tiles.root
            if not has_derivatives:
                gradients = refuse_derivatives(gradients)
            return [gradients, *(None for _ in columns)]

        return tiles.logarithm(sums), gradient

    return compute(rows) if columns is None else compute(rows, columns)


@tf.custom_gradient
def refuse_derivatives(gradient: tf.Tensor) -> tuple[tf.Tensor, Callable]:
    """Returns a gradient, with an error where it is differentiated.

    The derivative would be a wrong number: it lacks the rows of other replicas,
    or takes for variable what the loss takes for constant.
    """

    def refuse(upstream: tf.Tensor) -> None:
        raise exceptions.InvalidValue(
            '`implementation` must be "dense", on one replica, for second '
            "derivatives and for tf.autodiff.ForwardAccumulator, got a tiled "
            "loss with `hardness` or on several replicas"
        )

    return tf.identity(gradient), refuse


def _unrolled_blocks(rows: int | None) -> int | None:
    """Returns the number of blocks of rows in one graph; None for a loop."""
    most_bytes = _by_device(UNROLLED_BYTES, _GPU_UNROLLED_BYTES)
    if rows is None or _BYTES_PER_PAIR * rows**2 > most_bytes:
        return None
    # Few blocks for small batches, where operations cost most.
    limits = _by_device((256, 1024, 3072), (2048, 8192))
    return 2 ** bisect.bisect_left(limits, rows)


class _Tiles:
    """Rows in A blocks of T, columns in B blocks, and the sums over tiles.

    A tile is a block of rows and a block of columns, named by their numbers
    `row` and `column`. In a graph of all tiles the numbers are integers.

    A vector carries two more numbers, [z, 1, u] and [c, v, 1], so that their
    product is s + u + v in one pass: v shifts, and u and v hide padding.
    """

    def __init__(
        self,
        rows: tf.Tensor,
        columns: tf.Tensor | None,
        window: tuple[tf.Tensor, tf.Tensor] | None,
        *,
        scale: float,
        is_hidden: tf.Tensor,
        is_bounded: bool,
        tile_rows: int,
        is_unrolled: bool,
    ) -> None:
        self.is_symmetric = columns is None
        columns = rows if columns is None else columns
        self.num_rows = _num_rows(rows)
        if isinstance(self.num_rows, int):
            self.block_size = min(tile_rows, self.num_rows)
        else:  # a replica may have no rows, at the end of an epoch
            self.block_size = tf.clip_by_value(self.num_rows, 1, tile_rows)
        self.is_bounded = is_bounded
        self.shift = scale if is_bounded else 0.0
        self.root = math.sqrt(scale)
        log_zero = log_space.LOG_ZERO
        u = self._cut(tf.zeros([self.num_rows, 1]), log_zero)  # [A, T, 1]
        v = tf.where(is_hidden, log_zero, -self.shift)[:, tf.newaxis]  # [M, 1]
        v = self._cut(v, log_zero)  # [B, T, 1]
        row_ones, column_ones = tf.ones_like(u), tf.ones_like(v)
        rows, columns = (
            self._cut(self.root * vectors) for vectors in (rows, columns)
        )
        self.rows = tf.concat([rows, row_ones, u], axis=2)  # [A, T, D + 2]
        self.columns = tf.concat(  # [B, T, D + 2]
            [columns, v, column_ones], axis=2
        )
        self.is_diagonal = window is None
        if window is None:
            numbers = tf.range(self.num_rows)
            window = numbers, numbers + 1
        first, stop = window  # [R] each
        # The window of a row of padding is empty.
        self.first = self._cut(first, tf.int32.max)  # [A, T]
        self.stop = self._cut(stop)  # [A, T]
        # Whether a block of columns has any column of a window of the rows.
        starts = self.block_size * tf.range(tf.shape(self.columns)[0])  # [B]
        first = tf.reduce_min(self.first, axis=1)[:, tf.newaxis]  # [A, 1]
        stop = tf.reduce_max(self.stop, axis=1)[:, tf.newaxis]  # [A, 1]
        self.overlaps_window = (  # [A, B]
            first < starts + self.block_size
        ) & (stop > starts)
        self.is_unrolled = is_unrolled
        # Exponentials [T, T] by tile: the gradient takes those of the sums.
        self.saved: dict[tuple[int, int], tf.Tensor] = {}

    def _cut(self, tensor: tf.Tensor, padding: float = 0) -> tf.Tensor:
        """Returns a tensor [N, ...] in padded blocks [ceil(N / T), T, ...].

        Without rows there is a block of padding.
        """
        count = _num_rows(tensor)
        num_padding = -count % self.block_size
        if not isinstance(count, int):
            num_padding = tf.maximum(num_padding, 1 - count)
        pads = [[0, num_padding]] + [[0, 0]] * (tensor.shape.rank - 1)
        tensor = tf.pad(tensor, pads, constant_values=padding)
        return tf.reshape(tensor, [-1, self.block_size, *tensor.shape[1:]])

    def _logits(self, row: tf.Tensor, column: tf.Tensor) -> tf.Tensor:
        """Returns logits [T, T] less the shift, `LOG_ZERO` in the window."""
        logits = tf.matmul(
            self.rows[row], self.columns[column], transpose_b=True
        )

        def mask_window() -> tf.Tensor:
            numbers = column * self.block_size + tf.range(self.block_size)
            first = self.first[row][:, tf.newaxis]  # [T, 1]
            stop = self.stop[row][:, tf.newaxis]  # [T, 1]
            is_inside = (numbers >= first) & (numbers < stop)  # [T, T]
            return tf.where(is_inside, log_space.LOG_ZERO, logits)

        if self.is_diagonal and isinstance(row, int):
            if row != column:
                return logits
            return tf.linalg.set_diag(
                logits, tf.fill([self.block_size], log_space.LOG_ZERO)
            )
        return tf.cond(
            self.overlaps_window[row, column], mask_window, lambda: logits
        )

    def _exponentials(self, row: tf.Tensor, column: tf.Tensor) -> tf.Tensor:
        """Returns the exponentials [T, T] of the logits of a tile."""
        if not self.is_unrolled:
            return tf.exp(self._logits(row, column))
        if (row, column) not in self.saved:
            self.saved[row, column] = tf.exp(self._logits(row, column))
        return self.saved[row, column]

    def sums(self) -> tf.Tensor:
        """Returns sums of exponentials of the rows, or their logs, [A, T]."""
        empty_sums = tf.zeros(tf.shape(self.rows)[:2])  # [A, T]
        if self.is_bounded:
            tile_terms, reduce_terms = self._exponentials, tf.reduce_sum
            add = operator.add
        else:
            empty_sums += log_space.LOG_ZERO
            tile_terms, reduce_terms = self._logits, tf.reduce_logsumexp
            add = log_space.log_add_exp

        def compute_tile(
            row: tf.Tensor, column: tf.Tensor
        ) -> tuple[tf.Tensor, tf.Tensor | None]:
            terms = tile_terms(row, column)  # [T, T]
            if not self.is_symmetric:
                return reduce_terms(terms, axis=1), None
            # The rows of a tile on the diagonal have all its sums already.
            column_sums = tf.where(
                row == column, empty_sums[0], reduce_terms(terms, axis=0)
            )
            return reduce_terms(terms, axis=1), column_sums

        return self._sum_tiles(compute_tile, add, empty_sums)

    def logarithm(self, sums: tf.Tensor) -> tf.Tensor:
        """Returns l_i of the rows, [R], from their sums [A, T]."""
        sums = tf.reshape(sums, [-1])[: self.num_rows]
        if not self.is_bounded:
            return sums
        is_empty = sums <= 0  # not of a NaN, which the loss has to show
        logarithms = tf.math.log(tf.where(is_empty, 1.0, sums)) + self.shift
        return tf.where(is_empty, log_space.LOG_ZERO, logarithms)

    def gradients(
        self,
        sums: tf.Tensor,
        upstream: tf.Tensor,
        to_columns: Callable[[tf.Tensor], tf.Tensor],
    ) -> tf.Tensor:
        """Returns the sums over columns of dL / dz_i, without slope, [R, D]."""
        sums = tf.reshape(sums, [-1])[: self.num_rows]  # [R]
        row_values = [upstream, sums]
        if self.is_bounded:  # weights that the exponentials are multiplied by
            row_values = [tf.math.divide_no_nan(upstream, sums)]
        weights, *logs = map(self._cut, row_values)  # [A, T]
        column_weights, *column_logs = weights, *logs
        if not self.is_symmetric:
            column_weights, *column_logs = [  # [B, T]
                self._cut(to_columns(values)) for values in row_values
            ]

        def shares(
            logits: tf.Tensor, weights: tf.Tensor, logs: tf.Tensor
        ) -> tf.Tensor:
            # The share in an empty sum is 0 * inf; an l of +inf makes it 0.
            logs = tf.where(weights == 0, -log_space.LOG_ZERO, logs)
            return weights * tf.exp(logits - logs)

        def compute_tile(
            row: tf.Tensor, column: tf.Tensor
        ) -> tuple[tf.Tensor, tf.Tensor | None]:
            row_weights = weights[row][:, tf.newaxis]  # [T, 1]
            if self.is_bounded:
                factors = row_weights + column_weights[column]  # [T, T]
                factors *= self._exponentials(row, column)
            else:
                logits = self._logits(row, column)  # [T, T]
                row_logs = logs[0][row][:, tf.newaxis]  # [T, 1]
                factors = shares(logits, row_weights, row_logs)
                factors += shares(
                    logits, column_weights[column], column_logs[0][column]
                )
            row_sums = tf.matmul(factors, self.columns[column])  # [T, D + 2]
            if not self.is_symmetric or (self.is_unrolled and row == column):
                return row_sums, None

            def column_sums() -> tf.Tensor:
                return tf.matmul(factors, self.rows[row], transpose_a=True)

            if self.is_unrolled:
                return row_sums, column_sums()
            zeros = tf.zeros_like(row_sums)
            return row_sums, tf.cond(row == column, lambda: zeros, column_sums)

        sums = self._sum_tiles(  # [A, T, D + 2]
            compute_tile, operator.add, tf.zeros_like(self.rows)
        )
        # The two last numbers of a vector are those of shift and padding.
        return tf.reshape(sums, [-1, sums.shape[2]])[: self.num_rows, :-2]

    def _sum_tiles(
        self,
        compute_tile: _TileFunction,
        add: Callable[[tf.Tensor, tf.Tensor], tf.Tensor],
        sums: tf.Tensor,
    ) -> tf.Tensor:
        """Adds the sums of every tile to `sums` [A, T, ...] of the rows."""
        if self.is_unrolled:
            return _sum_unrolled(compute_tile, add, self.rows.shape[0])
        column_blocks = tf.shape(self.columns)[0]

        def add_tile(
            row: tf.Tensor,
            column: tf.Tensor,
            total: tf.Tensor,
            sums: tf.TensorArray,
        ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.TensorArray]:
            row_sums, column_sums = compute_tile(row, column)
            if column_sums is not None:
                sums = sums.write(column, add(sums.read(column), column_sums))
            return row, column + 1, add(total, row_sums), sums

        def add_block(
            row: tf.Tensor, sums: tf.TensorArray
        ) -> tuple[tf.Tensor, tf.TensorArray]:
            _, _, total, sums = tf.while_loop(
                lambda row, column, *_: column < column_blocks,
                add_tile,
                (row, row if self.is_symmetric else 0, sums.read(row), sums),
                parallel_iterations=_TILES_AT_ONCE,
            )
            return row + 1, sums.write(row, total)

        array = tf.TensorArray(  # a loop changes it in place
            sums.dtype,
            size=tf.shape(sums)[0],
            clear_after_read=False,
            element_shape=sums.shape[1:],
        ).unstack(sums)
        blocks = tf.shape(sums)[0]
        _, array = tf.while_loop(
            lambda row, _: row < blocks, add_block, (tf.constant(0), array)
        )
        return array.stack()


def _sum_unrolled(
    compute_tile: _TileFunction,
    add: Callable[[tf.Tensor, tf.Tensor], tf.Tensor],
    blocks: int,
) -> tf.Tensor:
    """Returns the sums [A, T, ...] of rows that are their own columns."""
    tile_sums: list[list[tf.Tensor]] = [[] for _ in range(blocks)]
    for row in range(blocks):
        for column in range(row, blocks):
            row_sums, column_sums = compute_tile(row, column)
            tile_sums[row].append(row_sums)
            if row != column:
                tile_sums[column].append(column_sums)
    return tf.stack([functools.reduce(add, sums) for sums in tile_sums])


def _by_device(on_cpu: _T, on_gpu: _T) -> _T:
    """Returns the second where TensorFlow has a GPU, else the first."""
    return on_gpu if tf.config.list_logical_devices("GPU") else on_cpu


def _num_rows(tensor: tf.Tensor) -> int | tf.Tensor:
    """Returns the rows of a tensor, an int where the shape is static."""
    count = tensor.shape[0]
    return tf.shape(tensor)[0] if count is None else count
