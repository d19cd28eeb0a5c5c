"""Measures one input pipeline, in a process of its own.

  python -m supcon_tf.benchmarks.input_point '{"name": "ours", "size": 32, ...}'

Started by `benchmarks.input` through `benchmarks.processes`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import numpy as np

from supcon_tf.benchmarks import (
    input_peers,
    input_pipelines,
    libraries,
    processes,
)

# tf.data chooses its parallelism within the first seconds.
_MOST_WARM_UP = 2.0
_LEAST_BATCHES = 8
_PIPELINES = {
    ("ours", "memory"): input_pipelines.our_memory,
    ("ours", "jpeg"): input_pipelines.our_jpeg,
    ("ours", "views"): input_pipelines.our_views,
    ("twice", "views"): input_pipelines.our_views_twice,
    ("tfm", "memory"): input_peers.tfm_memory,
    ("tfm", "jpeg"): input_peers.tfm_jpeg,
    ("pil", "memory"): input_peers.pil_memory,
    ("pil", "jpeg"): input_peers.pil_jpeg,
}


def measure(job: processes.Point) -> processes.Point:
    """Images per second in the steady state, with all cores of this process.

    Args:
      job: `name` of the implementation; `threads`; `seconds` of timed batches,
        eight at least; all others are fields of `input_pipelines.Work`.

    Returns:
      `images_per_second`, `batches` timed and `libraries`.

    Raises:
      RuntimeError: what came out is no batch of images.
    """
    job = dict(job)
    name, threads = job.pop("name"), job.pop("threads")
    seconds = job.pop("seconds")
    pin(threads)
    if name == "pil":
        libraries.import_torch(threads)
    else:
        libraries.import_tensorflow(threads)
    work = input_pipelines.Work(**job)
    batches = _PIPELINES[name, work.input](work)
    count, duration, last = time_batches(batches, seconds)
    images = work.batch_size * (2 if work.input == "views" else 1)
    check_batch(np.asarray(last), images, work.size)
    return {
        "images_per_second": count * images / duration,
        "batches": count,
        "libraries": libraries.versions("tensorflow", "torch", "torchvision"),
    }


def time_batches(
    batches: Iterator[object], seconds: float
) -> tuple[int, float, object]:
    """How many batches came within which time, after a warm-up; the last one.

    The warm-up begins when the first batch is there: what is traced, started
    and loaded before it is not counted. It takes two seconds, or as long as
    what is timed where that is less.
    """
    next(batches)
    _take(batches, min(seconds, _MOST_WARM_UP))
    return _take(batches, seconds)


def check_batch(batch: np.ndarray, images: int, size: int) -> None:
    """Raises RuntimeError unless it is a batch of images, none constant."""
    shape = (images, size, size, 3)
    if batch.dtype != np.uint8 or batch.shape != shape:
        raise RuntimeError(
            f"a batch must be {list(shape)} uint8, "
            f"got {list(batch.shape)} {batch.dtype}"
        )
    if np.ptp(batch.reshape(images, -1), axis=1).max() == 0:
        raise RuntimeError("a batch must hold pictures, got constant images")


def pin(threads: int) -> None:
    """Keeps this process and its children on so many cores, where it can."""
    if hasattr(os, "sched_setaffinity"):  # Linux
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, cores[:threads])


def _take(
    batches: Iterator[object], seconds: float
) -> tuple[int, float, object]:
    """Takes batches for as long as this; their number, the time, the last."""
    count, started = 0, time.perf_counter()
    while True:
        batch = next(batches)
        count += 1
        duration = time.perf_counter() - started
        if count >= _LEAST_BATCHES and duration >= seconds:
            return count, duration, batch


if __name__ == "__main__":
    processes.answer(measure)
