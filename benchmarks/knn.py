"""The search for nearest neighbours beside faiss and scikit-learn.

  python benchmarks/knn.py --threads=2

Seconds and peak memory of one exact search among unit vectors: of `ours`, by
cosine; of `faiss`, its flat index; of `sklearn_euclidean` and `sklearn_cosine`,
by brute force. `approximate` is the index of a large gallery. `prepare` is the
time from the bank to an index; the memory includes the index. Agreement is the
share of the neighbours in float64 that are found: of an exact search less than
1 where two are closer than float32 can tell. The defaults take two minutes on
four cores.
"""

from __future__ import annotations

import dataclasses
import functools
import tempfile
import time
from collections.abc import Callable

import checkout  # noqa: F401
import numpy as np

from benchmarks import harness, measuring, results
from supcon_tf import exceptions, settings

Search = Callable[[np.ndarray, int], tuple]

_CLASSES = 100  # Directions around which the made-up representations lie.
_CHECKED = 64  # Queries that are searched again, in float64.
_WARM_UP = 64  # Rows of a bank that loads and traces what is loaded late.
_TOLERANCE = 1e-5  # Rows so similar float32 and float64 may order apart.


@dataclasses.dataclass(frozen=True)
class KnnBench(harness.Bench):
    """Settings of benchmarks/knn.py."""

    NEEDS = {
        **dict.fromkeys(("ours", "sklearn_euclidean", "sklearn_cosine"), ()),
        **dict.fromkeys(("approximate", "faiss"), ("faiss",)),
    }
    AXES = {"bank": "bank"}
    COLUMNS = (
        results.Column("s", lambda p: p["seconds"], plotted=True),
        results.SPREAD,
        results.Column("prepare s", lambda p: p.get("prepare_seconds")),
        results.MEMORY,
        results.Column("agreement", lambda p: p["agreement"], ".5f"),
    )
    PEERS = ("ours",)

    run_dir: str = "runs/bench_knn"
    bank: tuple[int, ...] = (50_000,)
    """Rows that are searched."""
    queries: int = settings.setting(10_000, at_least=1)
    """Rows of queries."""
    dim: int = settings.setting(512, at_least=1)
    """Size of a representation."""
    k: int = settings.setting(200, at_least=1)
    """Neighbours of each query."""
    seed: int = settings.setting(0, at_least=0)
    """Seed of representations."""

    def _check(self) -> None:
        if self.k > min(self.bank):
            raise exceptions.InvalidValue(
                f"--k must be at most --bank, {min(self.bank)}, got {self.k}"
            )


def measure(job: measuring.Job) -> dict[str, float]:
    """Times of the preparation and of the search, peak memory, and `check`."""
    prepare = make_prepare(job.implementation, job.threads)
    bank, queries = make_representations(job)
    prepare(bank[:_WARM_UP])(queries[:_WARM_UP], 1)
    memory, started = measuring.reset_peak_mb(), time.perf_counter()
    search = prepare(bank)
    prepared = time.perf_counter()
    neighbors = search(queries, job.k)
    return {
        "seconds": time.perf_counter() - prepared,
        "prepare_seconds": prepared - started,
        "peak_mb": measuring.peak_mb() - memory,
        "agreement": check(queries, bank, neighbors),
    }


def make_representations(job: measuring.Job) -> tuple[np.ndarray, np.ndarray]:
    """[bank, dim] and [queries, dim] float32 of unit length, in classes."""
    generator = np.random.default_rng(job.seed)
    centers = generator.standard_normal((_CLASSES, job.dim), np.float32)

    def draw(count: int) -> np.ndarray:
        rows = np.empty((count, job.dim), np.float32)
        # In small parts: what is freed here would hide what a search takes.
        for part in np.array_split(rows, -(-count // 256)):
            generator.standard_normal(dtype=np.float32, out=part)
            part += centers[generator.integers(_CLASSES, size=len(part))]
            part /= np.linalg.norm(part, axis=1, keepdims=True)
        return rows

    return draw(job.bank), draw(job.queries)


def make_prepare(name: str, threads: int) -> Callable[[np.ndarray], Search]:
    """From a bank to a search for queries and k."""
    if name in ("ours", "approximate"):
        measuring.import_tensorflow(threads)
        from supcon_tf.gallery import approximate

        if name == "ours":
            return lambda bank: functools.partial(_search_exactly, bank)

        def build(bank: np.ndarray) -> Search:
            with tempfile.TemporaryDirectory() as folder:
                file = f"{folder}/rows.faiss"
                index = approximate.build(file, bank)
                index.search(bank[:1], bank, 1)  # reads the file
            return lambda queries, k: index.search(queries, bank, k)

        return build
    if name == "faiss":
        return functools.partial(_prepare_flat, threads)
    metric = name.removeprefix("sklearn_")
    return functools.partial(_prepare_sklearn, metric, threads)


def _search_exactly(bank: np.ndarray, queries: np.ndarray, k: int) -> tuple:
    from supcon_tf import measures

    return measures.nearest_neighbors(queries, bank, k)


def _prepare_flat(threads: int, bank: np.ndarray) -> Search:
    import faiss

    faiss.omp_set_num_threads(threads)
    index = faiss.IndexFlatIP(bank.shape[1])
    index.add(bank)
    return index.search


def _prepare_sklearn(metric: str, threads: int, bank: np.ndarray) -> Search:
    from sklearn import neighbors

    model = neighbors.NearestNeighbors(
        algorithm="brute", metric=metric, n_jobs=threads
    ).fit(bank)

    def search(queries: np.ndarray, k: int) -> tuple:
        distances, indices = model.kneighbors(queries, k)
        # In place: the similarities are for the check, not for the memory.
        if metric == "euclidean":
            distances *= distances
            distances *= 0.5
        return np.subtract(1, distances, out=distances), indices

    return search


def check(queries: np.ndarray, bank: np.ndarray, neighbors: tuple) -> float:
    """The share of the neighbours of float64 that were found."""
    similarities, indices = neighbors
    checked = np.linspace(0, len(queries) - 1, _CHECKED).astype(int)
    exact = np.concatenate(  # [checked, bank]
        [
            queries[checked].astype(np.float64) @ part.T.astype(np.float64)
            for part in np.array_split(bank, -(-len(bank) // 2**16))
        ],
        axis=1,
    )
    cosines = np.take_along_axis(exact, indices[checked], axis=1)
    error = np.abs(similarities[checked] - cosines).max()
    if not error <= _TOLERANCE:  # nor NaN
        raise RuntimeError(f"a similarity is off by {error:.1e}")
    order = np.argsort(-exact, axis=1, kind="stable")[:, : indices.shape[1]]
    common = map(np.intersect1d, indices[checked], order)
    return sum(map(len, common)) / order.size


if __name__ == "__main__":
    harness.main(KnnBench)
