"""Measures requests to one SavedModel, in a process of its own.

  python -m supcon_tf.benchmarks.serving_point '{"images": 8, ...}'

Started by `benchmarks.serving` through `benchmarks.processes`. The SavedModel
is loaded by the Session loader of TensorFlow 1, which is what TF Serving calls,
and without a network between, so that what is measured is the model.
"""

from __future__ import annotations

import itertools
import pathlib
import threading
import time
from collections.abc import Callable

import numpy as np

from supcon_tf.benchmarks import (
    input_images,
    input_point,
    libraries,
    processes,
    serving_models,
)

_MOST_WARM_UP = 2.0  # seconds
_LEAST_REQUESTS = 3  # of each client
_REQUESTS = 8  # different ones, in turn

# A request, as its signature takes it, to the answer, by output.
Predict = Callable[[np.ndarray], dict[str, np.ndarray]]


def measure(job: processes.Point) -> processes.Point:
    """Images per second and latencies, with all cores of this process.

    Args:
      job: `implementation`; `folder`, filled by `input_images.prepare` and
        `serving_models.make`; `images` per request; `clients` that each send
        one request after the other; `seconds` of timed requests, three of
        each client at least; `threads`.

    Returns:
      `images_per_second`; `p50_ms` and `p99_ms`, latencies of requests;
      `cpu_ms`, of all cores per image, which other programs on the machine
      change least; `requests` timed; of files, `difference`, the largest
      between the probabilities for files and those for their views;
      `libraries`.
    """
    input_point.pin(job["threads"])
    libraries.import_tensorflow(job["threads"])
    served = serving_models.SERVED[job["implementation"]]
    models = load(pathlib.Path(job["folder"]) / served.model, job["threads"])
    predict = models[served.signature]
    requests = make_requests(job["folder"], served.input, job["images"])
    send(predict, requests, job["clients"], min(job["seconds"], _MOST_WARM_UP))
    cpu_before = time.process_time()
    latencies, duration = send(
        predict, requests, job["clients"], job["seconds"]
    )
    cpu_seconds = time.process_time() - cpu_before
    images = job["images"] * len(latencies)
    measured = {
        "images_per_second": images / duration,
        "cpu_ms": 1e3 * cpu_seconds / images,
        "p50_ms": 1e3 * float(np.percentile(latencies, 50)),
        "p99_ms": 1e3 * float(np.percentile(latencies, 99)),
        "requests": len(latencies),
        "libraries": libraries.versions("tensorflow"),
    }
    if served.input == "files":
        measured["difference"] = compare_inputs(models, job["folder"])
    return measured


def load(directory: pathlib.Path, threads: int) -> dict[str, Predict]:
    """The signatures of a SavedModel, by name, in one session."""
    import tensorflow as tf

    tf1 = tf.compat.v1
    session = tf1.Session(
        graph=tf.Graph(),
        config=tf1.ConfigProto(
            intra_op_parallelism_threads=threads,
            inter_op_parallelism_threads=threads,
        ),
    )
    loaded = tf1.saved_model.loader.load(
        session, [tf.saved_model.SERVING], str(directory)
    )

    def make_predict(signature: object) -> Predict:
        (fed,) = signature.inputs.values()
        # All outputs, as for a client that names none.
        fetched = {key: to.name for key, to in signature.outputs.items()}
        return session.make_callable(fetched, feed_list=[fed.name])

    return {
        name: make_predict(signature)
        for name, signature in loaded.signature_def.items()
        if len(signature.inputs) == 1
    }


def make_requests(folder: str, kind: str, images: int) -> list[np.ndarray]:
    """Some requests of `images` each, of different images while there are.

    Args:
      folder: filled by `input_images.prepare`.
      kind: see `serving_models.Served.input`.
      images: per request.
    """
    everything = _load_images(folder, kind)
    return [
        everything[(number * images + np.arange(images)) % len(everything)]
        for number in range(_REQUESTS)
    ]


def send(
    predict: Predict,
    requests: list[np.ndarray],
    clients: int,
    seconds: float,
) -> tuple[list[float], float]:
    """Lets clients send requests, each waiting for its answer.

    Returns:
      Seconds of each request, and of all together, from the first request to
      the last answer.

    Raises:
      Exception: what a request raised.
    """
    latencies, failures = [], []
    started = time.perf_counter()

    def run_client(number: int) -> None:
        for count in itertools.count():
            before = time.perf_counter()
            if count >= _LEAST_REQUESTS and before - started >= seconds:
                return
            try:
                predict(requests[(number + count) % len(requests)])
            except Exception as error:  # Raised below, where it is seen.
                failures.append(error)
                return
            latencies.append(time.perf_counter() - before)

    threads = [
        threading.Thread(target=run_client, args=[number])
        for number in range(clients)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return latencies, time.perf_counter() - started


def compare_inputs(models: dict[str, Predict], folder: str) -> float:
    """Largest difference of probabilities between files and their views.

    The views are evaluation's, of whole images, made before the measurement.
    """
    answers = []
    for name in ("ours_bytes", "ours_images"):
        served = serving_models.SERVED[name]
        (request, *_) = make_requests(folder, served.input, _REQUESTS)
        answers.append(models[served.signature](request)["probabilities"])
    return float(np.abs(answers[0] - answers[1]).max())


def _load_images(folder: str, kind: str) -> np.ndarray:
    """All different images, as requests have them."""
    size = serving_models.IMAGE_SIZE
    views = np.load(input_images.array_path(folder, size))
    if kind == "views":
        return views
    if kind == "normalised":
        return views.astype(np.float32) / 127.5 - 1
    paths = sorted(input_images.link_directory(folder).iterdir())[: len(views)]
    return np.array([path.read_bytes() for path in paths], object)


if __name__ == "__main__":
    processes.answer(measure)
