"""The loss against its peers: processes, rounds and results."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import os
import pathlib
import platform
import signal
import subprocess
import sys

from supcon_tf import config
from supcon_tf.benchmarks import comparison, plots

# [M, M] float32 matrices at the peak, rounded up: measured at M = 8,192 and
# 12,288 are 10 for the PyTorch reference, 11 for pytorch-metric-learning, 9 for
# google-research. Tiles take memory linear in M, the floor half a matrix.
_MATRICES = {"tiled": 0.0, "looped": 0.0, "floor": 0.5}
_OTHER_MATRICES = 12.0
_ACCURACY_ROWS = 2048
_PACKAGE_PARENT = pathlib.Path(__file__).parent.parent.parent


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
        "machine": _describe_machine(chosen),
        "points": [],
        "disagreements": [],
        "accuracy": {},
        "accuracy_rows": _ACCURACY_ROWS,
    }
    if chosen.accuracy:
        results["accuracy"] = _measure_accuracy(chosen)
    for rows in chosen.rows:
        points = comparison.compare(_measure_size(chosen, names, rows))
        results["points"] += points
        results["disagreements"] += comparison.find_disagreements(points)
        for point in points:
            print(_progress(point), flush=True)
        _write(directory, results)
    return results


def choose_implementations(chosen: config.BenchLossSettings) -> list[str]:
    """The implementations asked for, or all that can be loaded here."""
    paths = {
        "official": chosen.official_path,
        "supcontrast": chosen.supcontrast_path,
    }
    for name, path in paths.items():
        if path is not None and not pathlib.Path(path).is_file():
            raise FileNotFoundError(
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
            raise ImportError(f"{name} needs {missing[name]}, not installed")
    return names


def _measure_size(
    chosen: config.BenchLossSettings, names: list[str], rows: int
) -> dict[str, list[comparison.Point]]:
    """What each process of each round gave, by implementation."""
    runs = {}
    for name in names:
        matrices = _MATRICES.get(name, _OTHER_MATRICES)
        gigabytes = 4e-9 * matrices * rows**2
        if gigabytes > chosen.max_memory_gb:
            reason = f"about {gigabytes:.3g} GB, see --max_memory_gb"
            runs[name] = [{"rows": rows, "skipped": reason}]
    for _ in range(chosen.rounds):
        for name in names:
            before = runs.setdefault(name, [])
            if not before or "ms" in before[-1]:
                before.append({"rows": rows} | _run_point(chosen, name, rows))
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
) -> comparison.Point:
    """Runs benchmarks.point in a fresh process; `error` where it fails."""
    threads = _threads(chosen)
    job = {
        "name": name,
        "rows": rows,
        "views": chosen.views,
        "dim": chosen.dim,
        "classes": chosen.classes,
        "seed": chosen.seed,
        "temperature": chosen.temperature,
        "threads": threads,
        "path": getattr(chosen, f"{name}_path", None),
        "seconds": chosen.seconds,
        "accuracy": accuracy,
    }
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": str(threads),
        # Resident memory is the host's, and peers run where tensors start.
        "CUDA_VISIBLE_DEVICES": "-1",
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "PYTHONPATH": os.pathsep.join(
            [str(_PACKAGE_PARENT), os.environ.get("PYTHONPATH", "")]
        ).rstrip(os.pathsep),
    }
    done = subprocess.run(
        [sys.executable, "-m", "supcon_tf.benchmarks.point", json.dumps(job)],
        capture_output=True,
        text=True,
        env=environment,
    )
    if done.returncode < 0:
        return {"error": f"ended by {signal.Signals(-done.returncode).name}"}
    if done.returncode > 0:
        text = done.stderr.strip().splitlines() or ["no message"]
        return {"error": text[-1]}
    return json.loads(done.stdout.splitlines()[-1])


def _threads(chosen: config.BenchLossSettings) -> int:
    """Threads of every process: those asked for, or all cores it may use."""
    if chosen.threads:
        return chosen.threads
    if hasattr(os, "sched_getaffinity"):  # Linux: within taskset, containers.
        return len(os.sched_getaffinity(0))
    return os.cpu_count()


def _describe_machine(chosen: config.BenchLossSettings) -> dict[str, object]:
    """Processor, threads, load before the start and Python."""
    processor = platform.processor() or platform.machine()
    information = pathlib.Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text().splitlines():
            if line.startswith("model name"):
                processor = line.split(":", 1)[1].strip()
    return {
        "processor": processor,
        "threads": _threads(chosen),
        "load": os.getloadavg()[0],
        "python": platform.python_version(),
    }


def _progress(point: comparison.Point) -> str:
    """One line about a point that has just been measured."""
    start = f"{point['rows']} rows, {point['implementation']}"
    if point["status"] != "measured":
        return f"{start}: {point['status']}, {point['reason']}"
    return f"{start}: {point['ms']:.2f} ms, {point['peak_mb']:.1f} MB"


def _write(directory: pathlib.Path, results: dict[str, object]) -> None:
    """Writes JSON and PNG; whole files or none."""
    partial = directory / "bench_loss.partial"
    partial.write_text(json.dumps(results, indent=1) + "\n")
    partial.replace(directory / "bench_loss.json")
    plots.plot_loss(results["points"]).savefig(partial, format="png", dpi=120)
    partial.replace(directory / "bench_loss.png")
