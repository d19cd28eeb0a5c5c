"""Approximate search of a large gallery, by an index of faiss.

The index proposes candidates; their exact cosines order them, so that what is
found has the similarity of an exact search. Only rows may be missed: `recall`
says how many. A query is searched exactly where the index has missed much: a
graph does not lead from one close class to another, and may end in the wrong
one. Then the nearest of `_SAMPLE_ROWS` rows is nearer than what was found.

Letters in the shapes: N rows of the gallery, Q queries, K candidates of each.
"""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Callable
from types import ModuleType

import numpy as np
import numpy.typing as npt

from supcon_tf import exceptions, measures
from supcon_tf.data import subsets
from supcon_tf.disk import leftovers
from supcon_tf.measures import neighbors

# A graph is the faster index, but holds all rows in memory, and its building
# takes a quarter of an hour for half a million rows; larger galleries get lists
# of rows of 1 byte per 4 numbers.
_MOST_GRAPH_ROWS = 200_000
_LINKS = 32  # of a row in the graph
_BUILD_CANDIDATES = 100
_NUMBERS_PER_BYTE = 4
_TRAINING_ROWS_PER_LIST = 64
_CANDIDATES_PER_NEIGHBOR, _LEAST_CANDIDATES = 10, 100
_RECALL_QUERIES, RECALL_K = 1_000, 10
_SAMPLE_ROWS = 1_000
_ROUNDING = 1e-5  # cosines of two searches differ by less


@dataclasses.dataclass(frozen=True)
class Index:
    """An index of the rows of a gallery, on disk.

    Example:
      >>> from supcon_tf import gallery
      >>> gallery.Index("gallery/1/rows.faiss", "HNSW32", recall=0.99).kind
      'HNSW32'

    Attributes:
      path: of the file.
      kind: in the words of faiss.
      recall: share of the 10 nearest rows of an exact search that the index
        finds. The queries are up to 1,000 rows of the gallery and as many means
        of two, which are like no row, as an unknown image is.
    """

    path: str
    kind: str
    recall: float

    @functools.cached_property
    def _is_there(self) -> bool:
        """Whether the file is there when it is read.

        Another process that changes the gallery removes it; the rows, which are
        open, stay.
        """
        return os.path.exists(self.path)

    @functools.cached_property
    def _searchable(self) -> object:
        faiss = import_faiss()
        try:
            index = faiss.read_index(self.path)
        except RuntimeError as error:
            raise self._damaged("what faiss cannot read") from error
        kinds = faiss.IndexHNSWFlat, faiss.IndexIVFPQ
        if not isinstance(index, kinds):
            raise self._damaged(type(index).__name__)
        return index

    def _damaged(self, content: object) -> exceptions.InvalidValue:
        return exceptions.InvalidValue(
            f"{self.path} must be the index of its gallery, got {content}. "
            "Make the gallery again with tools/index.py --data_dir=DIR "
            "--overwrite --approximate"
        )

    def search(
        self,
        queries: npt.ArrayLike,
        rows: npt.NDArray[np.number],
        k: int,
    ) -> measures.neighbors.Neighbors:
        """As `measures.nearest_neighbors` of [Q, dim] in [N, dim], nearly."""
        queries, rows = np.asarray(queries), np.asanyarray(rows)
        k = min(k, len(rows))
        if not self._is_there:
            return measures.nearest_neighbors(queries, rows, k)
        shape = self._searchable.ntotal, self._searchable.d
        if shape != rows.shape:
            raise self._damaged(f"one of {shape[0]:,} x {shape[1]} numbers")
        candidates = _candidates(self._searchable, queries, k)  # [Q, K]
        is_short = (candidates >= 0).sum(axis=1) < k
        if is_short.any():  # of lists that hold too few rows
            return measures.nearest_neighbors(queries, rows, k)
        found = measures.nearest_among(queries, rows, candidates, k)
        is_missed = _is_missed(queries, rows, *found)
        if is_missed.any():
            exact = measures.nearest_neighbors(queries[is_missed], rows, k)
            for array, exact_array in zip(found, exact, strict=True):
                array[is_missed] = exact_array
        return found


def build(path: str | os.PathLike[str], rows: npt.NDArray[np.number]) -> Index:
    """Builds and writes the index of rows [N, dim]; measures its recall.

    Raises:
      ImportError: the extra `search` is not installed.
      ValueError: the path is not on a local disk.
    """
    faiss = import_faiss()
    exceptions.require(
        leftovers.is_local(path),
        "--approximate must be left out but on a local disk, where faiss "
        "writes its index",
        path,
    )
    kind = _kind(*rows.shape)
    index = faiss.index_factory(rows.shape[1], kind, faiss.METRIC_INNER_PRODUCT)
    if kind.startswith("HNSW"):
        index.hnsw.efConstruction = _BUILD_CANDIDATES
    else:
        num_lists = faiss.extract_index_ivf(index).nlist
        count = num_lists * _TRAINING_ROWS_PER_LIST
        index.train(_unit(rows[subsets.evenly(len(rows), count)]))
    for part in neighbors.chunks(len(rows)):
        index.add(_unit(rows[part]))
    faiss.write_index(index, os.fspath(path))
    unmeasured = Index(os.fspath(path), kind, 0.0)
    share = recall(
        rows,
        lambda queries, k: unmeasured.search(queries, rows, k),
        _queries(rows),
    )
    return dataclasses.replace(unmeasured, recall=share)


def recall(
    rows: npt.NDArray[np.number],
    search: Callable[[np.ndarray, int], measures.neighbors.Neighbors],
    queries: npt.NDArray[np.number] | None = None,
) -> float:
    """The share of the `RECALL_K` nearest rows that a search finds.

    Of equally similar rows any will do.

    Args:
      rows: [N, dim].
      search: from queries [Q, dim] and k to similarities and rows, [Q, k].
      queries: [Q, dim]; None for up to 1,000 of the rows.
    """
    if queries is None:
        queries = rows[subsets.evenly(len(rows), _RECALL_QUERIES)]
    exact, _ = measures.nearest_neighbors(queries, rows, RECALL_K)  # [Q, k]
    _, nearest = search(queries, RECALL_K)
    similarities, _ = measures.nearest_among(
        queries, rows, nearest, exact.shape[1]
    )
    return float((similarities >= exact[:, -1:] - 1e-6).mean())


def _queries(rows: npt.NDArray[np.number]) -> npt.NDArray[np.float32]:
    """Rows [N, dim] as queries, and the mean of each with a distant other."""
    queries = _unit(rows[subsets.evenly(len(rows), _RECALL_QUERIES)])
    # Neighbours in the order of the rows are of one class.
    others = np.roll(queries, len(queries) // 2, axis=0)
    return np.concatenate([queries, queries + others])


def _is_missed(
    queries: npt.NDArray[np.number],
    rows: npt.NDArray[np.number],
    similarities: npt.NDArray[np.float32],
    found: npt.NDArray[np.int32],
) -> npt.NDArray[np.bool_]:
    """Which queries [Q] have a nearer row in a sample than those found [Q, k].

    Of few missed rows a sample seldom has one, of a missed class it has some.
    """
    sample = subsets.evenly(len(rows), _SAMPLE_ROWS)
    cosines, nearest = measures.nearest_neighbors(queries, rows[sample], k=1)
    is_nearer = cosines[:, 0] > similarities[:, -1] + _ROUNDING
    return is_nearer & (found != sample[nearest]).all(axis=1)


def import_faiss() -> ModuleType:
    """The library of the index.

    Raises:
      ImportError: the extra `search` is not installed.
    """
    (faiss,) = exceptions.import_extra("search", "faiss")
    return faiss


def _kind(count: int, dim: int) -> str:
    """The kind of index for rows [count, dim], in the words of faiss."""
    if count <= _MOST_GRAPH_ROWS:
        return f"HNSW{_LINKS}"
    num_lists = 2 ** round(np.log2(4 * np.sqrt(count)))
    num_bytes = next(
        number
        for number in range(max(dim // _NUMBERS_PER_BYTE, 1), 0, -1)
        if dim % number == 0
    )
    return f"IVF{num_lists},PQ{num_bytes}"


def _candidates(index: object, queries: np.ndarray, k: int) -> np.ndarray:
    """Rows [Q, K] that the index proposes, -1 for none."""
    faiss = import_faiss()
    count = max(_CANDIDATES_PER_NEIGHBOR * k, _LEAST_CANDIDATES)
    count = min(count, index.ntotal)
    if isinstance(index, faiss.IndexHNSW):
        parameters = faiss.SearchParametersHNSW(efSearch=count)
    else:
        lists = max(index.nlist // 32, 16)
        parameters = faiss.SearchParametersIVF(nprobe=min(lists, index.nlist))
    _, rows = index.search(_unit(queries), count, params=parameters)
    return rows


def _unit(rows: npt.NDArray[np.number]) -> npt.NDArray[np.float32]:
    return neighbors.unit_rows("rows", rows)
