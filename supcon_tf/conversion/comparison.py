"""Converted models beside the one that they were made from."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Iterator
from concurrent import futures

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from supcon_tf import cores, measures

# From images [N, S, S, 3] uint8 to probabilities or representations [N, K].
Function = Callable[[npt.NDArray[np.uint8]], npt.NDArray[np.float32]]

_FIGURES = ("top_1", "top_5", "ece", "nll")
_WARM_UP_RUNS, _TIMED_RUNS = 3, 30
# Each has an interpreter of every format, with the weights of the model.
_MOST_THREADS = 8


def outputs(
    functions: dict[str, Function], examples: tf.data.Dataset
) -> tuple[dict[str, npt.NDArray[np.float32]], npt.NDArray[np.int32]]:
    """Runs all models on the same images, which are read once.

    Args:
      functions: models by their names.
      examples: of `data.make_examples`.

    Returns:
      What each puts out, [examples, K] float32, by its name, and the labels
      [examples].
    """
    found = {name: [] for name in functions}
    labels = []
    for images, batch_labels in examples.as_numpy_iterator():
        labels.append(batch_labels)
        for name, function in functions.items():
            found[name].append(function(images))
    joined = {name: np.concatenate(parts) for name, parts in found.items()}
    return joined, np.concatenate(labels)


@contextlib.contextmanager
def one_by_one(functions: dict[str, Function]) -> Iterator[dict[str, Function]]:
    """The same functions, given each image alone, on several cores at once.

    A runtime's own threads, which wait for each other layer by layer, take a
    multiple of the time where the cores have other work too. The threads, and
    what the functions keep for each, end with the block.
    """
    with futures.ThreadPoolExecutor(min(cores.usable(), _MOST_THREADS)) as pool:
        yield {
            name: functools.partial(_each_alone, pool, function)
            for name, function in functions.items()
        }


def _each_alone(
    pool: futures.Executor, function: Function, images: npt.NDArray[np.uint8]
) -> npt.NDArray[np.float32]:
    """What a function gives for the images, one per call."""
    single = np.split(images, len(images))
    return np.concatenate(list(pool.map(function, single)))


def accuracy(
    probabilities: npt.NDArray[np.float32], labels: npt.NDArray[np.int32]
) -> dict[str, float]:
    """Top-1 and top-5 accuracy, ECE and NLL, as in evaluation.json.

    Args:
      probabilities: [examples, classes].
      labels: [examples] integers.
    """
    summary = measures.classification_summary(probabilities, labels)
    return {name: summary[name] for name in _FIGURES}


def differences(
    found: npt.NDArray[np.float32],
    expected: npt.NDArray[np.float32],
    classifies: bool,
) -> dict[str, float]:
    """How far outputs [examples, K] are from those of the float model.

    Args:
      found: of the converted model.
      expected: of the float model.
      classifies: whether both are probabilities; else they are representations
        of unit length.

    Returns:
      `max_difference` and `mean_difference` of single numbers, absolute; and
      of probabilities `agreement`, the share of examples with the same most
      probable class, of representations `least_cosine` of a pair.
    """
    distance = np.abs(found.astype(np.float64) - expected)
    shared = {
        "max_difference": float(distance.max()),
        "mean_difference": float(distance.mean()),
    }
    if classifies:
        same = found.argmax(axis=1) == expected.argmax(axis=1)
        return {**shared, "agreement": float(same.mean())}
    return {**shared, "least_cosine": float((found * expected).sum(1).min())}


def milliseconds(function: Function, image_size: int) -> float:
    """Median time of one image, in milliseconds."""
    image = np.full([1, image_size, image_size, 3], 128, np.uint8)
    seconds = []
    for _ in range(_WARM_UP_RUNS + _TIMED_RUNS):
        start = time.perf_counter()
        function(image)
        seconds.append(time.perf_counter() - start)
    return float(np.median(seconds[_WARM_UP_RUNS:])) * 1e3
