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
from supcon_tf.conversion import convolutions

# From images [N, S, S, 3] uint8 to probabilities or representations [N, K].
Function = Callable[[npt.NDArray[np.uint8]], npt.NDArray[np.float32]]

_PRECISIONS = ("float32", "float16", "int8")
# From pooling on, all is float32, as in training: of an int8 softmax many
# probabilities are 0, whose log-likelihood is infinite.
_FLOAT_OPERATIONS = ["MEAN", "L2_NORMALIZATION", "FULLY_CONNECTED", "SOFTMAX"]
# The operations of ONNX 1.12 (2022), which later runtimes have too.
_OPSET = 17
# `silenced` holds this lock: a thread that entered while another thread is
# silenced would restore that silence when it leaves.
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

    Raises:
      ValueError: the classifier returns probabilities, or the encoder does not
        compute in float32.
    """

    encoder: models.Encoder
    image_size: int
    classifier: Callable[[tf.Tensor], tf.Tensor] | None = None

    def __post_init__(self):
        encoder = models.as_encoder(self.encoder)
        encoder.build((None, self.image_size, self.image_size, 3))
        _check_precision(encoder)
        object.__setattr__(self, "encoder", encoder)
        if self.classifier is not None:
            dim = encoder.representation_dim
            models.layers.check_logits(self.classifier, dim)

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
        """Returns the function of `images` [N, S, S, 3] of a type, any N."""
        side = self.image_size
        spec = tf.TensorSpec([None, side, side, 3], dtype, "images")
        return tf.function(self._infer, input_signature=[spec])

    def _infer(self, images: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns the output of the model for images, by its name."""
        with pixels.trusted():  # other runtimes have no such errors
            output = self.encoder(images, training=False)  # [N, dim]
        if self.classifier is not None:
            output = tf.nn.softmax(self.classifier(output))  # [N, classes]
        elif not self.encoder.normalize:
            output = tf.math.l2_normalize(output, axis=1)
        return {self.output: output}


def _check_precision(encoder: models.Encoder) -> None:
    """Raises ValueError for layers of half precision, which TFLite lacks."""
    dtypes = {
        layer.compute_dtype
        for layer in models.layers.parts(encoder)
        if layer is not encoder and hasattr(layer, "compute_dtype")
    }
    halves = sorted(dtypes & {"float16", "bfloat16"})
    exceptions.require(
        not halves,
        "`encoder` must compute in float32 to be converted: make or load "
        "it under Keras' policy float32",
        ", ".join(halves),
    )


def to_tflite(
    model: ImageModel,
    precision: str = "float32",
    calibration_images: npt.NDArray[np.uint8] | None = None,
) -> bytes:
    """Returns the .tflite file of a model; its signature is `serving_default`.

    The file takes `images` [N, S, S, 3], of any N after `resize_tensor_input`
    and of N = 1 before: uint8 for int8, else float32 in 0..255. Its output is
    that of the model, in float32.

    Args:
      model: the model to convert.
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
        # The file has no operations but TFLite's own.
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
    """Raises ValueError unless `images` are [n, side, side, 3] uint8."""
    images = np.empty(0) if images is None else images
    fits = images.dtype == np.uint8 and images.shape[1:] == (side, side, 3)
    exceptions.require(
        fits and len(images),
        f"`calibration_images` must be [n, {side}, {side}, 3] uint8, n >= 1",
        f"{list(images.shape)} {images.dtype}",
    )


def tflite_function(content: bytes) -> Function:
    """Returns the function that runs a file of `to_tflite` in TFLite.

    Returns:
      From images [N, S, S, 3] uint8 to [N, classes or dim] float32. Each thread
      that calls it has an interpreter of its own, of one thread.
    """
    local = threading.local()

    def infer(batch: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
        if not hasattr(local, "interpreter"):
            with silenced():
                local.interpreter = tf.lite.Interpreter(model_content=content)
                local.interpreter.allocate_tensors()
        interpreter = local.interpreter
        (images,) = interpreter.get_input_details()
        (output,) = interpreter.get_output_details()
        if tuple(images["shape"]) != batch.shape:
            interpreter.resize_tensor_input(images["index"], batch.shape)
            interpreter.allocate_tensors()
        interpreter.set_tensor(images["index"], batch.astype(images["dtype"]))
        interpreter.invoke()
        return interpreter.get_tensor(output["index"])

    return infer


def import_onnx() -> list[types.ModuleType]:
    """Imports tf2onnx and onnxruntime, and only where they are used.

    Raises:
      ImportError: one of them is not installed.
    """
    return exceptions.import_extra("onnx", "tf2onnx", "onnxruntime")


def to_onnx(model: ImageModel) -> bytes:
    """Returns the .onnx file of a model.

    The file takes `images` [N, S, S, 3] float32 in 0..255, any N. Its output is
    that of the model, in float32.

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
        onnx_model, _ = tf2onnx.convert.from_function(
            function,
            function.input_signature,
            opset=_OPSET,
            custom_op_handlers={"Erfc": (_replace_erfc, [])},
        )
        _restore_constants(onnx_model.graph, function.get_concrete_function())
    for value in (*onnx_model.graph.input, *onnx_model.graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = "N"
    return onnx_model.SerializeToString()


def _replace_erfc(graph: object, node: object, *_: object) -> None:
    """Replaces a node Erfc(x), of TensorFlow's GELU, by 1 - Erf(x) of ONNX."""
    erf = graph.make_node("Erf", node.input)
    unit = graph.make_const(f"{node.name}_one", np.ones((), np.float32))
    graph.remove_node(node.name)
    operands = [unit.output[0], erf.output[0]]
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
    """Returns the function that runs a file of `to_onnx` on the CPU.

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
    """Returns the .pth file of a model: a state dict of torchvision's ResNet.

    The network takes pixels in 0..1, less the encoder's mean and divided by its
    deviation, and puts out what is pooled, or the logits of the classifier.

    Raises:
      ImportError: the extra `torch` is not installed.
      ValueError: torchvision has no such network.
    """
    torch, _ = import_torch()
    state = convolutions.torchvision_state(model.encoder, model.classifier)
    buffer = io.BytesIO()
    tensors = {name: torch.tensor(array) for name, array in state.items()}
    torch.save(tensors, buffer)
    return buffer.getvalue()


def torchvision_function(content: bytes, model: ImageModel) -> Function:
    """Returns the function that runs a file of `to_torchvision` in torch.

    Returns:
      A function from images [N, S, S, 3] uint8 to the output of the model, [N,
      classes or dim] float32.

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

    def infer(batch: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
        mean = np.float32(model.encoder.image_mean)
        std = np.float32(model.encoder.image_std)
        images = (batch / np.float32(255) - mean) / std
        images = images.transpose(0, 3, 1, 2)  # [N, 3, S, S]
        with torch.no_grad():
            output = network(torch.tensor(images))
        if model.classifier is not None:
            return torch.softmax(output, dim=1).numpy()
        return torch.nn.functional.normalize(output, dim=1).numpy()

    return infer


@contextlib.contextmanager
def silenced() -> Iterator[None]:
    """Drops all that this process prints meanwhile, C++ code included.

    Converters print what a user cannot use. Errors come as exceptions, whose
    text holds the converter's. Threads wait for each other.
    """
    with _LOCK, open(os.devnull, "w") as null_device:
        sys.stdout.flush()
        sys.stderr.flush()
        saved_descriptors = {number: os.dup(number) for number in (1, 2)}
        try:
            for number in saved_descriptors:
                os.dup2(null_device.fileno(), number)
            yield
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            for number, saved in saved_descriptors.items():
                os.dup2(saved, number)
                os.close(saved)
