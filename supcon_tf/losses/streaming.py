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

import functools
import math
import operator
from collections.abc import Callable

import tensorflow as tf

from supcon_tf.losses import log_space

# exp(-80) = 1.8e-35 is a normal float32: while |s| <= c <= 40, no term of a sum
# of exp(s - c) is lost.
_LARGEST_SHIFT = 40.0
_TILE_ROWS = 768  # the fastest of 256 to 2,048, for 8,192 to 32,768 rows
_TILES_AT_ONCE = 2  # hides the latency of the small operations between tiles
# All tiles in one graph, which run beside each other and whose exponentials are
# kept for the gradient, while these stay within so many bytes.
UNROLLED_BYTES = 256 * 2**20
_BYTES_PER_PAIR = 3.5  # measured: half a matrix, and tiles on their way

# Of the numbers of a block of rows and of one of columns: what the rows get,
# and what the columns get where they are the rows.
_Tile = Callable[..., tuple[tf.Tensor, tf.Tensor | None]]


def log_sum_exp(
    rows: tf.Tensor,
    columns: tf.Tensor | None,
    window: tuple[tf.Tensor, tf.Tensor] | None,
    *,
    scale: float,
    slope: float,
    unit_length: bool,
    hidden: tf.Tensor,
    of_columns: Callable[[tf.Tensor], tf.Tensor],
    tile_rows: int | None = None,
) -> tf.Tensor:
    """l_i of the rows, with a gradient for the rows.

    Args:
      rows: [R, D] float32.
      columns: [M, D] float32; None for the rows themselves.
      window: first_i and stop_i, [R] int32 each; None for i and i + 1.
      scale: of the products.
      slope: the part of it that has a gradient.
      unit_length: a promise that all vectors have at most length 1.
      hidden: [M] bool, columns that no sum has.
      of_columns: from numbers of the rows, [R], to those of the columns, [M], 0
        of what is no anchor.
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

    @tf.custom_gradient
    def compute(rows: tf.Tensor) -> tuple:
        tiles = _Tiles(
            rows,
            columns,
            window,
            scale=scale,
            hidden=hidden,
            is_bounded=is_bounded,
            tile_rows=tile_rows or _TILE_ROWS,
            unrolls=blocks is not None,
        )
        sums = tiles.sums()

        def gradient(upstream: tf.Tensor) -> tf.Tensor:
            pulls = tiles.pulls(sums, upstream, of_columns)
            return slope / tiles.root * pulls

        return tiles.logarithm(sums), gradient

    return compute(rows)


def _unrolled_blocks(rows: int | None) -> int | None:
    """Into how many blocks rows are cut in one graph; None for a loop."""
    if rows is None or _BYTES_PER_PAIR * rows**2 > UNROLLED_BYTES:
        return None
    # Few blocks for small batches, where operations cost most.
    return 1 if rows <= 256 else 2 if rows <= 1024 else 4 if rows <= 3072 else 8


class _Tiles:
    """Rows and columns in blocks of T, and what a tile of them adds.

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
        hidden: tf.Tensor,
        is_bounded: bool,
        tile_rows: int,
        unrolls: bool,
    ) -> None:
        self.is_symmetric = columns is None
        columns = rows if columns is None else columns
        self.count = _count(rows)
        is_static = isinstance(self.count, int)
        self.size = (min if is_static else tf.minimum)(tile_rows, self.count)
        self.is_bounded = is_bounded
        self.shift = scale if is_bounded else 0.0
        self.root = math.sqrt(scale)
        zero = log_space.LOG_ZERO
        u = self._cut(tf.zeros([self.count, 1]), zero)
        v = tf.where(hidden, zero, -self.shift)[:, tf.newaxis]
        v = self._cut(v, zero)
        one_of_rows, one_of_columns = tf.ones_like(u), tf.ones_like(v)
        rows, columns = (
            self._cut(self.root * part) for part in (rows, columns)
        )
        self.rows = tf.concat([rows, one_of_rows, u], axis=2)  # [A, T, D + 2]
        self.columns = tf.concat([columns, v, one_of_columns], axis=2)
        self.is_diagonal = window is None
        if window is None:
            numbers = tf.range(self.count)
            window = numbers, numbers + 1
        first, stop = window  # [A, T], where padding meets nothing
        self.first, self.stop = self._cut(first, tf.int32.max), self._cut(stop)
        # [A, B] whether a block of columns has any of a window of the rows.
        begin = self.size * tf.range(tf.shape(self.columns)[0])
        self.meets = (
            tf.reduce_min(self.first, axis=1)[:, tf.newaxis] < begin + self.size
        ) & (tf.reduce_max(self.stop, axis=1)[:, tf.newaxis] > begin)
        self.unrolls = unrolls
        self.kept: dict[
            tuple[int, int], tf.Tensor
        ] = {}  # exponentials, by tile

    def _cut(self, tensor: tf.Tensor, padding: float = 0) -> tf.Tensor:
        """[N, ...] as blocks [ceil(N / T), T, ...]."""
        missing = -_count(tensor) % self.size
        pads = [[0, missing]] + [[0, 0]] * (tensor.shape.rank - 1)
        tensor = tf.pad(tensor, pads, constant_values=padding)
        return tf.reshape(tensor, [-1, self.size, *tensor.shape[1:]])

    def _logits(self, a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
        """[T, T] logits less the shift, `LOG_ZERO` in the window."""
        logits = tf.matmul(self.rows[a], self.columns[b], transpose_b=True)

        def beyond() -> tf.Tensor:
            column = b * self.size + tf.range(self.size)
            is_inside = (column >= self.first[a][:, tf.newaxis]) & (
                column < self.stop[a][:, tf.newaxis]
            )
            return tf.where(is_inside, log_space.LOG_ZERO, logits)

        if self.is_diagonal and isinstance(a, int):
            if a != b:
                return logits
            return tf.linalg.set_diag(
                logits, tf.fill([self.size], log_space.LOG_ZERO)
            )
        return tf.cond(self.meets[a, b], beyond, lambda: logits)

    def _exponentials(self, a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
        if not self.unrolls:
            return tf.exp(self._logits(a, b))
        if (a, b) not in self.kept:
            self.kept[a, b] = tf.exp(self._logits(a, b))
        return self.kept[a, b]

    def sums(self) -> tf.Tensor:
        """Sums of exponentials of the rows, or their logarithms, [A, T]."""
        nothing = tf.zeros(tf.shape(self.rows)[:2])
        if self.is_bounded:
            terms, add_up, add = self._exponentials, tf.reduce_sum, operator.add
        else:
            nothing += log_space.LOG_ZERO
            terms, add_up = self._logits, tf.reduce_logsumexp
            add = log_space.log_add_exp

        def tile(
            a: tf.Tensor, b: tf.Tensor
        ) -> tuple[tf.Tensor, tf.Tensor | None]:
            of_tile = terms(a, b)
            if not self.is_symmetric:
                return add_up(of_tile, axis=1), None
            of_columns = tf.where(a == b, nothing[0], add_up(of_tile, axis=0))
            return add_up(of_tile, axis=1), of_columns

        return self._over_tiles(tile, add, nothing)

    def logarithm(self, sums: tf.Tensor) -> tf.Tensor:
        """l_i of the rows, [R], from their sums."""
        sums = tf.reshape(sums, [-1])[: self.count]
        if not self.is_bounded:
            return sums
        is_some = sums > 0
        logarithms = tf.math.log(tf.where(is_some, sums, 1.0)) + self.shift
        return tf.where(is_some, logarithms, log_space.LOG_ZERO)

    def pulls(
        self,
        sums: tf.Tensor,
        upstream: tf.Tensor,
        of_columns: Callable[[tf.Tensor], tf.Tensor],
    ) -> tf.Tensor:
        """The sums over columns of dL / dz_i, less their slope, [R, D]."""
        sums = tf.reshape(sums, [-1])[: self.count]
        numbers = [upstream, sums]
        if self.is_bounded:
            numbers = [tf.math.divide_no_nan(upstream, sums)]
        weights, *logs = map(self._cut, numbers)  # [A, T]
        weights_of_columns, *logs_of_columns = weights, *logs
        if not self.is_symmetric:
            weights_of_columns, *logs_of_columns = [
                self._cut(of_columns(of_rows)) for of_rows in numbers
            ]

        def share(
            logits: tf.Tensor, weights: tf.Tensor, logs: tf.Tensor
        ) -> tf.Tensor:
            # Of a sum of nothing it is 0 * inf; an l of +inf makes it 0.
            logs = tf.where(weights == 0, -log_space.LOG_ZERO, logs)
            return weights * tf.exp(logits - logs)

        def tile(
            a: tf.Tensor, b: tf.Tensor
        ) -> tuple[tf.Tensor, tf.Tensor | None]:
            by_row = weights[a][:, tf.newaxis]
            by_column = weights_of_columns[b]
            if self.is_bounded:
                pairs = self._exponentials(a, b) * (by_row + by_column)
            else:
                logits = self._logits(a, b)
                pairs = share(logits, by_row, logs[0][a][:, tf.newaxis])
                pairs += share(logits, by_column, logs_of_columns[0][b])
            of_rows = tf.matmul(pairs, self.columns[b])
            if not self.is_symmetric or (self.unrolls and a == b):
                return of_rows, None

            def of_others() -> tf.Tensor:
                return tf.matmul(pairs, self.rows[a], transpose_a=True)

            if self.unrolls:
                return of_rows, of_others()
            nothing = tf.zeros_like(of_rows)
            return of_rows, tf.cond(a == b, lambda: nothing, of_others)

        pulls = self._over_tiles(tile, operator.add, tf.zeros_like(self.rows))
        return tf.reshape(pulls, [-1, pulls.shape[2]])[: self.count, :-2]

    def _over_tiles(
        self,
        tile: _Tile,
        add: Callable[[tf.Tensor, tf.Tensor], tf.Tensor],
        sums: tf.Tensor,
    ) -> tf.Tensor:
        """Adds to sums [A, T, ...] of the rows what every tile gives them."""
        if self.unrolls:
            return _unrolled(tile, add, self.rows.shape[0])
        column_blocks = tf.shape(self.columns)[0]

        def add_tile(
            a: tf.Tensor, b: tf.Tensor, total: tf.Tensor, sums: tf.TensorArray
        ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.TensorArray]:
            of_rows, of_columns = tile(a, b)
            if of_columns is not None:
                sums = sums.write(b, add(sums.read(b), of_columns))
            return a, b + 1, add(total, of_rows), sums

        def add_block(
            a: tf.Tensor, sums: tf.TensorArray
        ) -> tuple[tf.Tensor, tf.TensorArray]:
            _, _, total, sums = tf.while_loop(
                lambda a, b, *_: b < column_blocks,
                add_tile,
                (a, a if self.is_symmetric else 0, sums.read(a), sums),
                parallel_iterations=_TILES_AT_ONCE,
            )
            return a + 1, sums.write(a, total)

        array = tf.TensorArray(  # which a loop changes in place
            sums.dtype,
            size=tf.shape(sums)[0],
            clear_after_read=False,
            element_shape=sums.shape[1:],
        ).unstack(sums)
        blocks = tf.shape(sums)[0]
        _, array = tf.while_loop(
            lambda a, _: a < blocks, add_block, (tf.constant(0), array)
        )
        return array.stack()


def _unrolled(
    tile: _Tile,
    add: Callable[[tf.Tensor, tf.Tensor], tf.Tensor],
    blocks: int,
) -> tf.Tensor:
    """What all tiles give the rows, their own columns: [A, T, ...]."""
    parts: list[list[tf.Tensor]] = [[] for _ in range(blocks)]
    for a in range(blocks):
        for b in range(a, blocks):
            of_rows, of_columns = tile(a, b)
            parts[a].append(of_rows)
            if a != b:
                parts[b].append(of_columns)
    return tf.stack([functools.reduce(add, sums) for sums in parts])


def _count(tensor: tf.Tensor) -> int | tf.Tensor:
    count = tensor.shape[0]
    return tf.shape(tensor)[0] if count is None else count
