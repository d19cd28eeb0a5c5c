"""Our training against SupContrast's: seeds, results, table."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import pathlib
import statistics

from supcon_tf import config, exceptions
from supcon_tf.benchmarks import plots, processes
from supcon_tf.benchmarks.processes import Point

_NEEDS = {
    "ours": [],
    "supcontrast": ["torch"],
    "supcontrast_published": ["torch", "torchvision"],
}
_FIGURES = ("knn", "loss")  # of a curve
_WORK = (
    "data_dir",
    "steps",
    "knn_every",
    "batch_size",
    "width",
    "learning_rate",
    "weight_decay",
    "temperature",
)


def bench_learning(chosen: config.BenchLearningSettings) -> Point:
    """Trains every implementation from every seed, on the CPU.

    A training is a process. `supcontrast` starts from our initial weights and
    sees our views, batches and learning rates; `supcontrast_published` has its
    own weights, views and order, of the same images.

    Args:
      chosen: settings of tools/bench_learning.py.

    Returns:
      `points`, a dict per (seed, implementation), with its `job` and what
      `learning_point.measure` gave or the `error`; `disagreements`, a line per
      test in which ours and `supcontrast` are further apart than seeds are;
      `left_out`, the implementations that need what is not there; `machine`;
      `settings`. Also written into run_dir, as bench_learning.json and
      bench_learning.png, after every training; what is there from the same
      job is kept.

    Raises:
      FileNotFoundError: there is no losses.py in supcontrast_path.
      ImportError: an implementation was asked for that is not installed.
    """
    names = choose_implementations(chosen)
    directory = pathlib.Path(chosen.run_dir)
    directory.mkdir(parents=True, exist_ok=True)
    threads = processes.choose_threads(chosen.threads)
    results = {
        "settings": dataclasses.asdict(chosen),
        "machine": processes.describe_machine(threads),
        "left_out": [
            name
            for name in config.LEARNING_IMPLEMENTATIONS
            if chosen.implementations == "all" and name not in names
        ],
        "points": [],
        "disagreements": [],
    }
    points, earlier = results["points"], _read(directory)
    for job in _list_jobs(chosen, names, threads):
        point = next((p for p in earlier if p["job"] == job), None)
        if point is None or "error" in point:
            point = {"job": job, **processes.run("learning_point", job)}
        points.append(point)
        print(_progress(point), flush=True)
        results["disagreements"] = find_disagreements(points)
        drawn = plots.plot_learning(
            {name: curves_by_implementation(points, name) for name in _FIGURES}
        )
        processes.write(directory, "bench_learning", results, drawn)
    return results


def _list_jobs(
    chosen: config.BenchLearningSettings, names: list[str], threads: int
) -> list[Point]:
    """What `learning_point` is given, seed by seed."""
    shared = {name: getattr(chosen, name) for name in _WORK} | {
        "peer_path": chosen.supcontrast_path,
        "threads": threads,
    }
    return [
        shared | {"implementation": name, "seed": seed}
        for seed in range(chosen.seeds)
        for name in names
    ]


def choose_implementations(chosen: config.BenchLearningSettings) -> list[str]:
    """Those asked for; of `all`, those that are installed and given.

    Raises:
      FileNotFoundError: there is no losses.py in supcontrast_path.
      ImportError: an implementation was asked for that is not installed.
    """
    path = chosen.supcontrast_path
    if path and not (pathlib.Path(path) / "losses.py").is_file():
        raise exceptions.NotFound(
            "--supcontrast_path must be the folder of SupContrast's code, with "
            f"losses.py, got {path}"
        )
    asked = chosen.implementations
    if asked == "all":
        return [
            name
            for name, needs in _NEEDS.items()
            if (path or name == "ours")
            and (chosen.data_dir or name != "supcontrast_published")
            and not _missing(needs)
        ]
    for name in asked.split(","):
        if missing := _missing(_NEEDS[name]):
            raise exceptions.MissingPackage(
                f"{name} needs {missing[0]}, not installed"
            )
    return asked.split(",")


def find_disagreements(points: list[Point]) -> list[str]:
    """A line per test where the means of both are further apart than seeds.

    Seeds are apart by the larger range of the two. Also a line per seed whose
    views were not the same.
    """
    digests = {}
    for point in points:
        if point["job"]["implementation"] != "supcontrast_published":
            digest = point.get("views_sha256")
            digests.setdefault(point["job"]["seed"], set()).add(digest)
    lines = [
        f"seed {seed}: the views were not the same"
        for seed, seen in digests.items()
        if len(seen - {None}) > 1
    ]
    curves = curves_by_implementation(points)
    theirs = curves.get("supcontrast", {})
    for step, own in curves.get("ours", {}).items():
        other = theirs.get(step, [])
        if min(len(own), len(other)) < 2:
            continue
        apart = abs(statistics.mean(own) - statistics.mean(other))
        spread = max(max(own) - min(own), max(other) - min(other))
        if apart > spread:
            lines.append(
                f"step {step}: k-NN is {apart:.3f} apart, seeds {spread:.3f}"
            )
    return lines


def curves_by_implementation(
    points: list[Point], figure: str = "knn"
) -> plots.Curves:
    """Values of all seeds, by implementation and step.

    Args:
      points: those of `bench_learning`; failed ones are left out.
      figure: "knn" or "loss".
    """
    curves = {}
    for point in points:
        own = curves.setdefault(point["job"]["implementation"], {})
        for test in point.get("curve", ()):
            own.setdefault(test["step"], []).append(test[figure])
    return {name: own for name, own in curves.items() if own}


def learning_table(results: Point) -> str:
    """k-NN accuracy after steps, mean and range of seeds, as lines of text."""
    curves = curves_by_implementation(results["points"])
    lines = [f"{'steps':>6}" + "".join(f"{name:>24}" for name in curves)]
    for step in next(iter(curves.values()), ()):
        cells = [_range(own.get(step, [])) for own in curves.values()]
        lines.append(f"{step:6}" + "".join(f"{cell:>24}" for cell in cells))
    for point in results["points"]:
        for place, errors in zip(
            ("first", "last"), point.get("gradients", ()), strict=False
        ):
            lines.append(
                f"gradients before the {place} step, seed "
                f"{point['job']['seed']}, off float64 by: ours "
                f"{errors['ours_whole']:.1e} ({errors['ours']:.1e} in a "
                f"tensor), theirs {errors['theirs_whole']:.1e} "
                f"({errors['theirs']:.1e})"
            )
    lines += [f"DISAGREES: {line}" for line in results["disagreements"]]
    return "\n".join(lines)


def _missing(packages: list[str]) -> list[str]:
    """Those that cannot be imported."""
    return [name for name in packages if not importlib.util.find_spec(name)]


def _range(values: list[float]) -> str:
    """Mean (least - most)."""
    if not values:
        return "-"
    return (
        f"{statistics.mean(values):.3f} ({min(values):.3f}-{max(values):.3f})"
    )


def _progress(point: Point) -> str:
    """One line about a training."""
    job = point["job"]
    name = f"{job['implementation']}, seed {job['seed']}: "
    if "error" in point:
        return name + f"failed, {point['error']}"
    last = point["curve"][-1]
    return name + (
        f"k-NN {last['knn']:.3f} after {last['step']} steps, "
        f"{point['seconds']:.0f} s"
    )


def _read(directory: pathlib.Path) -> list[Point]:
    """The points that an earlier benchmark left there."""
    file = directory / "bench_learning.json"
    return json.loads(file.read_text())["points"] if file.exists() else []
