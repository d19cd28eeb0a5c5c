"""ONNX files give what the model gives, in ONNX Runtime."""

from __future__ import annotations

import sys

import numpy as np
import onnx
import pytest

from supcon_tf.conversion import onnx_model
from tests.conversion import small_model

IMAGES = small_model.images(12, seed=0)


@pytest.fixture(scope="module")
def model():
    return small_model.image_model()


@pytest.fixture(scope="module")
def content(model):
    return onnx_model.to_onnx(model)


def test_a_file_gives_what_the_model_gives(model, content):
    expected = model.function()(IMAGES)["probabilities"].numpy()
    assert len(set(expected.argmax(axis=1))) > 2  # these images differ
    run = onnx_model.interpreted(content)
    for images in (IMAGES[:1], IMAGES):
        np.testing.assert_allclose(
            run(images), expected[: len(images)], rtol=0, atol=1e-5
        )


def test_a_file_is_valid_and_takes_any_number_of_images(content):
    loaded = onnx.load_model_from_string(content)
    onnx.checker.check_model(loaded, full_check=True)
    assert {o.domain: o.version for o in loaded.opset_import}[""] == 17
    assert not [node for node in loaded.graph.node if node.domain]
    (images,), (answer,) = loaded.graph.input, loaded.graph.output
    assert (images.name, answer.name) == ("images", "probabilities")
    for value, shape in ((images, ["N", 16, 16, 3]), (answer, ["N", 5])):
        tensor = value.type.tensor_type
        assert tensor.elem_type == onnx.TensorProto.FLOAT
        dims = [d.dim_param or d.dim_value for d in tensor.shape.dim]
        assert dims == shape


@pytest.mark.parametrize("missing", ["tf2onnx", "onnxruntime"])
def test_a_missing_package_is_named(model, monkeypatch, missing):
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(ImportError, match=f"supcon_tf.onnx.*{missing}"):
        onnx_model.to_onnx(model)
