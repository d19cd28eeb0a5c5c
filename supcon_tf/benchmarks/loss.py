"""The loss against its peers: processes, rounds and results."""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
import pathlib

from supcon_tf import config, exceptions
from supcon_tf.benchmarks import loss_comparison, plots, processes

# [M, M] float32 matrices at the peak, rounded up: measured at M = 8,192 and
# 12,288 are 10 for the PyTorch reference, 11 for pytorch-metric-learning, 9 for
# google-research. Tiles take memory linear in M, the floor half a matrix.
_MATRICES = {"tiled": 0.0, "looped": 0.0, "floor": 0.5}
_OTHER_MATRICES = 12.0
_ACCURACY_ROWS = 2048


def bench_loss(chosen: config.BenchLossSettings) -> dict[str, object]:
    """Measures every implementation at every size, on the CPU.

    Each measurement is a process of its own, and a round takes all
    implementations of a size in turn (A B C A B C ...), so that a slow minute
    of the machine falls on all of them. Times are medians over rounds of the
    medians over steps; a ratio is taken within a round, then its median over
    rounds. Peak memory is the largest of the rounds. What does not fit or fails
    is recorded with its reason.

    Args:
      chosen: settings of tools/bench_loss.py.

    Returns:
      `points`, a dict per (rows, implementation); `disagreements`, a line per
      point whose loss or gradient is another than the baseline's; `accuracy`;
      `machine`; `settings`. Also written into run_dir after each size, as
      bench_loss.json and bench_loss.png.

    Raises:
      FileNotFoundError: a peer's file is not there.
      ImportError: an implementation was asked for that is not installed.
    """
    names = choose_implementations(chosen)
    directory = pathlib.Path(chosen.run_dir)
    directory.mkdir(parents=True, exist_ok=True)
    results = {
        "settings": dataclasses.asdict(chosen),
        "machine": processes.describe_machine(
            processes.choose_threads(chosen.threads)
        ),
        "points": [],
        "disagreements": [],
        "accuracy": {},
        "accuracy_rows": _ACCURACY_ROWS,
    }
    if chosen.accuracy:
        results["accuracy"] = _measure_accuracy(chosen)
    for rows in chosen.rows:
        points = loss_comparison.compare(_measure_size(chosen, names, rows))
        results["points"] += points
        results["disagreements"] += loss_comparison.find_disagreements(points)
        for point in points:
            print(_progress(point), flush=True)
        drawn = plots.plot_loss(results["points"])
        processes.write(directory, "bench_loss", results, drawn)
    return results


def choose_implementations(chosen: config.BenchLossSettings) -> list[str]:
    """The implementations asked for, or all that can be loaded here."""
    paths = {
        "official": chosen.official_path,
        "supcontrast": chosen.supcontrast_path,
    }
    for name, path in paths.items():
        if path is not None and not pathlib.Path(path).is_file():
            raise exceptions.NotFound(
                f"--{name}_path must be a Python file, got {path}"
            )
    modules = {
        "supcontrast": "torch",
        "pml": "pytorch_metric_learning",
    }
    missing = {
        name: module
        for name, module in modules.items()
        if importlib.util.find_spec(module) is None
    }
    if chosen.implementations == "all":
        return [
            name
            for name in config.LOSS_IMPLEMENTATIONS
            if name not in missing and paths.get(name, "") is not None
        ]
    names = chosen.implementations.split(",")
    for name in names:
        if name in missing:
            raise exceptions.MissingPackage(
                f"{name} needs {missing[name]}, not installed"
            )
    return names


def _measure_size(
    chosen: config.BenchLossSettings, names: list[str], rows: int
) -> dict[str, list[processes.Point]]:
    """What each process of each round gave, by implementation."""
    runs, measurements = {}, {}
    for name in names:
        matrices = _MATRICES.get(name, _OTHER_MATRICES)
        gigabytes = 4e-9 * matrices * rows**2
        if gigabytes > chosen.max_memory_gb:
            reason = f"about {gigabytes:.3g} GB, see --max_memory_gb"
            runs[name] = [{"rows": rows, "skipped": reason}]
        else:
            measurements[name] = functools.partial(
                _run_point, chosen, name, rows
            )
    runs |= processes.interleave(chosen.rounds, measurements)
    return {name: runs[name] for name in names}


def _measure_accuracy(chosen: config.BenchLossSettings) -> dict[str, object]:
    """Largest gradient error against the float64 oracle, of ours."""
    errors = {}
    rows = _ACCURACY_ROWS - _ACCURACY_ROWS % chosen.views
    for name in ("dense", "tiled", "looped"):
        point = _run_point(chosen, name, rows, accuracy=True)
        errors[name] = point.get("gradient_error", point.get("error"))
    return errors


def _run_point(
    chosen: config.BenchLossSettings,
    name: str,
    rows: int,
    accuracy: bool = False,
) -> processes.Point:
    """Measures in a process of its own; `error` where that fails."""
    job = {
        "name": name,
        "rows": rows,
        "views": chosen.views,
        "dim": chosen.dim,
        "classes": chosen.classes,
        "seed": chosen.seed,
        "temperature": chosen.temperature,
        "threads": processes.choose_threads(chosen.threads),
        "path": getattr(chosen, f"{name}_path", None),
        "seconds": chosen.seconds,
        "accuracy": accuracy,
    }
    return {"rows": rows} | processes.run("loss_point", job)


def _progress(point: processes.Point) -> str:
    """One line about a point that has just been measured."""
    start = f"{point['rows']} rows, {point['implementation']}"
    if point["status"] != "measured":
        return f"{start}: {point['status']}, {point['reason']}"
    return f"{start}: {point['ms']:.2f} ms, {point['peak_mb']:.1f} MB"
