"""The most similar representations of a bank, exactly and in bounded memory.

Similarity is the cosine; what is given need not have unit length.

A chunk of queries meets the bank tile by tile. Most of a tile is less similar
than the k best so far and is dropped by one comparison, so that neither the
matrix of all similarities nor a copy of the bank is ever in memory, and few
numbers are left to be sorted.

The product is one of float32, whose last bits depend on the kernel that
computes a column: on the processor, the shapes, the place in the tile. What it
cannot tell apart is compared again by sums that float64 need not round.
Of equally similar rows the earlier one comes first, of equal rows in every
case: where the product in float32 leaves 4e-6 or less between two rows, cosines
decide that are rounded once, to float32. So the rows are the same on every
processor and for every chunk, as long as no product is off by more than that;
TF32, on GPUs, is.

Memory: beside the inputs and the result, which takes 8 k bytes per query, three
times, for as many threads, 8 `query_chunk` (3 k + 1,024) + 6,144 dim bytes,
however long bank and queries are: 30 MB for k = 200 and 512 dimensions. Where
many more than k rows are equally similar, it takes up to three times the memory
and five times the time.

Letters in the shapes: Q queries of a chunk, T rows of a tile.
"""

from __future__ import annotations

import concurrent.futures
import functools
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from supcon_tf import exceptions

Given = npt.ArrayLike | tf.Tensor
_Rows = npt.NDArray[np.number]
_Singles = npt.NDArray[np.float32]
_Doubles = npt.NDArray[np.float64]
# Cosine similarities, and rows of the bank.
Neighbors = tuple[_Singles, npt.NDArray[np.int32]]

_TILE = 512  # Rows: a product large enough for every core, small in memory.
_THREADS = 3  # While one sorts, which takes a core, the others multiply.
# By how much more float32 may be off for one row than for another. Measured:
# 2e-6 at most, in 4 to 8,192 dimensions, with SSE, AVX2, AVX-512 and Eigen.
_DOUBT = 4e-6
_SPARE = 8  # Rows beyond the k-th: seldom are all within the doubt of it.
_PAIRS = 128  # Rows compared again at once: few enough for a cache.


def nearest_neighbors(
    queries: Given,
    bank: Given,
    k: int,
    *,
    leave_one_out: bool = False,
    query_chunk: int = 512,
) -> Neighbors:
    """The k most similar bank rows of each query, most similar first.

    Exact, by comparing every query with every row. Of equally similar rows the
    earlier one comes first.

    Args:
      queries: [queries, dim] real, finite.
      bank: [N, dim] real, finite, N >= 1; a row of zeros is similar to nothing
        (similarity 0).
      k: positive int. More than there are means all: N, or N - 1 with
        `leave_one_out`.
      leave_one_out: whether query i is bank row i and no neighbour of itself.
        It is left out by its index: duplicates of it are neighbours. Needs as
        many queries as rows, 2 or more.
      query_chunk: positive int, queries compared at once; bounds the memory and
        does not change the result.

    Example:
      >>> from supcon_tf import measures
      >>> bank = [[1, 0], [0, 1], [5, 5]]
      >>> cosines, rows = measures.nearest_neighbors([[2, 0]], bank, k=2)
      >>> rows.tolist(), [round(float(x), 3) for x in cosines[0]]
      ([[0, 2]], [1.0, 0.707])

    Returns:
      Cosine similarities, [queries, k] float32, within 4e-6, and rows of the
      bank, [queries, k] int32.

    Raises:
      ValueError: a shape or a number breaks the rules above.
    """
    queries, bank = check_inputs(queries, bank)
    check_positive(k=k, query_chunk=query_chunk)
    exceptions.require(
        not leave_one_out or len(queries) == len(bank) >= 2,
        "`leave_one_out` must have the bank, of 2 rows or more, as queries",
        f"{len(queries)} queries and {len(bank)} rows",
    )
    k = min(k, len(bank) - leave_one_out)
    similarities = np.empty((len(queries), k), np.float32)
    indices = np.empty((len(queries), k), np.int32)

    def search_from(first: int) -> None:
        part = slice(first, first + query_chunk)
        similarities[part], indices[part] = search(
            queries[part], bank, k, first if leave_one_out else None
        )

    with concurrent.futures.ThreadPoolExecutor(_THREADS) as threads:
        # A list: without it an exception of a thread would be lost.
        list(threads.map(search_from, range(0, len(queries), query_chunk)))
    return similarities, indices


def search(
    chunk: _Rows, bank: _Rows, k: int, own_from: int | None = None
) -> Neighbors:
    """The neighbours of one chunk of queries, as `nearest_neighbors`.

    `own_from` is the bank row of query 0, where query i is row `own_from` + i
    and not a neighbour of itself.
    """
    chunk = _single(chunk)
    own, others = np.full(len(chunk), -1), len(bank)
    if own_from is not None:
        own, others = own_from + np.arange(len(chunk)), len(bank) - 1
    near = min(k + _SPARE, others)
    screen = functools.partial(_cosines, _normalize(chunk))
    found, rows = _scan(screen, bank, near, own)
    # Rows as similar as the k-th may be beyond those that were found.
    again = (found[:, k - 1] - found[:, -1] <= _DOUBT) & (near < others)
    queries, lengths = _whole(chunk)
    similarities, indices = _settle(queries, lengths, bank, found, rows)
    similarities, indices = similarities[:, :k], indices[:, :k]
    if again.any():
        queries, lengths = queries[again], lengths[again, None]

        def exact(rows: _Singles) -> _Singles:
            rows, row_lengths = _whole(rows)
            products = tf.matmul(queries, rows, transpose_b=True).numpy()
            return (products / (lengths * row_lengths)).astype(np.float32)

        similarities[again], indices[again] = _scan(exact, bank, k, own[again])
    return similarities, indices


def check_inputs(queries: Given, bank: Given) -> tuple[_Rows, _Rows]:
    """Queries and bank as matrices of one dimension, once they are usable."""
    queries, bank = check_matrix("queries", queries), check_matrix("bank", bank)
    exceptions.require(
        len(bank) > 0, "`bank` must hold at least 1 representation", 0
    )
    exceptions.require(
        queries.shape[1] == bank.shape[1],
        f"`queries` must have the dimension of the bank, {bank.shape[1]}",
        queries.shape[1],
    )
    return queries, bank


def check_matrix(name: str, rows: Given) -> _Rows:
    """The rows as a finite matrix; an array is not copied."""
    rows = np.asarray(rows)
    exceptions.require(
        rows.ndim == 2, f"`{name}` must have shape [rows, dim]", rows.shape
    )
    # Float64 may be beyond float32, in which all is compared; NaN is no number.
    most = np.finfo(np.float32).max
    exceptions.require(
        rows.max(initial=0) <= most and rows.min(initial=0) >= -most,
        f"`{name}` must be finite",
        "NaN or infinity",
    )
    return rows


def check_positive(**values: float) -> None:
    """Raises for the first of the named values that is not positive."""
    for name, value in values.items():
        exceptions.require(value > 0, f"`{name}` must be positive", value)


def unit_rows(name: str, rows: Given) -> _Singles:
    """The rows of a finite matrix, in float32 and at unit length."""
    rows = check_matrix(name, rows)
    unit = np.empty(rows.shape, np.float32)
    for first in range(0, len(rows), _TILE):
        part = slice(first, first + _TILE)
        unit[part] = _normalize(_single(rows[part]))
    return unit


class _Candidates:
    """The best of what a chunk of queries has met, and what may be.

    Columns hold the k best in order, then later candidates by their index; a
    stable sort so keeps earlier rows first among equals.
    """

    def __init__(self, num_queries: int, k: int):
        self._k = k
        shape = (num_queries, 2 * k + _TILE)
        self._similarities = np.full(shape, -np.inf, np.float32)
        self._indices = np.zeros(shape, np.int32)
        self._counts = np.zeros(num_queries, np.int64)
        # Where there are k, an equal one of a later index is not among them.
        self._exceeded = np.full(num_queries, -np.inf, np.float32)

    def add(self, tile: _Singles, start: int) -> None:
        """Takes from a tile [Q, T] of bank rows `start`.. what may be best."""
        if not self._counts.any() and tile.shape[1] > self._k:
            # Most of the first need not be sorted either.
            kth = np.partition(tile, -self._k, axis=1)[:, -self._k]
            self._exceeded = kth - _DOUBT
        exceeding = np.flatnonzero(tile > self._exceeded[:, None])
        rows, columns = np.divmod(exceeding, tile.shape[1])
        counts = np.bincount(rows, minlength=len(self._counts))
        # Rank within its row, after what the row holds.
        ranks = np.arange(len(rows)) - (np.cumsum(counts) - counts)[rows]
        places = self._counts[rows] + ranks
        self._similarities[rows, places] = tile[rows, columns]
        self._indices[rows, places] = start + columns
        self._counts += counts
        if self._counts.max() > 2 * self._k:
            self.keep_best()

    def keep_best(self) -> Neighbors:
        """Drops all but the k best, [Q, k] similarities and bank rows."""
        k, used = self._k, self._counts.max()
        found = self._similarities[:, :used]
        order = np.argsort(-found, axis=1, kind="stable")[:, :k]
        self._indices[:, :k] = np.take_along_axis(self._indices, order, axis=1)
        self._similarities[:, :k] = np.take_along_axis(found, order, axis=1)
        self._similarities[:, k:used] = -np.inf
        self._counts[:] = k
        self._exceeded = self._similarities[:, k - 1].copy()
        return self._similarities[:, :k], self._indices[:, :k]


def _scan(
    cosines: Callable[[_Singles], npt.ArrayLike],
    bank: _Rows,
    k: int,
    own: npt.NDArray[np.integer],
) -> Neighbors:
    """The k best of the bank but row `own`, by the cosines [Q, T] of tiles."""
    found = _Candidates(len(own), k)
    for start in range(0, len(bank), _TILE):
        tile = np.array(cosines(_single(bank[start : start + _TILE])))
        column = own - start
        (inside,) = np.nonzero((column >= 0) & (column < tile.shape[1]))
        tile[inside, column[inside]] = -np.inf
        found.add(tile, start)
    return found.keep_best()


def _settle(
    queries: _Doubles,
    lengths: _Doubles,
    bank: _Rows,
    similarities: _Singles,
    indices: npt.NDArray[np.int32],
) -> Neighbors:
    """What was found, in order once those that are close are compared again."""
    similarities = similarities.copy()
    close = np.zeros((len(queries), indices.shape[1] + 1), bool)
    close[:, 1:-1] = similarities[:, :-1] - similarities[:, 1:] <= _DOUBT
    pairs = np.argwhere(close[:, 1:] | close[:, :-1])
    for first in range(0, len(pairs), _PAIRS):
        query, place = pairs[first : first + _PAIRS].T
        rows, row_lengths = _whole(_single(bank[indices[query, place]]))
        products = np.einsum("pd,pd->p", queries[query], rows)
        similarities[query, place] = products / (lengths[query] * row_lengths)
    order = np.lexsort([indices, -similarities], axis=1)
    return tuple(
        np.take_along_axis(found, order, axis=1)
        for found in (similarities, indices)
    )


def _whole(rows: _Singles) -> tuple[_Doubles, _Doubles]:
    """Rows as whole numbers, each in a scale of its own, and their lengths.

    None is longer than 2^26, so that no sum of products of two goes beyond
    2^53: float64 holds it without rounding, in whatever order it is added up.
    """
    rows = rows.astype(np.float64)
    _, exponents = np.frexp(np.linalg.norm(rows, axis=1))
    rows *= np.ldexp(1.0, 26 - exponents)[:, None]
    np.rint(rows, out=rows)
    return rows, np.maximum(np.linalg.norm(rows, axis=1), 1)


def _single(rows: _Rows) -> _Singles:
    """In float32; not copied where it is."""
    return rows.astype(np.float32, copy=False)


_MATRIX = tf.TensorSpec([None, None], tf.float32)


@tf.function(input_signature=[_MATRIX])
def _normalize(rows: tf.Tensor) -> tf.Tensor:
    """Rows at unit length; a row of zeros stays."""
    # The default epsilon, 1e-12 on the squared norm, would leave rows shorter
    # than 1e-6 as they are.
    return tf.math.l2_normalize(rows, axis=-1, epsilon=1e-24)


@tf.function(input_signature=[_MATRIX, _MATRIX])
def _cosines(chunk: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
    """[Q, T] similarities of unit-length queries and bank rows of any."""
    return tf.matmul(chunk, _normalize(rows), transpose_b=True)
