"""TFLite files give what the model gives, by built-in operations alone."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from supcon_tf import models
from supcon_tf.conversion import graph, tflite_model
from tests.conversion import small_model

SIDE = small_model.SIDE
IMAGES = small_model.images(12, seed=0)
CALIBRATION = small_model.images(16, seed=1)


@pytest.fixture(scope="module")
def model():
    return small_model.image_model()


@pytest.fixture(scope="module")
def expected(model):
    return model.function()(IMAGES)["probabilities"].numpy()


@pytest.fixture(scope="module")
def converted(model):
    return {
        precision: tflite_model.to_tflite(model, precision, CALIBRATION)
        for precision in ("float32", "float16", "int8")
    }


def details(content):
    """Input, output and the operations of a file."""
    interpreter = tf.lite.Interpreter(model_content=content)
    (images,) = interpreter.get_input_details()
    (answer,) = interpreter.get_output_details()
    names = {op["op_name"] for op in interpreter._get_ops_details()}
    return images, answer, names, interpreter.get_signature_list()


@pytest.mark.parametrize(
    ("precision", "tolerance"),
    [("float32", 1e-5), ("float16", 1e-2), ("int8", 0.1)],
)
def test_a_file_gives_what_the_model_gives(
    converted, expected, precision, tolerance
):
    assert len(set(expected.argmax(axis=1))) > 2  # these images differ
    run = tflite_model.interpreted(converted[precision])
    for images in (IMAGES[:1], IMAGES, IMAGES[:5], IMAGES[:1]):
        got = run(images)
        assert got.dtype == np.float32
        np.testing.assert_allclose(
            got, expected[: len(images)], rtol=0, atol=tolerance
        )
    np.testing.assert_allclose(got.sum(axis=1), 1, rtol=1e-5)


@pytest.mark.parametrize("precision", ["float32", "float16", "int8"])
def test_a_file_is_what_an_app_expects(converted, precision):
    images, answer, operations, signatures = details(converted[precision])
    assert list(images["shape_signature"]) == [-1, SIDE, SIDE, 3]
    assert images["dtype"] == (np.uint8 if precision == "int8" else np.float32)
    assert answer["dtype"] == np.float32
    assert signatures == {
        "serving_default": {"inputs": ["images"], "outputs": ["probabilities"]}
    }
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


def test_calibration_images_matter(model, converted, expected):
    """What one black image tells of the ranges is wrong."""
    black = np.zeros_like(CALIBRATION[:1])
    broken = tflite_model.to_tflite(model, "int8", black)
    error = {
        name: np.abs(
            tflite_model.interpreted(content)(IMAGES) - expected
        ).mean()
        for name, content in (("good", converted["int8"]), ("broken", broken))
    }
    assert error["good"] < 0.2 * error["broken"], error


def test_without_classifier_it_represents(model):
    bare = graph.ImageModel(model.encoder, SIDE)
    expected = bare.function()(IMAGES)["representation"].numpy()
    got = tflite_model.interpreted(tflite_model.to_tflite(bare))(IMAGES)
    np.testing.assert_allclose(np.linalg.norm(got, axis=1), 1, rtol=1e-5)
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-5)


def test_representations_have_unit_length_whatever_the_encoder_does():
    encoder = models.Encoder("vgg8", width=0.05, normalize=False)
    encoder.build((None, SIDE, SIDE, 3))
    answer = graph.ImageModel(encoder, SIDE).function()(IMAGES)
    lengths = np.linalg.norm(answer["representation"], axis=1)
    np.testing.assert_allclose(lengths, 1, rtol=1e-5)


def test_wrong_arguments_are_named(model):
    with pytest.raises(ValueError, match="`precision` must be one of.*'int4'"):
        tflite_model.to_tflite(model, "int4")
    for images, got in (
        (None, r"\[0\] float64"),
        (CALIBRATION[:0], r"\[0, 16, 16, 3\] uint8"),
        (CALIBRATION[:, :8], r"\[16, 8, 16, 3\] uint8"),
        (CALIBRATION / 255, r"\[16, 16, 16, 3\] float64"),
    ):
        with pytest.raises(
            ValueError, match=f"`calibration_images` must be .*, got {got}"
        ):
            tflite_model.to_tflite(model, "int8", images)
