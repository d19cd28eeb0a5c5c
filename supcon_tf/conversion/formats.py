"""Files for TFLite, ONNX and torchvision: converts a model, runs a file."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import os
import sys
import threading
import types
from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from supcon_tf import exceptions, models, pixels
from supcon_tf.conversion import places

# From images [N, S, S, 3] uint8 to probabilities or representations [N, K].
Function = Callable[[npt.NDArray[np.uint8]], npt.NDArray[np.float32]]

_PRECISIONS = ("float32", "float16", "int8")
# From pooling on, all is float32, as in training: of an int8 softmax many
# probabilities are 0, whose log-likelihood is infinite.
_FLOAT_OPERATIONS = ["MEAN", "L2_NORMALIZATION", "FULLY_CONNECTED", "SOFTMAX"]
# Of ONNX 1.12 (2022): what later runtimes run too.
_OPSET = 17
# `silenced` holds it: a thread that entered while another thread is silenced
# would restore that silence when it leaves.
_LOCK = threading.RLock()


@dataclasses.dataclass(frozen=True, eq=False)
class ImageModel:
    """Encoder and classifier in inference, for images of one size.

    The normalisation of pixels is inside, decoding and crop are not.

    Attributes:
      encoder: built encoder, or any Keras model, which becomes one.
      image_size: S, in pixels.
      classifier: from representations [N, dim] to logits [N, classes]
        float32, built too; or None.
    """

    encoder: models.Encoder
    image_size: int
    classifier: Callable[[tf.Tensor], tf.Tensor] | None = None

    def __post_init__(self):
        encoder = models.as_encoder(self.encoder)
        encoder.build((None, self.image_size, self.image_size, 3))
        object.__setattr__(self, "encoder", encoder)

    @property
    def output(self) -> str:
        """Name of the output of the model.

        `probabilities` [N, classes] float32, or without a classifier
        `representation` [N, dim] float32, unit length.
        """
        return "representation" if self.classifier is None else "probabilities"

    def function(
        self, dtype: tf.DType = tf.uint8
    ) -> tf.types.experimental.GenericFunction:
        """The function of `images` [N, S, S, 3] of a type, N unknown."""
        side = self.image_size
        spec = tf.TensorSpec([None, side, side, 3], dtype, "images")
        return tf.function(self._answer, input_signature=[spec])

    def _answer(self, images: tf.Tensor) -> dict[str, tf.Tensor]:
        with pixels.trusted():  # other runtimes have no such errors
            answer = self.encoder(images, training=False)
        if self.classifier is not None:
            answer = tf.nn.softmax(self.classifier(answer))
        elif not self.encoder.normalize:
            answer = tf.math.l2_normalize(answer, axis=1)
        return {self.output: answer}


def to_tflite(
    model: ImageModel,
    precision: str = "float32",
    calibration_images: npt.NDArray[np.uint8] | None = None,
) -> bytes:
    """The .tflite file of a model, with the signature `serving_default`.

    The file takes `images` [N, S, S, 3], of any N after `resize_tensor_input`
    and of N = 1 before: uint8 for int8, else float32 in 0..255. It puts out
    what the model does, in float32.

    Args:
      model: what is converted.
      precision: "float32"; "float16", in which the weights are stored; or
        "int8", in which convolutions store and compute, while all that follows
        the last of them is float32.
      calibration_images: [n, S, S, 3] uint8, such as the model will see; int8
        needs them for the ranges of its activations.

    Example:
      >>> import supcon_tf
      >>> from supcon_tf import conversion
      >>> encoder = supcon_tf.load_encoder("runs/mine")
      >>> model = conversion.formats.ImageModel(encoder, image_size=16)
      >>> conversion.to_tflite(model)[4:8]  # as every such file has
      b'TFL3'

    Raises:
      ValueError: `calibration_images` are not as above, or None for int8.

    Reference: https://arxiv.org/abs/1712.05877 (int8).
    """
    exceptions.require_one_of(_PRECISIONS, "precision", precision)
    if precision == "int8":
        _check_calibration(calibration_images, model.image_size)
    # The converter saves its input first: no more than the weights, for Keras
    # would trace every layer to save it, for seconds.
    weights = tf.Module()
    with silenced():
        dtype = tf.uint8 if precision == "int8" else tf.float32
        function = model.function(dtype).get_concrete_function()
        weights.all = list(function.variables)
        converter = tf.lite.TFLiteConverter.from_concrete_functions(
            [function], weights
        )
        # None but TFLite's own operations.
        converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS]
        if precision == "float32":
            return converter.convert()
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
        if precision == "float16":
            converter.target_spec.supported_types = [tf.float16]
            return converter.convert()
        converter.representative_dataset = lambda: (
            [image[np.newaxis]] for image in calibration_images
        )
        # Only the debugger can leave some operations as they are.
        options = tf.lite.experimental.QuantizationDebugOptions(
            denylisted_ops=_FLOAT_OPERATIONS
        )
        return tf.lite.experimental.QuantizationDebugger(
            converter=converter, debug_options=options
        ).get_nondebug_quantized_model()


def _check_calibration(images: npt.NDArray[np.uint8] | None, side: int) -> None:
    images = np.empty(0) if images is None else images
    fits = images.dtype == np.uint8 and images.shape[1:] == (side, side, 3)
    exceptions.require(
        fits and len(images),
        f"`calibration_images` must be [n, {side}, {side}, 3] uint8, n >= 1",
        f"{list(images.shape)} {images.dtype}",
    )


def tflite_function(content: bytes) -> Function:
    """The function that TFLite's interpreter makes of `to_tflite`'s content.

    Returns:
      From images [N, S, S, 3] uint8 to [N, classes or dim] float32. Each thread
      that calls it has an interpreter of its own, of one thread.
    """
    local = threading.local()

    def run(batch: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
        if not hasattr(local, "interpreter"):
            with silenced():
                local.interpreter = tf.lite.Interpreter(model_content=content)
                local.interpreter.allocate_tensors()
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


def import_onnx() -> list[types.ModuleType]:
    """Imports tf2onnx and onnxruntime, and only where they are used.

    Raises:
      ImportError: one of them is not installed.
    """
    return exceptions.import_extra("onnx", "tf2onnx", "onnxruntime")


def to_onnx(model: ImageModel) -> bytes:
    """The .onnx file of a model.

    The file takes `images` [N, S, S, 3] float32 in 0..255, any N, and puts out
    what the model does, in float32.

    Example:
      >>> import numpy as np
      >>> import supcon_tf
      >>> from supcon_tf import conversion
      >>> encoder = supcon_tf.load_encoder("runs/mine")
      >>> model = conversion.formats.ImageModel(encoder, image_size=16)
      >>> run = conversion.formats.onnx_function(conversion.to_onnx(model))
      >>> run(np.zeros([2, 16, 16, 3], np.uint8)).shape
      (2, 26)

    Raises:
      ImportError: the extra `onnx` is not installed.
    """
    tf2onnx, _ = import_onnx()
    function = model.function(tf.float32)
    with silenced():
        converted, _ = tf2onnx.convert.from_function(
            function,
            function.input_signature,
            opset=_OPSET,
            custom_op_handlers={"Erfc": (_replace_erfc, [])},
        )
        _restore_constants(converted.graph, function.get_concrete_function())
    for value in (*converted.graph.input, *converted.graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = "N"
    return converted.SerializeToString()


def _replace_erfc(graph: object, node: object, *_: object) -> None:
    """Replaces a node Erfc(x), of TensorFlow's GELU, by 1 - Erf(x) of ONNX."""
    erf = graph.make_node("Erf", node.input)
    one = graph.make_const(f"{node.name}_one", np.ones((), np.float32))
    graph.remove_node(node.name)
    operands = [one.output[0], erf.output[0]]
    graph.make_node("Sub", operands, outputs=node.output, name=node.name)


def _restore_constants(
    graph: object, function: tf.types.experimental.ConcreteFunction
) -> None:
    """Turns the inputs of an ONNX graph that are constants into initializers.

    Numbers that a network made before it was traced, as positions of tokens,
    are constants of the function, which tf2onnx takes for inputs.
    """
    import onnx

    constants = {
        tensor.name: tf.get_static_value(tensor) for tensor in function.inputs
    }
    for value in list(graph.input):
        constant = constants.get(value.name)
        if constant is not None:
            graph.input.remove(value)
            tensor = onnx.numpy_helper.from_array(constant, value.name)
            graph.initializer.append(tensor)


def onnx_function(content: bytes) -> Function:
    """The function that ONNX Runtime makes of `to_onnx`'s content, on the CPU.

    Returns:
      From images [N, S, S, 3] uint8 to [N, classes or dim] float32, on the
      thread that calls it.

    Raises:
      ImportError: the extra `onnx` is not installed.
    """
    _, onnxruntime = import_onnx()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        content, options, providers=["CPUExecutionProvider"]
    )
    return lambda batch: session.run(
        None, {"images": batch.astype(np.float32)}
    )[0]


def import_torch() -> list[types.ModuleType]:
    """Imports torch and torchvision, and only where they are used.

    Raises:
      ImportError: one of them is not installed.
    """
    return exceptions.import_extra("torch", "torch", "torchvision")


def to_torchvision(model: ImageModel) -> bytes:
    """The .pth file of a model: a state dict of torchvision's ResNet.

    The network takes pixels in 0..1, less the encoder's mean and divided by its
    deviation, and puts out what is pooled, or the logits of the classifier.

    Raises:
      ImportError: the extra `torch` is not installed.
      ValueError: torchvision has no such network.
    """
    torch, _ = import_torch()
    state = places.torchvision_state(model.encoder, model.classifier)
    buffer = io.BytesIO()
    tensors = {name: torch.tensor(array) for name, array in state.items()}
    torch.save(tensors, buffer)
    return buffer.getvalue()


def torchvision_function(content: bytes, model: ImageModel) -> Function:
    """The function of torchvision's network with `to_torchvision`'s content.

    Returns:
      From images [N, S, S, 3] uint8 to what the model puts out, [N, classes or
      dim] float32.

    Raises:
      ImportError: the extra `torch` is not installed.
    """
    torch, torchvision = import_torch()
    state = torch.load(io.BytesIO(content), weights_only=True)
    classes = len(state["fc.bias"]) if "fc.bias" in state else 1
    network = torchvision.models.get_model(
        model.encoder.architecture, weights=None, num_classes=classes
    )
    if "fc.bias" not in state:
        network.fc = torch.nn.Identity()
    network.load_state_dict(state)
    network.eval()

    def run(batch: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
        mean = np.float32(model.encoder.image_mean)
        std = np.float32(model.encoder.image_std)
        images = (batch / np.float32(255) - mean) / std
        images = images.transpose(0, 3, 1, 2)  # [N, 3, S, S]
        with torch.no_grad():
            answer = network(torch.tensor(images))
        if model.classifier is not None:
            return torch.softmax(answer, dim=1).numpy()
        return torch.nn.functional.normalize(answer, dim=1).numpy()

    return run


@contextlib.contextmanager
def silenced() -> Iterator[None]:
    """Drops all that this process prints meanwhile, C++ code included.

    Converters print what a user cannot use. Errors come as exceptions, whose
    text holds the converter's. Threads wait for each other.
    """
    with _LOCK, open(os.devnull, "w") as nowhere:
        sys.stdout.flush()
        sys.stderr.flush()
        copies = {number: os.dup(number) for number in (1, 2)}
        try:
            for number in copies:
                os.dup2(nowhere.fileno(), number)
            yield
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            for number, copy in copies.items():
                os.dup2(copy, number)
                os.close(copy)
