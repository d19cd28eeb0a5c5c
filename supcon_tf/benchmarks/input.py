"""The input pipeline against its peers: cases, rounds and results."""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
import pathlib
import tempfile

from supcon_tf import config, exceptions
from supcon_tf.benchmarks import (
    input_comparison,
    input_images,
    input_peers,
    plots,
    processes,
)

# Policies that a peer has too; all others are measured for ours alone.
_SHARED = {
    "tfm": ("identity", "autoaugment", "randaugment"),
    "pil": ("identity", "autoaugment", "randaugment", "simclr"),
}


def bench_input(chosen: config.BenchInputSettings) -> processes.Point:
    """Measures every implementation in every case, on the CPU.

    A case is an input, a size and a policy. As in `bench_loss`, a measurement
    is a process, rounds are interleaved, and images per second are medians
    over rounds of a process's mean; a ratio is taken within a round. All
    read the same files, which are in the system's cache, and may use the same
    cores. What fails is recorded with its reason.

    Args:
      chosen: settings of tools/bench_input.py.

    Returns:
      `points`, a dict per (case, implementation); `images`, which they were;
      `machine`; `settings`. Also written into run_dir after each case, as
      bench_input.json and bench_input.png.

    Raises:
      ImportError: an implementation was asked for that is not installed.
      RuntimeError: the images could not be decoded.
      ValueError: data_dir is no folder with JPEG files.
    """
    names = choose_implementations(chosen)
    paths = input_images.find_jpegs(chosen.data_dir) if chosen.data_dir else []
    threads = processes.choose_threads(chosen.threads)
    results = {
        "settings": dataclasses.asdict(chosen),
        "machine": processes.describe_machine(threads),
        "points": [],
    }
    with tempfile.TemporaryDirectory() as folder:
        results["images"] = _prepare(chosen, paths, folder)
        directory = pathlib.Path(chosen.run_dir)
        directory.mkdir(parents=True, exist_ok=True)
        for case in list_cases(chosen):
            points = _measure_case(chosen, names, case, folder)
            results["points"] += points
            print(input_comparison.progress(points), flush=True)
            drawn = plots.plot_input(results["points"])
            processes.write(directory, "bench_input", results, drawn)
    return results


def choose_implementations(chosen: config.BenchInputSettings) -> list[str]:
    """The implementations asked for, or all that can be loaded here."""
    missing = {}
    if input_peers.tfm_file() is None:
        missing["tfm"] = "tf-models-official"
    for module in ("torch", "torchvision", "PIL"):
        if importlib.util.find_spec(module) is None:
            missing["pil"] = module
    if chosen.implementations == "all":
        known = config.INPUT_IMPLEMENTATIONS
        return [name for name in known if name not in missing]
    names = chosen.implementations.split(",")
    for name in names:
        if name in missing:
            raise exceptions.MissingPackage(
                f"{name} needs {missing[name]}, not installed"
            )
    return names


def list_cases(chosen: config.BenchInputSettings) -> list[processes.Point]:
    """What is measured: `input`, `size` and `policy` of each case."""
    inputs = chosen.inputs.split(",") + ["views"] * chosen.views
    return [
        {"input": of, "size": size, "policy": policy}
        for of in inputs
        for size in chosen.sizes
        for policy in chosen.policies.split(",")
    ]


def _prepare(
    chosen: config.BenchInputSettings, paths: list[str], folder: str
) -> str:
    """Fills the folder with files and arrays; what they are, in words."""
    job = {
        "folder": folder,
        "paths": paths,
        "sizes": chosen.sizes,
        "batch_size": chosen.batch_size,
        "threads": processes.choose_threads(chosen.threads),
    }
    done = processes.run("input_images", job)
    if "error" in done:
        raise exceptions.Failed(
            f"the images could not be read: {done['error']}"
        )
    origin = chosen.data_dir or "scikit-learn's photographs"
    return f"{done['distinct']} JPEG files of {origin}"


def _measure_case(
    chosen: config.BenchInputSettings,
    names: list[str],
    case: processes.Point,
    folder: str,
) -> list[processes.Point]:
    """The points of all implementations that have this case."""
    if case["input"] == "views":
        names = ["ours", "twice"]
    measurements = {
        name: functools.partial(_run_point, chosen, name, case, folder)
        for name in names
        if case["policy"] in _SHARED.get(name, config.INPUT_POLICIES)
    }
    runs = processes.interleave(chosen.rounds, measurements)
    return input_comparison.compare(case, runs)


def _run_point(
    chosen: config.BenchInputSettings,
    name: str,
    case: processes.Point,
    folder: str,
) -> processes.Point:
    """Runs benchmarks.input_point in a process of its own."""
    threads = processes.choose_threads(chosen.threads)
    job = {
        "name": name,
        **case,
        "batch_size": chosen.batch_size,
        "folder": folder,
        "workers": chosen.workers or threads,
        "seed": chosen.seed,
        "threads": threads,
        "seconds": chosen.seconds,
    }
    return processes.run("input_point", job)
