"""Requests to SavedModels on the CPU: cases, rounds and results."""

from __future__ import annotations

import dataclasses
import functools
import pathlib
import tempfile

from supcon_tf import config, exceptions
from supcon_tf.benchmarks import (
    input_images,
    processes,
    serving_comparison,
    serving_models,
)


def bench_serving(chosen: config.BenchServingSettings) -> processes.Point:
    """Measures our SavedModel beside one of Keras' ResNet-50.

    A case is a number of images per request and of clients that send requests
    at the same time. As in `bench_loss`, a measurement is a process, rounds
    are interleaved, all figures are medians over rounds, and a ratio is taken
    within a round. A process loads its SavedModel as TF Serving does. Weights
    are random, which costs the same. What fails is recorded with its reason.

    Args:
      chosen: settings of tools/bench_serving.py.

    Returns:
      `points`, a dict per (case, implementation); `disagreements`, a line per
      point whose answers to files are not those to their views; `images`,
      which they were; `machine`; `settings`. Also written into run_dir after
      each case, as bench_serving.json.

    Raises:
      RuntimeError: the images could not be decoded, or a model not made.
      ValueError: data_dir is no folder with JPEG files.
    """
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
            points = _measure_case(chosen, case, folder)
            results["points"] += points
            results["disagreements"] = serving_comparison.find_disagreements(
                results["points"]
            )
            print(serving_comparison.progress(points), flush=True)
            processes.write(directory, "bench_serving", results)
    return results


def list_cases(chosen: config.BenchServingSettings) -> list[processes.Point]:
    """What is measured: `images` per request and `clients` of each case."""
    return [
        {"images": images, "clients": clients}
        for clients in chosen.concurrency
        for images in chosen.images
    ]


def _names(chosen: config.BenchServingSettings) -> list[str]:
    """The implementations asked for."""
    if chosen.implementations == "all":
        return list(config.SERVING_IMPLEMENTATIONS)
    return chosen.implementations.split(",")


def _prepare(
    chosen: config.BenchServingSettings, paths: list[str], folder: str
) -> str:
    """Fills the folder with files, views and models; the files in words."""
    threads = processes.choose_threads(chosen.threads)
    images = {
        "folder": folder,
        "paths": paths,
        "sizes": [serving_models.IMAGE_SIZE],
        "batch_size": 1,
        "threads": threads,
    }
    models = {
        "folder": folder,
        "implementations": _names(chosen),
        "seed": chosen.seed,
        "threads": threads,
    }
    read = processes.run("input_images", images)
    if "error" in read:
        raise exceptions.Failed(
            f"the images could not be read: {read['error']}"
        )
    made = processes.run("serving_models", models)
    if "error" in made:
        raise exceptions.Failed(
            f"the models could not be made: {made['error']}"
        )
    linked = input_images.link_directory(folder)
    files = [path.stat().st_size for path in linked.iterdir()]
    origin = chosen.data_dir or "scikit-learn's photographs"
    return (
        f"{read['distinct']} JPEG files of {origin}, "
        f"{1e-3 * sum(files) / len(files):.0f} kB on average"
    )


def _measure_case(
    chosen: config.BenchServingSettings, case: processes.Point, folder: str
) -> list[processes.Point]:
    """The points of all implementations in a case."""
    job = {
        **case,
        "folder": folder,
        "seconds": chosen.seconds,
        "threads": processes.choose_threads(chosen.threads),
    }
    measurements = {
        name: functools.partial(
            processes.run, "serving_point", job | {"implementation": name}
        )
        for name in _names(chosen)
    }
    runs = processes.interleave(chosen.rounds, measurements)
    return serving_comparison.compare(case, runs)
