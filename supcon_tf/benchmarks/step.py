"""The training step against the same network in PyTorch: rounds and results."""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
import pathlib

from supcon_tf import config, exceptions
from supcon_tf.benchmarks import plots, processes, step_comparison


def bench_step(chosen: config.BenchStepSettings) -> processes.Point:
    """Measures every implementation in every case, on the CPU.

    A case is an architecture and a batch size. As in `bench_loss`, a
    measurement is a process, rounds are interleaved, times are medians over
    rounds of the medians over steps, a ratio is taken within a round, and peak
    memory is the largest of the rounds. The views are in memory. What does not
    fit or fails is recorded with its reason.

    Args:
      chosen: settings of tools/bench_step.py.

    Returns:
      `points`, a dict per (case, implementation, chunks); `disagreements`, a
      line per point whose network has another number of parameters;
      `left_out`, the implementations that need what is not installed;
      `machine`; `settings`. Also written into run_dir after each case, as
      bench_step.json and bench_step.png.

    Raises:
      FileNotFoundError: there is no file at supcontrast_path.
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
        "left_out": _left_out(chosen, names),
        "points": [],
        "disagreements": [],
    }
    for case in list_cases(chosen):
        runs = _measure_case(chosen, names, case, results["points"])
        points = step_comparison.compare(runs)
        results["points"] += points
        results["disagreements"] += step_comparison.find_disagreements(points)
        for point in points:
            print(step_comparison.progress(point), flush=True)
        drawn = plots.plot_step(results["points"])
        processes.write(directory, "bench_step", results, drawn)
    return results


def choose_implementations(chosen: config.BenchStepSettings) -> list[str]:
    """The implementations asked for, or all that can be loaded here."""
    path = chosen.supcontrast_path
    if path is not None and not pathlib.Path(path).is_file():
        raise exceptions.NotFound(
            f"--supcontrast_path must be a Python file, got {path}"
        )
    has_torch = importlib.util.find_spec("torch") is not None
    if chosen.implementations == "all":
        return [
            name
            for name in config.STEP_IMPLEMENTATIONS
            if has_torch or not name.startswith("torch")
        ]
    names = chosen.implementations.split(",")
    for name in names:
        if name.startswith("torch") and not has_torch:
            raise exceptions.MissingPackage(
                f"{name} needs torch, not installed"
            )
    return names


def list_cases(chosen: config.BenchStepSettings) -> list[processes.Point]:
    """What is measured: `architecture` and `batch_size` of each case."""
    return [
        {"architecture": architecture, "batch_size": batch_size}
        for architecture in chosen.architectures.split(",")
        for batch_size in chosen.batch_sizes
    ]


def list_chunks(
    chosen: config.BenchStepSettings, name: str, batch_size: int
) -> list[int]:
    """Numbers of chunks that an implementation is measured with, rising."""
    if not name.startswith("ours"):
        return [1]
    counts = {*chosen.chunks}
    if chosen.chunk_size:
        counts.add(batch_size // chosen.chunk_size)
    return sorted(counts)


def _left_out(chosen: config.BenchStepSettings, names: list[str]) -> list[str]:
    """Of `all`, the implementations that cannot be loaded here."""
    if chosen.implementations != "all":
        return []
    return [name for name in config.STEP_IMPLEMENTATIONS if name not in names]


def _measure_case(
    chosen: config.BenchStepSettings,
    names: list[str],
    case: processes.Point,
    earlier: list[processes.Point],
) -> list[tuple[processes.Point, list[processes.Point]]]:
    """What is measured, and what its process gave in each round."""
    whats = [
        case | {"implementation": name, "chunks": chunks}
        for name in names
        for chunks in list_chunks(chosen, name, case["batch_size"])
    ]
    runs, measurements = {}, {}
    for index, what in enumerate(whats):
        gigabytes = step_comparison.expected_gb(what, earlier)
        if gigabytes > chosen.max_memory_gb:
            reason = f"about {gigabytes:.3g} GB, see --max_memory_gb"
            runs[index] = [{"skipped": reason}]
        else:
            measurements[index] = functools.partial(_run_point, chosen, what)
    runs |= processes.interleave(chosen.rounds, measurements)
    return [(what, runs[index]) for index, what in enumerate(whats)]


def _run_point(
    chosen: config.BenchStepSettings, what: processes.Point
) -> processes.Point:
    """Runs benchmarks.step_point in a process of its own."""
    job = {
        **what,
        "image_size": chosen.image_size,
        "views": chosen.views,
        "classes": chosen.classes,
        "temperature": chosen.temperature,
        "path": chosen.supcontrast_path,
        "seed": chosen.seed,
        "threads": processes.choose_threads(chosen.threads),
        "steps": chosen.steps,
    }
    return processes.run("step_point", job)
