"""The search for nearest neighbours against scikit-learn's: rounds, results."""

from __future__ import annotations

import dataclasses
import functools
import pathlib

from supcon_tf import config
from supcon_tf.benchmarks import knn_comparison, processes


def bench_knn(chosen: config.BenchKnnSettings) -> processes.Point:
    """Measures every implementation on the same representations, on the CPU.

    As in `bench_loss`, a measurement is a process, rounds are interleaved, a
    ratio is taken within a round and peak memory is the largest of the rounds.
    A process makes the representations, of unit length, loads what it loads
    late on a few rows, and searches once: the time is that of one search, the
    memory its growth during that search, the result included.

    Args:
      chosen: settings of tools/bench_knn.py.

    Returns:
      `points`, a dict per implementation; `disagreements`, a line per point
      whose neighbours are not the nearest; `machine`; `settings`. Also written
      into run_dir, as bench_knn.json.
    """
    directory = pathlib.Path(chosen.run_dir)
    directory.mkdir(parents=True, exist_ok=True)
    threads = processes.choose_threads(chosen.threads)
    machine = processes.describe_machine(threads)
    names = list(config.KNN_IMPLEMENTATIONS)
    if chosen.implementations != "all":
        names = chosen.implementations.split(",")
    job = {
        name: getattr(chosen, name)
        for name in ("bank", "queries", "dim", "k", "seed")
    }
    runs = processes.interleave(
        chosen.rounds,
        {
            name: functools.partial(
                processes.run,
                "knn_point",
                job | {"implementation": name, "threads": threads},
            )
            for name in names
        },
    )
    points = knn_comparison.compare(runs)
    for point in points:
        print(knn_comparison.progress(point), flush=True)
    results = {
        "settings": dataclasses.asdict(chosen),
        "machine": machine,
        "points": points,
        "disagreements": knn_comparison.find_disagreements(points),
    }
    processes.write(directory, "bench_knn", results)
    return results
