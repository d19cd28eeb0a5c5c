"""Requests to our SavedModel beside one of a plain Keras ResNet-50.

  python benchmarks/serving.py --data_dir=FOLDER_OF_PHOTOGRAPHS

Images per second, latencies (median and 99th percentile) and the time of all
cores per image. `ours_bytes` is the export of a ResNet-50 for 1,000 classes,
asked with JPEG files (serving_default, which decodes, crops and resizes),
`ours_search` the same with a gallery of `--gallery_rows` random rows,
`ours_images` with views of 224 pixels (predict_images, the network alone),
`keras_resnet50` is keras.applications.ResNet50, asked with normalised views.
Weights are random. Each SavedModel is loaded as TF Serving loads it, without a
network between. The defaults take some fifteen minutes on four cores.
"""

from __future__ import annotations

import dataclasses
import itertools
import pathlib
import time
from collections.abc import Callable
from concurrent import futures

import checkout  # noqa: F401
import numpy as np

from benchmarks import gallery, harness, measuring, results
from benchmarks import input as inputs
from supcon_tf import settings

# Of an implementation: its SavedModel, the signature, what that is asked with.
SERVED = {
    "ours_bytes": ("ours", "serving_default", "files"),
    "ours_search": ("gallery", "search", "files"),
    "ours_images": ("ours", "predict_images", "views"),
    "keras_resnet50": ("keras", "serving_default", "normalised"),
}
ARCHITECTURE, IMAGE_SIZE, CLASSES = "resnet50", 224, 1000
_LOGIT_SCALE = 5.0  # With less, all images have the same probabilities.
_TOLERANCE = 1e-5  # Of probabilities; one level of one pixel gives more.
_MOST_WARM_UP = 2.0  # seconds
_LEAST_REQUESTS = 3  # of each client
_REQUESTS = 8  # different ones, in turn

# A request, as its signature takes it, to the answer, by output.
Predict = Callable[[np.ndarray], dict[str, np.ndarray]]


@dataclasses.dataclass(frozen=True)
class ServingBench(harness.Bench):
    """Settings of benchmarks/serving.py."""

    NEEDS = dict.fromkeys(SERVED, ())
    AXES = {"clients": "concurrency", "images": "images"}
    COLUMNS = (
        results.IMAGES,
        results.SPREAD,
        results.Column("p50 ms", lambda p: p["p50_ms"], ".1f"),
        results.Column("p99 ms", lambda p: p["p99_ms"], ".1f"),
        # Of all cores per image; other programs change it least.
        results.Column("CPU ms", lambda p: p["cpu_ms"], ".1f"),
    )
    PEERS = ("ours_images", "keras_resnet50")

    run_dir: str = "runs/bench_serving"
    data_dir: str | None = settings.setting(None, path=True)
    """Folder with JPEG files; default: scikit-learn's two photographs."""
    images: tuple[int, ...] = (1, 8, 32)
    """Per request."""
    concurrency: tuple[int, ...] = (1, 4)
    """Clients at once."""
    gallery_rows: int = settings.setting(10_000, at_least=1)
    """Rows that are searched."""
    seconds: float = settings.setting(5.0, at_least=0)
    """Seconds that are timed."""
    seed: int = settings.setting(0, at_least=0)
    """Seed of the weights."""

    def prepare(self, folder: str) -> str:
        """Files, their views and the SavedModels."""
        description = inputs.prepare(folder, self.data_dir, (IMAGE_SIZE,))
        job = self.shared() | {"folder": folder}
        harness.run_or_fail("serving.make_models", job)
        return description


def make_models(job: measuring.Job) -> dict[str, object]:
    """Writes exports with a classifier and a gallery, and Keras' network."""
    tf = measuring.import_tensorflow(job.threads)
    from supcon_tf import models, serving
    from supcon_tf.keras_2 import keras

    keras.utils.set_random_seed(job.seed)
    encoder = models.Encoder(ARCHITECTURE)
    encoder.build((None, IMAGE_SIZE, IMAGE_SIZE, 3))
    scale = tf.random_normal_initializer(0, _LOGIT_SCALE)
    classifier = keras.layers.Dense(CLASSES, kernel_initializer=scale)
    classifier.build((None, encoder.representation_dim))
    serving.export_saved_model(
        encoder,
        pathlib.Path(job.folder, "ours"),
        image_size=IMAGE_SIZE,
        class_names=[f"class {number}" for number in range(CLASSES)],
        classifier=classifier,
    )
    shape = job.gallery_rows, encoder.representation_dim
    rows = np.random.default_rng(job.seed).standard_normal(shape, np.float32)
    serving.export_saved_model(
        encoder,
        pathlib.Path(job.folder, "gallery"),
        image_size=IMAGE_SIZE,
        gallery=gallery.make_gallery(rows, range(len(rows)), False),
    )
    network = keras.applications.ResNet50(weights=None, classes=CLASSES)
    tf.saved_model.save(network, f"{job.folder}/keras")
    return {}


def measure(job: measuring.Job) -> dict[str, float]:
    """Rate and latencies, with all cores it may use."""
    measuring.pin(job.threads)
    measuring.import_tensorflow(job.threads)
    model, signature, kind = SERVED[job.implementation]
    predicts = load(f"{job.folder}/{model}", job.threads)
    predict = predicts[signature]
    requests = make_requests(job.folder, kind, job.images)
    send(predict, requests, job.clients, min(job.seconds, _MOST_WARM_UP))
    cpu_before = time.process_time()
    latencies, duration = send(predict, requests, job.clients, job.seconds)
    cpu_seconds = time.process_time() - cpu_before
    if job.implementation == "ours_bytes":
        compare_inputs(predicts, job.folder)
    count = job.images * len(latencies)
    return {
        "seconds": duration / count,
        "cpu_ms": 1e3 * cpu_seconds / count,
        "p50_ms": 1e3 * float(np.percentile(latencies, 50)),
        "p99_ms": 1e3 * float(np.percentile(latencies, 99)),
    }


def load(directory: str, threads: int) -> dict[str, Predict]:
    """The signatures of a SavedModel in a session, as TF Serving loads it."""
    import tensorflow as tf

    tf1 = tf.compat.v1
    config = tf1.ConfigProto(
        intra_op_parallelism_threads=threads,
        inter_op_parallelism_threads=threads,
    )
    session = tf1.Session(graph=tf.Graph(), config=config)
    loaded = tf1.saved_model.loader.load(
        session, [tf.saved_model.SERVING], directory
    )
    return {
        name: session.make_callable(
            # All outputs, as for a client that names none.
            {key: part.name for key, part in signature.outputs.items()},
            feed_list=[part.name for part in signature.inputs.values()],
        )
        for name, signature in loaded.signature_def.items()
        if signature.inputs
    }


def make_requests(folder: str, kind: str, count: int) -> list[np.ndarray]:
    """Some requests of `count` images, of different ones while there are.

    They are JPEG "files", uint8 "views", or those "normalised" to -1..1.
    """
    asked = np.load(f"{folder}/{IMAGE_SIZE}.npy")
    if kind == "normalised":
        asked = asked.astype(np.float32) / 127.5 - 1
    elif kind == "files":
        files = map(pathlib.Path, inputs.list_files(folder)[: len(asked)])
        asked = np.array([file.read_bytes() for file in files], object)
    return [
        asked[(number * count + np.arange(count)) % len(asked)]
        for number in range(_REQUESTS)
    ]


def send(
    predict: Predict, requests: list, clients: int, seconds: float
) -> tuple[list[float], float]:
    """Lets clients send requests, each waiting for its answer.

    Returns:
      Seconds of each request, and from the first request to the last answer.
    """
    started = time.perf_counter()

    def run_client(number: int) -> list[float]:
        latencies = []
        while True:
            before, count = time.perf_counter(), len(latencies)
            if count >= _LEAST_REQUESTS and before - started >= seconds:
                return latencies
            predict(requests[(number + count) % len(requests)])
            latencies.append(time.perf_counter() - before)

    with futures.ThreadPoolExecutor(clients) as pool:
        latencies = itertools.chain(*pool.map(run_client, range(clients)))
    return list(latencies), time.perf_counter() - started


def compare_inputs(predicts: dict[str, Predict], folder: str) -> None:
    """Raises RuntimeError where files are answered other than their views."""
    files, views = (
        predicts[signature](make_requests(folder, kind, _REQUESTS)[0])
        for _, signature, kind in (SERVED["ours_bytes"], SERVED["ours_images"])
    )
    off = np.abs(files["probabilities"] - views["probabilities"]).max()
    if not off <= _TOLERANCE:  # nor NaN
        raise RuntimeError(f"a probability is off by {off:.1e}")


if __name__ == "__main__":
    harness.main(ServingBench)
