"""ONNX, by tf2onnx: for ONNX Runtime and what else reads it."""

from __future__ import annotations

import types
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from supcon_tf import exceptions
from supcon_tf.conversion import graph, silence

# Of ONNX 1.12 (2022): what later runtimes run too.
_OPSET = 17


def import_libraries() -> tuple[types.ModuleType, types.ModuleType]:
    """Imports tf2onnx and onnxruntime, and only where they are used.

    Raises:
      ImportError: one of them is not installed.
    """
    try:
        import onnxruntime
        import tf2onnx
    except ImportError as error:
        raise exceptions.MissingPackage(
            "ONNX must have the extra `onnx`: pip install 'supcon_tf[onnx]', "
            f"got: {error}"
        ) from error
    return tf2onnx, onnxruntime


def to_onnx(model: graph.ImageModel) -> bytes:
    """Converts a model to ONNX.

    The file takes `images` [N, S, S, 3] float32 in 0..255, any N, and puts out
    what the model does, in float32.

    Args:
      model: what is converted.

    Returns:
      The content of an .onnx file.

    Raises:
      ImportError: the extra `onnx` is not installed.
    """
    tf2onnx, _ = import_libraries()
    function = model.function(tf.float32)
    with silence.silenced():
        converted, _ = tf2onnx.convert.from_function(
            function, function.input_signature, opset=_OPSET
        )
    for value in (*converted.graph.input, *converted.graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = "N"
    return converted.SerializeToString()


def interpreted(
    content: bytes,
) -> Callable[[npt.NDArray[np.uint8]], npt.NDArray[np.float32]]:
    """The function that ONNX Runtime makes of a file, on the CPU.

    Args:
      content: of an .onnx file, as `to_onnx` makes it.

    Returns:
      From images [N, S, S, 3] uint8 to [N, classes or dim] float32, on the
      thread that calls it.

    Raises:
      ImportError: the extra `onnx` is not installed.
    """
    _, onnxruntime = import_libraries()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        content, options, providers=["CPUExecutionProvider"]
    )

    def run(batch: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
        return session.run(None, {"images": batch.astype(np.float32)})[0]

    return run
