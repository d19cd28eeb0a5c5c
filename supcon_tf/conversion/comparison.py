"""Comparison of converted models with the model that was converted."""

from __future__ import annotations

import timeit
from concurrent import futures

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from supcon_tf import measures, scores
from supcon_tf.conversion import formats
from supcon_tf.display import text_table
from supcon_tf.host import cores

_SCORES = ("top_1", "top_5", "ece", "nll")
_COLUMNS = {  # of a model in conversion.json: title, format
    "bytes": ("MB", ".2f"),
    **{name: (scores.find(f"linear.{name}").short, ".4f") for name in _SCORES},
    "max_difference": ("max diff", ".1e"),
    "mean_difference": ("mean diff", ".1e"),
    "agreement": ("agreement", ".4f"),
    "least_cosine": ("least cosine", ".4f"),
    "milliseconds": ("ms/image", ".2f"),
}
_WARM_UP_RUNS, _TIMED_RUNS = 3, 30
# A thread has an interpreter of every format, with the model's weights.
_MOST_THREADS = 8


def outputs(
    float_model: formats.Function,
    converted: dict[str, formats.Function],
    examples: tf.data.Dataset,
) -> tuple[np.ndarray, dict[str, np.ndarray], np.ndarray]:
    """Runs all models on the same images, which are read once.

    The converted models get each image alone, on several cores at once: the
    threads of a runtime, which wait for each other layer by layer, take a
    multiple of the time where the cores have other work too. The threads, and
    what the functions keep for each thread, end with the call.

    Returns:
      The outputs of the float model, [examples, K] float32, those of the
      converted models by name, and the labels [examples] int32.
    """
    expected, labels = [], []
    output_rows = {name: [] for name in converted}
    threads = min(cores.usable(), _MOST_THREADS)
    with futures.ThreadPoolExecutor(threads) as pool:
        for images, batch_labels in examples.as_numpy_iterator():
            labels.append(batch_labels)
            expected.append(float_model(images))
            single_images = np.split(images, len(images))  # [1, S, S, 3] each
            for name, function in converted.items():
                output_rows[name] += pool.map(function, single_images)
    converted_outputs = {
        name: np.concatenate(rows) for name, rows in output_rows.items()
    }
    return np.concatenate(expected), converted_outputs, np.concatenate(labels)


def accuracy(
    probabilities: npt.NDArray[np.float32], labels: npt.NDArray[np.int32]
) -> dict[str, float]:
    """Top-1 and top-5 accuracy, ECE and NLL, as in evaluation.json."""
    summary = measures.classification_summary(probabilities, labels)
    return {name: summary[name] for name in _SCORES}


def differences(
    output: npt.NDArray[np.float32],
    expected: npt.NDArray[np.float32],
    classifies: bool,
) -> dict[str, float]:
    """Returns the differences of outputs [examples, K] from the float model.

    Args:
      output: the output of the converted model.
      expected: the output of the float model.
      classifies: whether both are probabilities; else they are representations
        of unit length.

    Returns:
      `max_difference` and `mean_difference` of single numbers, absolute; and
      of probabilities `agreement`, the share of examples with the same most
      probable class, of representations `least_cosine` of a pair.
    """
    distance = np.abs(output.astype(np.float64) - expected)
    results = {
        "max_difference": float(distance.max()),
        "mean_difference": float(distance.mean()),
    }
    if classifies:
        same_class = output.argmax(axis=1) == expected.argmax(axis=1)
        return results | {"agreement": float(same_class.mean())}
    return results | {"least_cosine": float((output * expected).sum(1).min())}


def milliseconds(function: formats.Function, image_size: int) -> float:
    """Returns the median time of one image, in milliseconds."""
    image = np.full([1, image_size, image_size, 3], 128, np.uint8)
    runs = _WARM_UP_RUNS + _TIMED_RUNS
    seconds = timeit.repeat(lambda: function(image), repeat=runs, number=1)
    return float(np.median(seconds[_WARM_UP_RUNS:])) * 1e3


def conversion_table(results: dict[str, object]) -> str:
    """Returns a table of the results of `convert`, with a row per model.

    The first row is the model that was converted.

    Example:
      >>> from supcon_tf import conversion
      >>> onnx = {"bytes": 1_500_000, "top_1": 0.75, "agreement": 1.0}
      >>> results = {"float_model": {"top_1": 0.75}, "models": {"onnx": onnx}}
      >>> print(conversion.conversion_table(results))
                     MB   top-1  agreement
      float model     -  0.7500          -
      onnx         1.50  0.7500     1.0000
    """
    models = {"float model": results["float_model"], **results["models"]}
    columns = [["", *models]]
    for name, (title, spec) in _COLUMNS.items():
        values = [model.get(name) for model in models.values()]
        if name == "bytes":
            values = [value and value / 1e6 for value in values]
        if any(value is not None for value in values):
            texts = [
                "-" if value is None else f"{value:{spec}}" for value in values
            ]
            columns.append([title, *texts])
    return text_table.text_table(zip(*columns, strict=True))
