"""TFLite and ONNX files give what the model gives, in their runtimes."""

from __future__ import annotations

import os
import sys
import threading

import numpy as np
import onnx
import pytest
import tensorflow as tf

from supcon_tf import models
from supcon_tf.conversion import formats
from supcon_tf.keras_2 import keras

SIDE = 16  # pixels


def noisy_images(count: int, seed: int) -> np.ndarray:
    """Noise around a colour that is another in every image."""
    rng = np.random.default_rng(seed)
    colors = rng.uniform(0, 255, (count, 1, 1, 3))
    pixels = rng.normal(colors, 40, (count, SIDE, SIDE, 3))
    return pixels.clip(0, 255).astype(np.uint8)


@pytest.fixture(scope="module")
def model():
    """Strided convolutions, a residual, and batch norms that are not unit."""
    images = keras.Input((SIDE, SIDE, 3))
    options = {"padding": "same", "use_bias": False}
    features = keras.layers.Conv2D(48, 3, 2, **options)(images)
    features = keras.layers.ReLU()(keras.layers.BatchNormalization()(features))
    branch = keras.layers.Conv2D(48, 3, **options)(features)
    branch = keras.layers.BatchNormalization()(branch)
    features = keras.layers.Add()([features, branch])
    features = keras.layers.ReLU()(features)
    encoder = models.BackboneEncoder(keras.Model(images, features))
    classifier = models.LinearClassifier(encoder, 5)
    classifier.build((None, SIDE, SIDE, 3))
    rng = np.random.default_rng(2)
    for variable in encoder.variables:
        kind = variable.name.rpartition("/")[2].partition(":")[0]
        shape = variable.shape
        variable.assign(
            {
                "kernel": rng.normal(0, np.prod(shape[:-1]) ** -0.5, shape),
                "gamma": rng.uniform(0.5, 1.5, shape),
                "beta": rng.uniform(-0.3, 0.3, shape),
                "moving_mean": rng.uniform(-0.3, 0.3, shape),
                "moving_variance": rng.uniform(0.5, 1.5, shape),
            }[kind]
        )
    kernel, bias = classifier.classifier.weights
    # Logits of these images around 0, a deviation apart.
    unit = encoder(noisy_images(12, seed=0), training=False)
    kernel.assign(rng.normal(0, 1, kernel.shape))
    logits = tf.matmul(unit, kernel)
    kernel.assign(kernel / tf.math.reduce_std(logits, axis=0))
    bias.assign(-tf.reduce_mean(tf.matmul(unit, kernel), axis=0))
    return formats.ImageModel(encoder, SIDE, classifier.classifier)


IMAGES = noisy_images(12, seed=0)
CALIBRATION = noisy_images(16, seed=1)


@pytest.fixture(scope="module")
def expected(model):
    return model.function()(IMAGES)["probabilities"].numpy()


@pytest.fixture(scope="module")
def converted(model):
    return {
        precision: formats.to_tflite(model, precision, CALIBRATION)
        for precision in ("float32", "float16", "int8")
    } | {"onnx": formats.to_onnx(model)}


pytestmark = pytest.mark.not_quick


@pytest.mark.parametrize(
    ("name", "tolerance"),
    [("float32", 1e-5), ("float16", 1e-2), ("int8", 0.1), ("onnx", 1e-5)],
)
def test_a_file_answers_as_the_model(converted, expected, name, tolerance):
    assert len(set(expected.argmax(axis=1))) > 2  # these images differ
    kind = "onnx" if name == "onnx" else "tflite"
    run = getattr(formats, f"{kind}_function")(converted[name])
    for images in (IMAGES[:1], IMAGES, IMAGES[:5], IMAGES[:1]):
        outputs = run(images)
        assert outputs.dtype == np.float32
        np.testing.assert_allclose(
            outputs, expected[: len(images)], rtol=0, atol=tolerance
        )
    np.testing.assert_allclose(outputs.sum(axis=1), 1, rtol=1e-5)


@pytest.mark.parametrize("precision", ["float32", "float16", "int8"])
def test_a_file_is_what_an_app_expects(converted, precision):
    interpreter = tf.lite.Interpreter(model_content=converted[precision])
    (images,) = interpreter.get_input_details()
    (output,) = interpreter.get_output_details()
    assert list(images["shape_signature"]) == [-1, SIDE, SIDE, 3]
    assert images["dtype"] == (np.uint8 if precision == "int8" else np.float32)
    assert output["dtype"] == np.float32
    assert interpreter.get_signature_list() == {
        "serving_default": {"inputs": ["images"], "outputs": ["probabilities"]}
    }
    operations = {op["op_name"] for op in interpreter._get_ops_details()}
    # No Flex, no custom operation; batch norm is in the convolutions.
    assert operations <= {
        *("CONV_2D", "ADD", "MUL", "SUB", "PAD", "CAST"),
        *("MEAN", "L2_NORMALIZATION", "FULLY_CONNECTED", "SOFTMAX"),
        *("QUANTIZE", "DEQUANTIZE", "AVERAGE_POOL_2D"),
    }


def test_smaller_precisions_make_smaller_files(converted):
    sizes = {name: len(content) for name, content in converted.items()}
    assert sizes["float16"] < 0.65 * sizes["float32"]
    assert sizes["int8"] < sizes["float16"]


@pytest.mark.slow
def test_calibration_images_matter(model, converted, expected):
    """What one black image tells of the ranges is wrong."""
    black = formats.to_tflite(model, "int8", np.zeros_like(CALIBRATION[:1]))
    calibrated_error, black_error = (
        np.abs(formats.tflite_function(content)(IMAGES) - expected).mean()
        for content in (converted["int8"], black)
    )
    assert calibrated_error < 0.2 * black_error


def test_representations_have_unit_length_whatever_the_encoder_does():
    encoder = models.Encoder("vgg8", width=0.05, normalize=False)
    encoder.build((None, SIDE, SIDE, 3))
    image_model = formats.ImageModel(encoder, SIDE)
    expected = encoder(IMAGES).numpy()
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    representations = image_model.function()(IMAGES)["representation"]
    np.testing.assert_allclose(representations, expected, rtol=0, atol=1e-5)
    run = formats.tflite_function(formats.to_tflite(image_model))
    file_outputs = run(IMAGES)
    np.testing.assert_allclose(file_outputs, expected, rtol=0, atol=1e-5)


def test_wrong_arguments_are_named(model):
    with pytest.raises(ValueError, match="`precision` must be one of.*'int4'"):
        formats.to_tflite(model, "int4")
    for images, description in (
        (None, r"\[0\] float64"),
        (CALIBRATION[:0], r"\[0, 16, 16, 3\] uint8"),
        (CALIBRATION[:, :8], r"\[16, 8, 16, 3\] uint8"),
        (CALIBRATION / 255, r"\[16, 16, 16, 3\] float64"),
    ):
        message = f"`calibration_images` must be .*, got {description}"
        with pytest.raises(ValueError, match=message):
            formats.to_tflite(model, "int8", images)


def test_an_onnx_file_is_valid_and_takes_any_number_of_images(converted):
    onnx_model = onnx.load_model_from_string(converted["onnx"])
    onnx.checker.check_model(onnx_model, full_check=True)
    versions = {
        opset.domain: opset.version for opset in onnx_model.opset_import
    }
    assert versions[""] == 17
    assert not [node for node in onnx_model.graph.node if node.domain]
    (images,), (output,) = onnx_model.graph.input, onnx_model.graph.output
    assert (images.name, output.name) == ("images", "probabilities")
    for value, shape in ((images, ["N", 16, 16, 3]), (output, ["N", 5])):
        tensor = value.type.tensor_type
        assert tensor.elem_type == onnx.TensorProto.FLOAT
        dims = [dim.dim_param or dim.dim_value for dim in tensor.shape.dim]
        assert dims == shape


class Positions(keras.layers.Layer):
    """Adds numbers that it made before anything was traced."""

    def __init__(self):
        super().__init__()
        self.positions = tf.reshape(tf.range(20), [1, 20])

    def call(self, features):
        return features + tf.cast(self.positions, features.dtype)


def test_onnx_has_gelu_and_constants_of_a_network():
    """TensorFlow 2.21 computes GELU by Erfc."""
    network = keras.Sequential(
        [
            keras.layers.Input((SIDE, SIDE, 3)),
            keras.layers.Conv2D(20, SIDE, activation="gelu"),
            keras.layers.Flatten(),
            Positions(),
        ]
    )
    encoder = models.BackboneEncoder(network, normalize=False)
    content = formats.to_onnx(formats.ImageModel(encoder, SIDE))
    images = noisy_images(3, 0)
    outputs = formats.onnx_function(content)(images)
    expected = tf.math.l2_normalize(encoder(images), axis=1)
    np.testing.assert_allclose(outputs, expected, atol=1e-5)
    assert len(onnx.load_model_from_string(content).graph.input) == 1


@pytest.mark.parametrize("package", ["tf2onnx", "onnxruntime"])
def test_a_missing_package_is_named(model, monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=f"supcon_tf.onnx.*{package}"):
        formats.to_onnx(model)


def test_silence_ends_with_an_error(capfd):
    print("before", flush=True)
    with pytest.raises(KeyError), formats.silenced():
        os.write(1, b"of C++\n")
        os.write(2, b"of C++\n")
        raise KeyError
    print("after", flush=True)
    assert capfd.readouterr() == ("before\nafter\n", "")


def test_threads_bring_the_outputs_back(capfd):
    is_silenced = threading.Event()

    def hold_silence():
        with formats.silenced():
            is_silenced.set()
            threading.Event().wait(0.05)

    thread = threading.Thread(target=hold_silence)
    thread.start()
    is_silenced.wait()
    with formats.silenced(), formats.silenced():
        os.write(1, b"of C++\n")
    thread.join()
    os.write(1, b"after\n")
    assert capfd.readouterr().out == "after\n"


def test_a_classifier_of_probabilities_is_refused():
    encoder = models.Encoder("vgg8", width=0.1)
    softmax = keras.layers.Dense(3, activation="softmax")
    with pytest.raises(ValueError, match="logits, got probabilities: leave"):
        formats.ImageModel(encoder, SIDE, softmax)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_an_encoder_of_half_precision_is_refused(dtype, float32_policy):
    keras.mixed_precision.set_global_policy(f"mixed_{dtype}")
    convolution = keras.layers.Conv2D(4, 3)
    encoder = models.Encoder("vgg8", width=0.1)
    keras.mixed_precision.set_global_policy("float32")
    for network in (encoder, keras.Sequential([convolution])):
        with pytest.raises(ValueError, match=f"in float32 .*, got {dtype}"):
            formats.ImageModel(network, SIDE)
