"""The most similar representations of a bank, exactly and in bounded memory.

Similarity is the cosine; queries and bank need not have unit length.

A chunk of queries meets the bank tile by tile. Most of a tile is less similar
than the k best so far and is dropped by one comparison, so that neither the
matrix of all similarities nor a copy of the bank is ever in memory, and few
numbers are left to be sorted.

The matrix product is in float32, whose last bits depend on the kernel that
computes a column: on the processor, the shapes, the position in the tile. Rows
within 4e-6 of each other in this product are compared again by exact sums in
float64, rounded once, to float32. Of equally similar rows the earlier one comes
first, and so of equal rows in every case. The result is the same on every
processor and for every chunk, as long as no product is off by more than 4e-6.

Memory: the inputs, the result of 8 k bytes per query, and for each thread 8
`query_chunk` (3 k + 1,024) + 6,144 dim bytes, however long bank and queries
are: 10 MB for k = 200 and 512 dimensions. Each core has a thread, up to eight.
Where many more than k rows are equally similar, a search takes up to three
times the memory and five times the time.

Letters in the shapes: Q queries of a chunk, T rows of a tile, K candidates of a
query, P pairs of a query and a candidate.
"""

from __future__ import annotations

import concurrent.futures
import functools
from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt
import tensorflow as tf
import threadpoolctl

from supcon_tf import exceptions
from supcon_tf.host import cores

Matrix = npt.ArrayLike | tf.Tensor
_Rows = npt.NDArray[np.number]
_Float32s = npt.NDArray[np.float32]
_Float64s = npt.NDArray[np.float64]
# Cosine similarities, and rows of the bank.
Neighbors = tuple[_Float32s, npt.NDArray[np.int32]]

_TILE = 512  # rows: a product large enough for every core, small in memory
_MOST_THREADS = 8  # each needs memory for a chunk of queries
# Bound on the difference of the float32 errors of two rows. Measured: 2e-6 at
# most, in 4 to 8,192 dimensions, with SSE, AVX2, AVX-512 and Eigen.
_TOLERANCE = 4e-6
# Candidates beyond the k-th: seldom are all of these within the tolerance.
_SPARE_CANDIDATES = 8
_PAIRS_AT_ONCE = 128  # compared again: few enough for a cache
# Of a row's length. The sum of the squares of a shorter or longer row could
# leave the range of float32, so that such rows are scaled first. TensorFlow's
# default, 1e-12, would leave rows shorter than 1e-6 as they are.
_LEAST_SQUARE, _LARGEST_SQUARE = 1e-24, 1e24


def nearest_neighbors(
    queries: Matrix,
    bank: Matrix,
    k: int,
    *,
    leave_one_out: bool = False,
    query_chunk: int = 512,
) -> Neighbors:
    """The k most similar bank rows of each query, most similar first.

    The search is exact: it compares every query with every row. Of equally
    similar rows the earlier one comes first.

    Args:
      queries: [queries, dim] real, finite.
      bank: [N, dim] real, finite, N >= 1; a row of zeros is similar to nothing
        (similarity 0).
      k: positive int. A larger k means all rows: N, or N - 1 with
        `leave_one_out`.
      leave_one_out: whether query i is bank row i and no neighbour of itself.
        The row is left out by its index: its duplicates are neighbours. Needs
        as many queries as rows, 2 or more.
      query_chunk: positive int, queries compared at once; bounds the memory and
        does not change the result.

    Example:
      >>> from supcon_tf import measures
      >>> bank = [[1, 0], [0, 1], [5, 5]]
      >>> cosines, rows = measures.nearest_neighbors([[2, 0]], bank, k=2)
      >>> rows.tolist(), [round(float(cosine), 3) for cosine in cosines[0]]
      ([[0, 2]], [1.0, 0.707])

    Returns:
      Cosine similarities, [queries, k] float32, within 4e-6, and rows of the
      bank, [queries, k] int32.

    Raises:
      ValueError: a shape or a number breaks the rules above.
    """
    queries, bank = check_inputs(queries, bank)
    check_counts(k=k, query_chunk=query_chunk)
    exceptions.require(
        not leave_one_out or len(queries) == len(bank) >= 2,
        "`leave_one_out` must have the bank, of 2 rows or more, as queries",
        f"{len(queries)} queries and {len(bank)} rows",
    )
    k = min(k, len(bank) - leave_one_out)
    similarities = np.empty((len(queries), k), np.float32)
    indices = np.empty((len(queries), k), np.int32)

    def search_part(part: slice) -> None:
        similarities[part], indices[part] = search(  # [Q, k] each
            queries[part], bank, k, part.start if leave_one_out else None
        )

    parts = [*chunks(len(queries), query_chunk)]
    if len(parts) < 2:
        list(map(search_part, parts))  # a lone query waits for no threads
        return similarities, indices
    num_cores = cores.usable()
    num_threads = min(len(parts), num_cores, _MOST_THREADS)
    # Products of several threads at once would wait for one another's cores.
    with (
        threadpoolctl.threadpool_limits(num_cores // num_threads, "blas"),
        concurrent.futures.ThreadPoolExecutor(num_threads) as threads,
    ):
        # Without `list`, an exception of a thread would be lost.
        list(threads.map(search_part, parts))
    return similarities, indices


def nearest_among(
    queries: Matrix, bank: Matrix, candidates: npt.ArrayLike, k: int
) -> Neighbors:
    """The k most similar of some bank rows of each query, most similar first.

    Args:
      queries: [queries, dim] real, finite.
      bank: [N, dim] real, finite.
      candidates: [queries, K] integers, rows of the bank; -1 for none. Each
        query has k or more, all different.
      k: positive int.

    Example:
      >>> from supcon_tf import measures
      >>> bank = [[1, 0], [0, 1], [5, 5]]
      >>> cosines, rows = measures.nearest_among([[2, 0]], bank, [[1, 2]], k=1)
      >>> rows.tolist(), round(float(cosines[0, 0]), 3)
      ([[2]], 0.707)

    Returns:
      As `nearest_neighbors`, which finds the same where `candidates` has all
      rows.

    Raises:
      ValueError: a shape or a number breaks the rules above.
    """
    queries, bank = check_inputs(queries, bank)
    candidates = np.asarray(candidates)
    check_counts(k=k)
    exceptions.require(
        candidates.ndim == 2 and len(candidates) == len(queries),
        f"`candidates` must have shape [{len(queries)}, candidates]",
        candidates.shape,
    )
    least = int((candidates >= 0).sum(axis=1).min(initial=k))
    exceptions.require(
        least >= k, f"`candidates` must have {k} rows of each query", least
    )
    similarities = np.empty((len(queries), k), np.float32)
    indices = np.empty((len(queries), k), np.int32)
    for query, rows in enumerate(candidates):
        rows = np.sort(rows[rows >= 0])  # [K], the earlier of equal rows first
        integers, lengths = _to_integers(_to_float32(bank[rows]))
        (query_integers,), (query_length,) = _to_integers(
            _to_float32(queries[query : query + 1])
        )
        cosines = integers @ query_integers / (lengths * query_length)
        cosines = cosines.astype(np.float32)
        _check_cosines(cosines)
        order = np.argsort(-cosines, kind="stable")[:k]
        similarities[query], indices[query] = cosines[order], rows[order]
    return similarities, indices


def search(
    chunk: _Rows, bank: _Rows, k: int, first_own_row: int | None = None
) -> Neighbors:
    """Returns the neighbours of one chunk of queries, as `nearest_neighbors`.

    With `first_own_row`, query i is bank row `first_own_row` + i and no
    neighbour of itself.
    """
    chunk = _to_float32(chunk)  # [Q, dim]
    excluded_rows, num_rows = np.full(len(chunk), -1), len(bank)
    if first_own_row is not None:
        excluded_rows = first_own_row + np.arange(len(chunk))
        num_rows -= 1
    num_candidates = min(k + _SPARE_CANDIDATES, num_rows)  # K
    approximate_cosines = functools.partial(
        _cosines, _normalize(_scaled(chunk)).numpy()
    )
    similarities, indices = _scan(  # [Q, K] each
        approximate_cosines, bank, num_candidates, excluded_rows
    )
    # A query is undecided where all candidates behind the k-th are as similar
    # as it is: rows that are no candidates may be so too.
    is_undecided = similarities[:, k - 1] - similarities[:, -1] <= _TOLERANCE
    is_undecided &= num_candidates < num_rows
    queries, lengths = _to_integers(chunk)
    similarities, indices = _sort_exactly(
        queries, lengths, bank, similarities, indices
    )
    similarities, indices = similarities[:, :k], indices[:, :k]
    if is_undecided.any():
        queries, lengths = queries[is_undecided], lengths[is_undecided, None]

        def exact_cosines(tile: _Float32s) -> _Float32s:
            rows, row_lengths = _to_integers(tile)
            products = tf.matmul(queries, rows, transpose_b=True).numpy()
            # [Q, T]
            return (products / (lengths * row_lengths)).astype(np.float32)

        similarities[is_undecided], indices[is_undecided] = _scan(
            exact_cosines, bank, k, excluded_rows[is_undecided]
        )
    return similarities, indices


def check_inputs(queries: Matrix, bank: Matrix) -> tuple[_Rows, _Rows]:
    """Checks queries, and the shape of the bank, which may be on disk.

    Its numbers are checked where they are read, by `_check_cosines`.
    """
    queries, bank = check_matrix("queries", queries), np.asanyarray(bank)
    exceptions.require(
        bank.ndim == 2, "`bank` must have shape [rows, dim]", bank.shape
    )
    exceptions.require(
        len(bank) > 0, "`bank` must hold at least 1 representation", 0
    )
    exceptions.require(
        queries.shape[1] == bank.shape[1],
        f"`queries` must have the dimension of the bank, {bank.shape[1]}",
        queries.shape[1],
    )
    return queries, bank


def _check_cosines(cosines: _Float32s) -> None:
    """Raises ValueError where a row of the bank was not finite."""
    exceptions.require(
        np.isfinite(cosines).all(), "`bank` must be finite", "NaN or infinity"
    )


def check_matrix(name: str, rows: Matrix) -> _Rows:
    """Checks that the rows are a finite matrix; an array is not copied."""
    rows = np.asarray(rows)
    exceptions.require(
        rows.ndim == 2, f"`{name}` must have shape [rows, dim]", rows.shape
    )
    # All rows are compared in float32, so float64 must be within its range; a
    # comparison with NaN is False.
    largest = np.finfo(np.float32).max
    exceptions.require(
        rows.max(initial=0) <= largest and rows.min(initial=0) >= -largest,
        f"`{name}` must be finite",
        "NaN or infinity",
    )
    return rows


def check_positive(**values: float) -> None:
    """Raises ValueError for the first value that is not positive, by name."""
    for name, value in values.items():
        exceptions.require(value > 0, f"`{name}` must be positive", value)


def check_counts(**values: int) -> None:
    """Raises ValueError for the first value that is no positive integer."""
    for name, value in values.items():
        exceptions.require(
            isinstance(value, int | np.integer) and not isinstance(value, bool),
            f"`{name}` must be an integer",
            repr(value),
        )
    check_positive(**values)


def chunks(count: int, size: int = 2**16) -> Iterator[slice]:
    """Divides rows into parts of `size`: one at a time bounds the memory."""
    for first in range(0, count, size):
        yield slice(first, min(first + size, count))


def unit_rows(name: str, rows: Matrix) -> _Float32s:
    """The rows of a finite matrix, in float32 and at unit length."""
    rows = check_matrix(name, rows)
    unit = np.empty(rows.shape, np.float32)
    for part in chunks(len(rows), _TILE):
        unit[part] = _normalize(_scaled(_to_float32(rows[part])))
    return unit


class _Candidates:
    """The k best rows of each query so far, and later rows that may be better.

    Columns hold candidates by their index: so a stable sort puts the earlier of
    equally similar rows first.
    """

    def __init__(self, num_queries: int, k: int):
        self._k = k
        shape = (num_queries, 2 * k + _TILE)
        self._similarities = np.full(shape, -np.inf, np.float32)
        self._indices = np.zeros(shape, np.int32)
        self._counts = np.zeros(num_queries, np.int64)
        # A candidate exceeds this similarity: with k rows before, an equal
        # later row is not among the k best.
        self._threshold = np.full(num_queries, -np.inf, np.float32)  # [Q]

    def add(self, tile: _Float32s, start: int) -> None:
        """Adds bank rows `start`.., by their similarities `tile` [Q, T]."""
        if not self._counts.any() and tile.shape[1] > self._k:
            # Most rows of the first tile need not be sorted either.
            kth = np.partition(tile, -self._k, axis=1)[:, -self._k]
            self._threshold = kth - _TOLERANCE
        # `nonzero` of a matrix would take longer than of a flat array.
        flat_indices = np.flatnonzero(tile > self._threshold[:, None])
        queries, columns = np.divmod(flat_indices, tile.shape[1])
        counts = np.bincount(queries, minlength=len(self._counts))  # [Q]
        # New candidates of a query follow those that it has.
        first = np.cumsum(counts) - counts
        slots = np.arange(len(queries)) + (self._counts - first)[queries]
        self._similarities[queries, slots] = tile[queries, columns]
        self._indices[queries, slots] = start + columns
        self._counts += counts
        if self._counts.max() > 2 * self._k:
            self.keep_best()

    def keep_best(self) -> None:
        """Drops all but the k best, of equally similar rows the later ones."""
        k, num_columns = self._k, self._counts.max()
        candidates = self._similarities[:, :num_columns]
        rank = num_columns - k  # of the k-th best in rising order
        kth = np.partition(candidates, rank, axis=1)[:, rank, None]  # [Q, 1]
        is_best, is_kth = candidates > kth, candidates == kth
        missing = k - is_best.sum(axis=1, keepdims=True)
        is_best |= is_kth & (np.cumsum(is_kth, axis=1) <= missing)
        columns = np.nonzero(is_best)[1].reshape(-1, k)
        self._indices[:, :k] = np.take_along_axis(
            self._indices, columns, axis=1
        )
        self._similarities[:, :k] = np.take_along_axis(
            candidates, columns, axis=1
        )
        self._similarities[:, k:num_columns] = -np.inf
        self._counts[:] = k
        self._threshold = kth[:, 0]

    def sorted_best(self) -> Neighbors:
        """Returns the k best, the best first: [Q, k] cosines and indices."""
        self.keep_best()
        similarities = self._similarities[:, : self._k]
        order = np.argsort(-similarities, axis=1, kind="stable")
        return tuple(
            np.take_along_axis(array[:, : self._k], order, axis=1)
            for array in (similarities, self._indices)
        )


def _scan(
    cosines: Callable[[_Float32s], _Float32s],
    bank: _Rows,
    k: int,
    excluded_rows: npt.NDArray[np.integer],
) -> Neighbors:
    """Returns the k best bank rows by `cosines`, of tiles [T, dim] to [Q, T].

    `excluded_rows` [Q] is a row for each query, -1 for none.
    """
    candidates = _Candidates(len(excluded_rows), k)
    for start in range(0, len(bank), _TILE):
        tile = cosines(_to_float32(bank[start : start + _TILE]))
        _check_cosines(tile)
        columns = excluded_rows - start  # [Q]
        (queries,) = np.nonzero((columns >= 0) & (columns < tile.shape[1]))
        tile[queries, columns[queries]] = -np.inf
        candidates.add(tile, start)
    return candidates.sorted_best()


def _sort_exactly(
    queries: _Float64s,
    lengths: _Float64s,
    bank: _Rows,
    similarities: _Float32s,
    indices: npt.NDArray[np.int32],
) -> Neighbors:
    """Sorts candidates [Q, K], close ones by exact similarities."""
    similarities = similarities.copy()
    # Entry j is whether candidates j - 1 and j are close.
    is_close = np.zeros((len(queries), indices.shape[1] + 1), bool)
    is_close[:, 1:-1] = similarities[:, :-1] - similarities[:, 1:] <= _TOLERANCE
    pairs = np.argwhere(is_close[:, 1:] | is_close[:, :-1])  # [P, 2]
    for part in chunks(len(pairs), _PAIRS_AT_ONCE):
        query, rank = pairs[part].T
        rows, row_lengths = _to_integers(
            _to_float32(bank[indices[query, rank]])
        )
        products = np.einsum("pd,pd->p", queries[query], rows)  # [P]
        similarities[query, rank] = products / (lengths[query] * row_lengths)
    order = np.lexsort([indices, -similarities], axis=1)  # [Q, K]
    return tuple(
        np.take_along_axis(array, order, axis=1)
        for array in (similarities, indices)
    )


def _to_integers(rows: _Float32s) -> tuple[_Float64s, _Float64s]:
    """Scales each row to whole numbers; returns these rows and their lengths.

    No row is longer than 2^26, so that no sum of products of two rows exceeds
    2^53: float64 holds the sum without rounding, in any order of addition.
    """
    rows = rows.astype(np.float64)
    _, exponents = np.frexp(np.linalg.norm(rows, axis=1))
    rows *= np.ldexp(1.0, 26 - exponents)[:, None]
    np.rint(rows, out=rows)
    return rows, np.maximum(np.linalg.norm(rows, axis=1), 1)


def _to_float32(rows: _Rows) -> _Float32s:
    """Returns rows in float32, not copied if they are float32."""
    with np.errstate(over="ignore"):  # infinity: no such bank is searched
        return rows.astype(np.float32, copy=False)


def _scaled(rows: _Float32s) -> _Float32s:
    """Scales each row by a power of 2, which rounds nothing, to about 1."""
    largest = np.abs(rows).max(axis=1, initial=0, keepdims=True)
    _, exponents = np.frexp(largest)
    return np.ldexp(rows, -exponents)


def _cosines(chunk: _Float32s, rows: _Float32s) -> _Float32s:
    """Returns cosines [Q, T] of unit-length queries and rows of any length."""
    squares = _squares(rows)
    within = (squares >= _LEAST_SQUARE) & (squares <= _LARGEST_SQUARE)
    if not within.all():  # nor with NaN: float32 does not hold the squares
        rows = _scaled(rows)
        squares = _squares(rows)
    with np.errstate(all="ignore"):  # no bank with infinity is searched
        # The products are scaled and not the rows, of which this spares a
        # copy. NumPy's product is up to 2.5 times as fast as TensorFlow's.
        cosines = chunk @ rows.T  # [Q, T]
        cosines /= np.sqrt(np.maximum(squares, _LEAST_SQUARE))
    return cosines


def _squares(rows: _Float32s) -> _Float32s:
    """Returns the squares of the lengths of the rows, [T]."""
    with np.errstate(all="ignore"):
        return np.einsum("td,td->t", rows, rows)


_MATRIX = tf.TensorSpec([None, None], tf.float32)


@tf.function(input_signature=[_MATRIX])
def _normalize(rows: tf.Tensor) -> tf.Tensor:
    """Scales rows to unit length; a row of zeros remains."""
    return tf.math.l2_normalize(rows, axis=-1, epsilon=_LEAST_SQUARE)
