"""Log-sum-exp of similarities beyond a window, tile by tile, and its gradient.

With s_ij = scale * z_i . c_j for R rows z_i and M columns c_j, of which a part,
slope * z_i . c_j, has a gradient, and a window of columns W(i) = first_i ..
stop_i - 1 for each row:

  l_i       = log( sum_{j not in W(i)} exp(s_ij) )
  dL / dz_i = slope * sum_{j not in W(i)} w_i exp(s_ij - l_i) c_j
  dL / dc_j = slope * sum_{i: j not in W(i)} w_i exp(s_ij - l_i) z_i

where w_i = dL / dl_i of whatever comes after.

No matrix of rows x columns is made. Where the rows are the columns, s is
symmetric, and so must be the window: the tiles on and above the diagonal serve
their rows and their columns, in the same pass.

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

# Adds what tiles give: functions of the numbers of a block of rows and of one
# of columns, to what the rows get and what the columns get.
_Tile = Callable[..., tuple[tf.Tensor, tf.Tensor]]


def log_sum_exp(
    rows: tf.Tensor,
    columns: tf.Tensor | None,
    window: tuple[tf.Tensor, tf.Tensor] | None,
    *,
    scale: float,
    slope: float,
    unit_length: bool,
    hidden: tf.Tensor | None = None,
    tile_rows: int | None = None,
) -> tf.Tensor:
    """l_i of the rows, with a gradient for rows and columns.

    Args:
      rows: [R, D] float32.
      columns: [M, D] float32; None for the rows themselves.
      window: first_i and stop_i, [R] int32 each; None for i and i + 1.
      scale: of the products.
      slope: the part of it that has a gradient.
      unit_length: a promise that all vectors have at most length 1.
      hidden: [M] bool, columns that no sum has; None for no such column.
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
    unroll = blocks is not None
    is_symmetric = columns is None
    vectors = (rows,) if is_symmetric else (rows, columns)

    @tf.custom_gradient
    def compute(*vectors: tf.Tensor) -> tuple:
        tiles = _Tiles(
            *vectors,
            window=window,
            scale=scale,
            slope=slope,
            hidden=hidden,
            is_bounded=is_bounded,
            tile_rows=tile_rows or _TILE_ROWS,
            keep=unroll,
        )
        over_tiles = functools.partial(
            _unrolled if unroll else _looped, is_symmetric=is_symmetric
        )
        sums = tiles.sums(over_tiles)
        values = tiles.logarithm(sums)

        def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, ...]:
            return tiles.gradient(over_tiles, sums, upstream)

        return values, gradient

    return compute(*vectors)


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
        columns: tf.Tensor | None = None,
        *,
        window: tuple[tf.Tensor, tf.Tensor] | None,
        scale: float,
        slope: float,
        hidden: tf.Tensor | None,
        is_bounded: bool,
        tile_rows: int,
        keep: bool,
    ) -> None:
        self.is_symmetric = columns is None
        columns = rows if columns is None else columns
        self.count, self.column_count = _count(rows), _count(columns)
        is_static = isinstance(self.count, int)
        self.size = (min if is_static else tf.minimum)(tile_rows, self.count)
        self.is_bounded = is_bounded
        self.shift = scale if is_bounded else 0.0
        self.root = math.sqrt(scale)
        self.slope = slope
        if hidden is None:
            hidden = tf.zeros([self.column_count], bool)
        zero = log_space.LOG_ZERO
        u = self._cut(tf.zeros([self.count, 1]), zero)
        v = tf.where(hidden, zero, -self.shift)[:, tf.newaxis]
        v = self._cut(v, zero)
        one_of_rows, one_of_columns = tf.ones_like(u), tf.ones_like(v)
        rows, columns = (self._cut(self.root * x) for x in (rows, columns))
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
        # (a, b) -> exponentials [T, T]
        self.kept: dict[tuple[int, int], tf.Tensor] | None = (
            {} if keep else None
        )

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
        if self.kept is None:
            return tf.exp(self._logits(a, b))
        if (a, b) not in self.kept:
            self.kept[a, b] = tf.exp(self._logits(a, b))
        return self.kept[a, b]

    def sums(self, over_tiles: Callable[..., tuple]) -> tf.Tensor:
        """Sums of exponentials of the rows, or their logarithms, [A, T]."""

        def tile(a: tf.Tensor, b: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            if self.is_bounded:
                terms, add_up = self._exponentials(a, b), tf.reduce_sum
            else:
                terms, add_up = self._logits(a, b), tf.reduce_logsumexp
            nothing = tf.fill(tf.shape(terms)[:1], empty)
            if not self.is_symmetric:
                return add_up(terms, axis=1), nothing
            of_columns = add_up(terms, axis=0)
            return add_up(terms, axis=1), tf.where(a == b, nothing, of_columns)

        empty = 0.0 if self.is_bounded else log_space.LOG_ZERO
        add = operator.add if self.is_bounded else log_space.log_add_exp
        start = (
            tf.fill(tf.shape(x)[:2], empty) for x in (self.rows, self.columns)
        )
        return over_tiles(tile, add, *start)[0]

    def logarithm(self, sums: tf.Tensor) -> tf.Tensor:
        """l_i of the rows, [R], from their sums."""
        sums = tf.reshape(sums, [-1])[: self.count]
        if not self.is_bounded:
            return sums
        is_some = sums > 0
        logarithms = tf.math.log(tf.where(is_some, sums, 1.0)) + self.shift
        return tf.where(is_some, logarithms, log_space.LOG_ZERO)

    def gradient(
        self,
        over_tiles: Callable[..., tuple],
        sums: tf.Tensor,
        upstream: tf.Tensor,
    ) -> tuple[tf.Tensor, ...]:
        """DL / dz, and dL / dc where columns are others, from w_i [R]."""
        weights = self._cut(upstream)  # [A, T]
        if self.is_bounded:
            weights = tf.math.divide_no_nan(weights, sums)
        # exp(s - l) of a sum of nothing is 0 * inf: an l of +inf makes it 0.
        logs = tf.where(weights == 0, -log_space.LOG_ZERO, sums)

        def tile(a: tf.Tensor, b: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            by_row = weights[a][:, tf.newaxis]
            if self.is_bounded:
                by_pair = by_row + weights[b] if self.is_symmetric else by_row
                pulls = self._exponentials(a, b) * by_pair
            else:
                logits = self._logits(a, b)
                pulls = by_row * tf.exp(logits - logs[a][:, tf.newaxis])
                if self.is_symmetric:
                    pulls += weights[b] * tf.exp(logits - logs[b])
            of_rows = tf.matmul(pulls, self.columns[b])

            def of_columns() -> tf.Tensor:
                return tf.matmul(pulls, self.rows[a], transpose_a=True)

            if not self.is_symmetric:
                return of_rows, of_columns()
            if isinstance(a, int):
                nothing = tf.zeros_like(of_rows)
                return of_rows, nothing if a == b else of_columns()
            return of_rows, tf.cond(
                a == b, lambda: tf.zeros_like(of_rows), of_columns
            )

        start = map(tf.zeros_like, (self.rows, self.columns))
        pulls = over_tiles(tile, operator.add, *start)
        counts = self.count, self.column_count
        return tuple(
            self.slope
            / self.root
            * tf.reshape(x, [-1, x.shape[2]])[:count, :-2]
            for x, count in zip(pulls, counts, strict=False)
        )


def _count(tensor: tf.Tensor) -> int | tf.Tensor:
    count = tensor.shape[0]
    return tf.shape(tensor)[0] if count is None else count


def _unrolled(
    tile: _Tile,
    add: Callable[[tf.Tensor, tf.Tensor], tf.Tensor],
    rows: tf.Tensor,
    columns: tf.Tensor,
    is_symmetric: bool,
) -> tuple[tf.Tensor, ...]:
    """`_looped` of rows that are their own columns, in one graph."""
    del columns, is_symmetric
    blocks = range(rows.shape[0])
    parts: list[list[tf.Tensor]] = [[] for _ in blocks]
    for a in blocks:
        for b in blocks[a:]:
            of_rows, of_columns = tile(a, b)
            parts[a].append(of_rows)
            if a != b:
                parts[b].append(of_columns)
    return (tf.stack([functools.reduce(add, x) for x in parts]),)


def _looped(
    tile: _Tile,
    add: Callable[[tf.Tensor, tf.Tensor], tf.Tensor],
    rows: tf.Tensor,
    columns: tf.Tensor,
    is_symmetric: bool,
) -> tuple[tf.Tensor, ...]:
    """Adds what every tile gives its rows and its columns.

    Args:
      tile: what a tile gives.
      add: of two such.
      rows: [A, T, ...] to add to.
      columns: [B, T, ...] to add to.
      is_symmetric: rows and columns are the same; only `rows` is added to.

    Returns:
      The sums of the rows, and of the columns where they are others.
    """
    blocks, column_blocks = (tf.shape(x)[0] for x in (rows, columns))
    of_rows = _array(rows)
    of_columns = of_rows if is_symmetric else _array(columns)

    def add_tile(
        a: tf.Tensor, b: tf.Tensor, total: tf.Tensor, sums: tf.TensorArray
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.TensorArray]:
        to_rows, to_columns = tile(a, b)
        sums = sums.write(b, add(sums.read(b), to_columns))
        return a, b + 1, add(total, to_rows), sums

    def add_block(
        a: tf.Tensor, *arrays: tf.TensorArray
    ) -> tuple[tf.Tensor | tf.TensorArray, ...]:
        first = a if is_symmetric else 0
        _, _, total, sums = tf.while_loop(
            lambda a, b, *_: b < column_blocks,
            add_tile,
            (a, first, arrays[0].read(a), arrays[-1]),
            parallel_iterations=_TILES_AT_ONCE,
        )
        if is_symmetric:
            return a + 1, sums.write(a, total)
        return a + 1, arrays[0].write(a, total), sums

    arrays = (of_rows,) if is_symmetric else (of_rows, of_columns)
    _, *arrays = tf.while_loop(
        lambda a, *_: a < blocks, add_block, (tf.constant(0), *arrays)
    )
    return tuple(array.stack() for array in arrays)


def _array(tensor: tf.Tensor) -> tf.TensorArray:
    """What a loop changes in place."""
    return tf.TensorArray(
        tensor.dtype,
        size=tf.shape(tensor)[0],
        clear_after_read=False,
        element_shape=tensor.shape[1:],
    ).unstack(tensor)
