"""A gallery from the first row on the disk to the answer of a search.

  python benchmarks/gallery.py --threads=2

Seconds to write a gallery, to open it, to search it for one query and for
`--queries` at once, and to add 100 rows and write it again. `approximate` has
the index of faiss, whose making is a part of the writing. The rows are in the
file cache. The defaults take five minutes on two cores.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import pathlib
import shutil
import time
from collections.abc import Callable

import checkout  # noqa: F401
import numpy as np

from benchmarks import harness, knn, measuring, results
from supcon_tf import settings

_CLASSES = 1000
_ADDED = 100
_QUERIES = 5  # lone ones, of whose times the median is taken
_WARM_UP = 64  # rows of a search that loads and traces what is loaded late


def _seconds(title: str, name: str) -> results.Column:
    return results.Column(f"{title} s", lambda p: p[name], ".3f")


@dataclasses.dataclass(frozen=True)
class GalleryBench(harness.Bench):
    """Settings of benchmarks/gallery.py."""

    NEEDS = {"exact": (), "approximate": ("faiss",)}
    AXES = {"rows": "rows"}
    COLUMNS = (
        results.Column("disk MB", lambda p: p["disk_mb"], ".0f"),
        _seconds("write", "write"),
        _seconds("open", "open"),
        results.Column(
            "1 query s", lambda p: p["seconds"], ".3f", plotted=True
        ),
        _seconds("all queries", "queries"),
        _seconds("add", "add"),
        results.Column("recall", lambda p: p.get("recall"), ".4f"),
    )

    run_dir: str = "runs/bench_gallery"
    rows: tuple[int, ...] = (10_000, 100_000)
    """Rows of the gallery."""
    queries: int = settings.setting(1000, at_least=1)
    """Queries at once."""
    dim: int = settings.setting(1280, at_least=1)
    """Size of a representation."""
    k: int = settings.setting(5, at_least=1)
    """Neighbours of each query."""
    rounds: int = 1
    seed: int = settings.setting(0, at_least=0)
    """Seed of representations."""


def measure(job: measuring.Job) -> dict[str, float]:
    """Times of all that is done with a gallery."""
    measuring.import_tensorflow(job.threads)
    from supcon_tf import gallery, measures

    sizes = {"bank": job.rows + _ADDED, "queries": job.queries}
    representations, queries = knn.make_representations(
        argparse.Namespace(**vars(job) | sizes)
    )
    measures.nearest_neighbors(queries, representations[:_WARM_UP], 1)
    is_approximate = job.implementation == "approximate"
    shelf, added = (
        make_gallery(representations, rows, is_approximate)
        for rows in (range(job.rows), range(job.rows, job.rows + _ADDED))
    )
    path = pathlib.Path(job.folder, "gallery")
    write, shelf = timed(functools.partial(shelf.save, path))
    disk = sum(f.stat().st_size for f in path.rglob("*") if f.is_file())
    recall = {"recall": shelf.index.recall} if shelf.index else {}
    del shelf, representations
    opened, shelf = timed(functools.partial(gallery.open_gallery, path))
    query, _ = measuring.time_steps(
        lambda: shelf.search(queries[:1], job.k), _QUERIES, 0.0
    )
    batch, _ = timed(lambda: shelf.search(queries, job.k))
    grown, _ = timed(lambda: shelf.add(added).save(path))
    shutil.rmtree(path)
    return recall | {
        "seconds": query,
        "disk_mb": 1e-6 * disk,
        "write": write,
        "open": opened,
        "queries": batch,
        "add": grown,
    }


def make_gallery(
    representations: np.ndarray, rows: range, is_approximate: bool
) -> object:
    """A gallery of some rows of representations [N, dim]."""
    from supcon_tf import gallery

    return gallery.Gallery(
        representations[rows.start : rows.stop],
        np.arange(len(rows), dtype=np.int32) % _CLASSES,
        tuple(f"class {number}" for number in range(_CLASSES)),
        tuple(f"products/{row:07}.jpg" for row in rows),
        np.array(rows),
        {"checkpoint": "ckpt-1", "sha256": "made up"},
        is_approximate=is_approximate,
    )


def timed(act: Callable[[], object]) -> tuple[float, object]:
    """Seconds that a call takes, and what it returns."""
    started = time.perf_counter()
    result = act()
    return time.perf_counter() - started, result


if __name__ == "__main__":
    harness.main(GalleryBench)
