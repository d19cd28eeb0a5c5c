"""Anchors and contrasts, cut into tiles, and what a tile has of their sets.

Letters in the shapes: R rows, which are anchors, M columns, the rows first, D
dimensions, T rows of a tile. Vectors carry two more numbers, [z / tau, 1, u]
and [z, v, 1], so that the product is s + u + v in one pass: u and v hide
padding, and v shifts.

Rows and columns are sorted by a key, so that few tiles have pairs of equal
keys. All other pairs are contrasts, and take no comparison.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import tensorflow as tf

from supcon_tf.losses import log_space, positive_weights

# exp(-80) = 1.8e-35 is a normal float32: while |s| <= c <= 40, no term of a sum
# of exp(s - c) is lost.
_LARGEST_SHIFT = 40.0


@dataclasses.dataclass(frozen=True)
class Sets:
    """Which columns are positives and negatives of each other.

    Attributes:
      keys: [M] int32: columns are positives only where these are equal.
      marks: the numbers of the columns; marks of `positives`; and for a cap
        the place in the class, and how many of the class are of the batch.
      positives: how much samples weigh as positives of each other.
      views: V.
      cap: of |P(i)|, or None.
      batch: columns that are of the batch.
      queued: those behind them.
    """

    keys: tf.Tensor
    marks: tuple[tf.Tensor, ...]
    positives: positive_weights.Weights
    views: int
    cap: int | None
    batch: int | tf.Tensor
    queued: int

    def weights(
        self, a: tuple[tf.Tensor, ...], b: tuple[tf.Tensor, ...]
    ) -> tf.Tensor:
        """[A, B] float32: how much b weigh in P(i) of a, by their marks."""
        kept = a[0][:, tf.newaxis] != b[0]
        if self.cap is not None:
            kept &= self._within_cap(a, b)
        return tf.where(kept, self.positives.weigh(a[1], b[1]), 0.0)

    def contrasted(
        self, a: tuple[tf.Tensor, ...], b: tuple[tf.Tensor, ...]
    ) -> tf.Tensor:
        """[A, B] bool: which b are negatives of a, by their marks."""
        is_other = a[0][:, tf.newaxis] != b[0]
        return is_other & (self.positives.weigh(a[1], b[1]) == 0)

    def _within_cap(
        self, a: tuple[tf.Tensor, ...], b: tuple[tf.Tensor, ...]
    ) -> tf.Tensor:
        """Marks what a cap leaves of a class, and the anchor, as `pairs` does.

        The own views, and those of the next in cyclic order; of a queue the
        first, counted from the end of the cycle.
        """
        number, _, place, in_cycle = a
        start = place - number % self.views
        last = tf.constant(self.cap + 1)
        after = b[2] - start[:, tf.newaxis]
        kept = (after < (last - in_cycle)[:, tf.newaxis]) | (
            (after >= 0) & (after < last)
        )
        if not self.queued:
            return kept
        return tf.where(b[0] < self.batch, kept, b[2] < last)


def make_sets(
    positives: positive_weights.Weights,
    *,
    hidden: tf.Tensor,
    views: int = 1,
    queued: int = 0,
    cap: int | None = None,
) -> Sets:
    """The sets of the views of S samples and of a queue behind them.

    Args:
      positives: of the samples, and of the rows of the queue.
      hidden: [M] bool, what is no contrast at all.
      views: V.
      queued: rows of the queue.
      cap: of |P(i)|, for one label per sample, or None.
    """
    marks = positives.marks
    of_batch = tf.shape(marks)[0] - queued
    marks = tf.concat(
        [tf.repeat(marks[:of_batch], views, axis=0), marks[of_batch:]], axis=0
    )
    columns = tf.range(tf.shape(marks)[0])
    batch = of_batch * views
    keys = tf.zeros_like(columns)
    if isinstance(positives, positive_weights.Classes):
        # Those that are not there are no one's positives, and come last.
        keys = marks = tf.where(hidden, tf.size(marks), marks)
    of_cap = ()
    if cap is not None:
        counts, of_batch = (
            tf.math.unsorted_segment_sum(ones, keys, tf.size(keys) + 1)
            for ones in (tf.ones_like(keys), tf.cast(columns < batch, tf.int32))
        )
        order = tf.argsort(keys, stable=True)
        first = tf.gather(tf.cumsum(counts, exclusive=True), keys)
        of_cap = _inverse(order) - first, tf.gather(of_batch, keys)
    return Sets(
        keys=keys,
        marks=(columns, marks, *of_cap),
        positives=positives,
        views=views,
        cap=cap,
        batch=batch,
        queued=queued,
    )


@dataclasses.dataclass(frozen=True)
class Side:
    """The rows of the matrix of pairs, or its columns: N vectors.

    Attributes:
      vectors: [N / T, T, D + 2] float32, sorted by their keys, padded.
      marks: of the sets, [N / T, T, ...] each.
      order: [N] int32, which vector is at each place.
    """

    vectors: tf.Tensor
    marks: tuple[tf.Tensor, ...]
    order: tf.Tensor

    def cut(self, numbers: tf.Tensor) -> tf.Tensor:
        """Numbers [N or more] of the vectors, [N / T, T]."""
        numbers = tf.gather(numbers, self.order)
        return _cut(numbers, tf.shape(self.vectors)[1])

    def join(self, tiles: tf.Tensor) -> tf.Tensor:
        """[N, ...] of the vectors, in their order, from [N / T, T, ...]."""
        flat = tf.reshape(tiles, [-1, *tiles.shape[2:]])
        return tf.gather(flat, _inverse(self.order))


@dataclasses.dataclass(frozen=True)
class Tiling:
    """All pairs, cut into tiles.

    Attributes:
      rows, columns: the sides, in tiles of the same size.
      mixed: [R / T, M / T] bool: which tiles may have pairs of equal keys.
      sets: what the anchors are contrasted with.
      temperature: tau.
      symmetric: rows and columns are the same vectors.
      one_shift: scalar bool: logits come shifted by `shift` and lie in
        [-80, 0], so that their plain exponentials neither overflow nor vanish.
      shift: scalar float32, subtracted from all logits; 0 without `one_shift`.
    """

    rows: Side
    columns: Side
    mixed: tf.Tensor
    sets: Sets
    temperature: float
    symmetric: bool
    one_shift: tf.Tensor
    shift: tf.Tensor

    def logits(self, a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
        """[T, T] logits of a tile, less `shift`."""
        rows, columns = self.rows.vectors, self.columns.vectors
        return tf.matmul(rows[a], columns[b], transpose_b=True)

    def both_ways(
        self, of_sets: Callable[..., tf.Tensor], a: tf.Tensor, b: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """What `Sets.weights` or `Sets.contrasted` say of a tile, [T, T] each.

        With its rows as anchors, and with its columns as anchors: the same
        tensor where both agree.
        """
        rows = tuple(x[a] for x in self.rows.marks)
        columns = tuple(x[b] for x in self.columns.marks)
        by_row = of_sets(rows, columns)
        is_given = isinstance(self.sets.positives, positive_weights.Given)
        is_capped = self.sets.cap is not None and of_sets == self.sets.weights
        if not (is_given or is_capped):
            return by_row, by_row
        return by_row, tf.transpose(of_sets(columns, rows))


def fits_one_shift(largest: float | tf.Tensor) -> bool | tf.Tensor:
    """Whether logits up to `largest` can be shifted by that one number."""
    return largest <= _LARGEST_SHIFT


def make_tiling(
    rows: tf.Tensor,
    columns: tf.Tensor,
    sets: Sets,
    *,
    hidden: tf.Tensor,
    temperature: float,
    tile_rows: int,
    symmetric: bool,
) -> Tiling:
    """Cuts rows [R, D] and columns [M, D], of which the rows come first.

    Those that are `hidden`, [M] bool, add nothing to any sum.
    """
    count = tf.shape(rows)[0]
    tile_rows = tf.minimum(tile_rows, count)
    # Bounds |s|, for the rows are among the columns.
    squares = tf.reduce_sum(tf.square(columns), axis=1)
    largest = tf.reduce_max(squares) / temperature
    one_shift = fits_one_shift(largest)
    shift = tf.where(one_shift, largest, 0.0)
    hide = tf.where(hidden, log_space.LOG_ZERO, 0.0)[:, tf.newaxis]
    ones = tf.ones_like(hide)
    left = [rows / temperature, ones[:count], hide[:count]]
    right = [columns, hide - shift, ones]
    rows, row_keys = _make_side(
        left, [0.0, 1.0, log_space.LOG_ZERO], sets, tile_rows
    )
    columns, column_keys = _make_side(
        right, [0.0, log_space.LOG_ZERO, 1.0], sets, tile_rows
    )
    mixed = (row_keys[:, :1] <= column_keys[:, -1]) & (
        row_keys[:, -1:] >= column_keys[:, 0]
    )
    return Tiling(
        rows=rows,
        columns=columns,
        mixed=mixed,
        sets=sets,
        temperature=temperature,
        symmetric=symmetric,
        one_shift=one_shift,
        shift=shift,
    )


def _make_side(
    parts: list[tf.Tensor], padding: list[float], sets: Sets, tile_rows: int
) -> tuple[Side, tf.Tensor]:
    """A side of the first vectors of the sets, and their keys [N / T, T]."""
    keys = sets.keys[: tf.shape(parts[0])[0]]
    order = tf.argsort(keys, stable=True)

    def cut(tensor: tf.Tensor, value: float) -> tf.Tensor:
        return _cut(tf.gather(tensor, order), tile_rows, value)

    vectors = [cut(x, v) for x, v in zip(parts, padding, strict=True)]
    marks = [cut(x, positive_weights.PADDING[x.dtype]) for x in sets.marks]
    side = Side(tf.concat(vectors, axis=2), tuple(marks), order)
    return side, cut(keys, tf.int32.max)


def _cut(
    tensor: tf.Tensor, tile_rows: int | tf.Tensor, value: float = 0
) -> tf.Tensor:
    """[N, ...] as tiles [ceil(N / T), T, ...], padded with a value."""
    missing = -tf.shape(tensor)[0] % tile_rows
    pads = [[0, missing]] + [[0, 0]] * (tensor.shape.rank - 1)
    tensor = tf.pad(tensor, pads, constant_values=value)
    return tf.reshape(tensor, [-1, tile_rows, *tensor.shape[1:]])


def _inverse(order: tf.Tensor) -> tf.Tensor:
    """Where each number of a permutation [N] is."""
    numbers = tf.range(tf.shape(order)[0])
    return tf.scatter_nd(order[:, tf.newaxis], numbers, tf.shape(order))
