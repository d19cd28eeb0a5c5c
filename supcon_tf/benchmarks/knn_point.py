"""Measures one search for nearest neighbours, in a process of its own.

  python -m supcon_tf.benchmarks.knn_point '{"implementation": "ours", ...}'

Started by `benchmarks.knn` through `benchmarks.processes`.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from supcon_tf.benchmarks import libraries, loss_point, processes

_CLASSES = 100  # Directions around which the made-up representations lie.
_CHECKED = 64  # Queries that are searched again, in float64.
_WARM_UP = 64  # Rows of a bank that loads and traces what is loaded late.

# Representations in, similarities [queries, k] and bank rows [queries, k] out.
Search = Callable[[np.ndarray, np.ndarray, int], tuple[np.ndarray, np.ndarray]]


def measure(job: processes.Point) -> processes.Point:
    """Time and peak memory of one search, and how exact it is.

    Args:
      job: `implementation`; `bank` and `queries`, numbers of rows; `dim`; `k`;
        `seed`; `threads`.

    Returns:
      `seconds`; `peak_mb`, growth during the search, the result included;
      `memory` (how it was read); `agreement`, the share of the neighbours of
      some queries that a search in float64 finds too; `similarity_error`, the
      largest difference of their similarities, rank by rank; `libraries`.
    """
    search = make_search(job["implementation"], job["threads"])
    bank, queries = make_representations(
        job["bank"], job["queries"], job["dim"], job["seed"]
    )
    search(queries[:_WARM_UP], bank[:_WARM_UP], 1)
    peak = loss_point.PeakMemory()
    before = time.perf_counter()
    similarities, indices = search(queries, bank, job["k"])
    seconds = time.perf_counter() - before
    peak_mb = peak.growth_mb()
    return {
        "seconds": seconds,
        "peak_mb": peak_mb,
        "memory": peak.source,
        **check(queries, bank, similarities, indices),
        "libraries": libraries.versions("tensorflow", "sklearn"),
    }


def make_representations(
    bank: int, queries: int, dim: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """[bank, dim] and [queries, dim] float32 of unit length, in classes."""
    generator = np.random.default_rng(seed)
    centers = generator.standard_normal((_CLASSES, dim), np.float32)

    def draw(rows: int) -> np.ndarray:
        drawn = np.empty((rows, dim), np.float32)
        # In small parts: what is freed here would hide what a search takes.
        for part in np.array_split(drawn, -(-rows // 256)):
            generator.standard_normal(dtype=np.float32, out=part)
            part += centers[generator.integers(_CLASSES, size=len(part))]
            part /= np.linalg.norm(part, axis=1, keepdims=True)
        return drawn

    return draw(bank), draw(queries)


def make_search(name: str, threads: int) -> Search:
    """The search of an implementation; its library is imported here."""
    if name == "ours":
        libraries.import_tensorflow(threads)
        from supcon_tf import measures

        return measures.nearest_neighbors
    from sklearn import neighbors

    metric = name.removeprefix("sklearn_")

    def search(
        queries: np.ndarray, bank: np.ndarray, k: int
    ) -> tuple[np.ndarray, np.ndarray]:
        model = neighbors.NearestNeighbors(
            n_neighbors=k, algorithm="brute", metric=metric, n_jobs=threads
        )
        distances, indices = model.fit(bank).kneighbors(queries)
        # In place: the similarities are for the check, not for the memory.
        if metric == "euclidean":
            distances *= distances
            distances *= 0.5
        return np.subtract(1, distances, out=distances), indices

    return search


def check(
    queries: np.ndarray,
    bank: np.ndarray,
    similarities: np.ndarray,
    indices: np.ndarray,
) -> processes.Point:
    """Agreement with a search in float64, of evenly spaced queries."""
    k = indices.shape[1]
    checked = np.linspace(0, len(queries) - 1, _CHECKED).astype(int)
    exact = queries[checked].astype(np.float64) @ bank.T.astype(np.float64)
    order = np.argsort(-exact, axis=1, kind="stable")[:, :k]
    common = [
        len(np.intersect1d(found, best))
        for found, best in zip(indices[checked], order, strict=True)
    ]
    exact = np.take_along_axis(exact, order, axis=1)
    return {
        "agreement": float(np.mean(common) / k),
        "similarity_error": float(np.abs(similarities[checked] - exact).max()),
    }


if __name__ == "__main__":
    processes.answer(measure)
