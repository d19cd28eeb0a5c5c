"""TFLite: three precisions, of built-in operations only."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from supcon_tf import exceptions
from supcon_tf.conversion import graph, silence

# From pooling on, all is float32, as in training: of an int8 softmax many
# probabilities are 0, whose log-likelihood is infinite.
_FLOAT_OPERATIONS = ["MEAN", "L2_NORMALIZATION", "FULLY_CONNECTED", "SOFTMAX"]


def to_tflite(
    model: graph.ImageModel,
    precision: str = "float32",
    calibration_images: npt.NDArray[np.uint8] | None = None,
) -> bytes:
    """Converts a model to TFLite.

    The file takes `images` [N, S, S, 3], of any N after `resize_tensor_input`
    and of N = 1 before, and puts out what the model does, in float32. It has
    the signature `serving_default`. Batch normalisation is folded into the
    convolutions.

    Args:
      model: what is converted.
      precision: "float32"; "float16", in which the weights are stored; or
        "int8", in which convolutions store and compute, while all that follows
        the last of them is float32. The images are uint8 for int8, and float32
        in 0..255 for the others.
      calibration_images: [n, S, S, 3] uint8, as the model will see; the ranges
        of their activations are those of int8, which needs them.

    Returns:
      The content of a .tflite file.

    Raises:
      ValueError: there are no such images, or none for int8.

    Reference: https://arxiv.org/abs/1712.05877 (int8).
    """
    if precision not in ("float32", "float16", "int8"):
        raise exceptions.InvalidValue(
            "`precision` must be one of float32, float16, int8, got "
            f"{precision!r}"
        )
    if precision == "int8":
        _check_calibration(model, calibration_images)
    with silence.silenced():
        converter = _converter(
            model, tf.uint8 if precision == "int8" else tf.float32
        )
        if precision == "int8":
            return _quantized(converter, calibration_images)
        if precision == "float16":
            converter.optimizations = [tf.lite.Optimize.DEFAULT]
            converter.target_spec.supported_types = [tf.float16]
        return converter.convert()


def interpreted(
    content: bytes,
) -> Callable[[npt.NDArray[np.uint8]], npt.NDArray[np.float32]]:
    """The function that TFLite's interpreter makes of a file.

    Args:
      content: of a .tflite file, as `to_tflite` makes it.

    Returns:
      From images [N, S, S, 3] uint8 to [N, classes or dim] float32. Each thread
      that calls it has an interpreter of its own, of one thread.
    """
    local = threading.local()

    def run(batch: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
        if not hasattr(local, "interpreter"):
            local.interpreter = _interpreter(content)
        interpreter = local.interpreter
        (images,) = interpreter.get_input_details()
        (answer,) = interpreter.get_output_details()
        if tuple(images["shape"]) != batch.shape:
            interpreter.resize_tensor_input(images["index"], batch.shape)
            interpreter.allocate_tensors()
        interpreter.set_tensor(images["index"], batch.astype(images["dtype"]))
        interpreter.invoke()
        return interpreter.get_tensor(answer["index"])

    return run


def _interpreter(content: bytes) -> tf.lite.Interpreter:
    """Makes an interpreter, ready for one image."""
    with silence.silenced():
        interpreter = tf.lite.Interpreter(model_content=content)
        interpreter.allocate_tensors()
    return interpreter


def _converter(
    model: graph.ImageModel, dtype: tf.DType
) -> tf.lite.TFLiteConverter:
    """Makes a converter that allows TFLite's own operations only."""
    function = model.function(dtype).get_concrete_function()
    # Of the model no more than its weights, which the converter saves first:
    # Keras would trace every layer to save it, for seconds.
    weights = tf.Module()
    weights.all = list(function.variables)
    converter = tf.lite.TFLiteConverter.from_concrete_functions(
        [function], weights
    )
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS]
    return converter


def _quantized(
    converter: tf.lite.TFLiteConverter, images: npt.NDArray[np.uint8]
) -> bytes:
    """Quantises but for some operations, which only the debugger can."""

    def calibration() -> Iterator[list[npt.NDArray[np.uint8]]]:
        for image in images:
            yield [image[np.newaxis]]

    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    converter.representative_dataset = calibration
    options = tf.lite.experimental.QuantizationDebugOptions(
        denylisted_ops=_FLOAT_OPERATIONS
    )
    debugger = tf.lite.experimental.QuantizationDebugger(
        converter=converter, debug_options=options
    )
    return debugger.get_nondebug_quantized_model()


def _check_calibration(
    model: graph.ImageModel, images: npt.NDArray[np.uint8] | None
) -> None:
    """Raises ValueError for images that the model cannot be run on."""
    images = np.empty(0) if images is None else images
    side = model.image_size
    is_bytes = images.dtype == np.uint8
    if not (is_bytes and len(images) and images.shape[1:] == (side, side, 3)):
        raise exceptions.InvalidValue(
            f"`calibration_images` must be [n, {side}, {side}, 3] uint8, n >= "
            f"1, got {list(images.shape)} {images.dtype}"
        )
