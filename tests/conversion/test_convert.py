"""A run becomes files for other runtimes, all of them or none."""

from __future__ import annotations

import hashlib
import importlib
import json
import shutil
import sys

import numpy as np
import pytest
import tensorflow as tf

from supcon_tf import config, conversion, data, models, training
from supcon_tf.conversion import formats
from supcon_tf.data import subsets
from supcon_tf.disk import files
from supcon_tf.training import runs

# `conversion.convert` is the function.
CONVERT = importlib.import_module("supcon_tf.conversion.convert")


@pytest.fixture(scope="module")
def run(finished_run, tmp_path_factory):
    """A copy, whose directory other tests do not see changed."""
    return copied(finished_run, tmp_path_factory.mktemp("converted"))


def copied(run, folder):
    shutil.copytree(run.path, folder / "run")
    return training.RunDirectory(folder / "run")


@pytest.fixture(scope="module")
def results(run):
    """Two formats; test_formats.py compares all files."""
    options = {"formats": ("tflite_int8", "onnx"), "batch_size": 8}
    return conversion.convert(config.ConvertSettings(str(run.path), **options))


def test_a_file_of_torchvision_tells_the_pixels_that_it_takes():
    encoder = models.Encoder(
        "vgg8", width=0.05, image_mean=(0.1, 0.2, 0.3), image_std=(0.4,) * 3
    )
    model = formats.ImageModel(encoder, 16)
    assert CONVERT._input("torchvision", model) == {
        "name": "images",
        "shape": ["N", 3, 16, 16],
        "dtype": "float32",
        "range": [0, 1],
        "mean": [0.1, 0.2, 0.3],
        "std": [0.4, 0.4, 0.4],
    }
    assert CONVERT._output_name("torchvision", model) == "pooled features"


def names_in(directory):
    return {path.name for path in directory.iterdir()}


@pytest.fixture(scope="module")
def expected(run):
    """Test images, probabilities of the Keras model, and labels."""
    opened_run = runs.Run.open(run.path)
    ((images, labels),) = data.make_examples(
        opened_run.source("test"), 99, image_size=16
    )
    logits = opened_run.classifier("linear")(opened_run.encoder(images))
    return images.numpy(), tf.nn.softmax(logits).numpy(), labels.numpy()


def test_the_float_model_is_that_of_the_run(run, results, expected):
    images, probabilities, labels = expected
    hits = probabilities.argmax(axis=1) == labels
    assert 0.4 < hits.mean()
    assert results["float_model"]["top_1"] == pytest.approx(hits.mean())
    assert results["test_images"] == len(labels) == 21
    assert results["classifier"] == "linear"
    assert {"TensorFlow", "tf2onnx", "onnxruntime"} < set(results["versions"])
    # As an app runs it: a file, its signature, one image.
    file = run.path / "converted" / "model_int8.tflite"
    runner = tf.lite.Interpreter(str(file)).get_signature_runner()
    output = runner(images=images[:1])["probabilities"]
    np.testing.assert_allclose(output, probabilities[:1], rtol=0, atol=0.1)


@pytest.mark.parametrize(
    ("name", "largest", "agreement"),
    [("tflite_int8", 0.1, 0.9), ("onnx", 1e-5, 1)],
)
def test_files_are_measured(results, name, largest, agreement):
    model = results["models"][name]
    assert model["max_difference"] < largest
    assert model["mean_difference"] <= model["max_difference"]
    assert model["agreement"] >= agreement
    for score, expected in results["float_model"].items():
        assert model[score] == pytest.approx(expected, abs=largest), score
    assert model["milliseconds"] > 0


def test_the_directory_holds_what_the_record_says(run, results):
    directory = run.path / "converted"
    recorded = json.loads((directory / "conversion.json").read_text())
    assert recorded == json.loads(json.dumps(results))
    files = {model["file"] for model in results["models"].values()}
    assert files == {"model.onnx", "model_int8.tflite"}
    assert names_in(directory) == files | {"class_names.txt", "conversion.json"}
    for name, model in results["models"].items():
        content = (directory / model["file"]).read_bytes()
        assert len(content) == model["bytes"]
        assert hashlib.sha256(content).hexdigest() == model["sha256"]
        dtype = "uint8" if name == "tflite_int8" else "float32"
        assert model["input"] == {
            "name": "images",
            "shape": ["N", 16, 16, 3],
            "dtype": dtype,
            "range": [0, 255],
        }
        assert model["output"]["shape"] == ["N", 3]
    lines = (directory / "class_names.txt").read_text().splitlines()
    assert tuple(lines) == run.class_names()


def test_files_are_replaced_only_with_overwrite(
    finished_run, tmp_path, monkeypatch
):
    path, calibrated = copied(finished_run, tmp_path).path, []

    def to_tflite(model, precision, images):
        calibrated.append(images)
        return b""

    monkeypatch.setattr(formats, "to_tflite", to_tflite)
    monkeypatch.setattr(CONVERT, "_measure_files", lambda *_: {})

    def convert(precision, **options):
        options |= {"formats": (f"tflite_{precision}",), "classifier": "none"}
        options |= {"calibration_images": 20, "seed": 3}
        conversion.convert(config.ConvertSettings(str(path), **options))
        return names_in(path / "converted")

    first_names = convert("float32")
    assert first_names == {"model_float32.tflite", "conversion.json"}
    with pytest.raises(ValueError, match="must not exist; replace.*overwrite"):
        convert("float16")
    with monkeypatch.context() as broken, pytest.raises(TypeError):
        broken.setattr(files, "write_json", None)  # the models are written
        convert("float16", overwrite=True)
    assert names_in(path / "converted") == first_names
    assert calibrated == [None, None]
    assert "model_int8.tflite" in convert("int8", overwrite=True)
    assert not [name for name in names_in(path) if name.startswith(".")]
    # The images that int8 sees are those of evaluation.
    train = runs.Run.open(path).source("train")
    ((images, labels),) = data.make_examples(train, 99, image_size=16)
    positions = subsets.draw_evenly(labels, 20, seed=3)
    np.testing.assert_array_equal(calibrated[2], images.numpy()[positions])


def test_an_encoder_alone_represents(finished_run, tmp_path):
    path = str(copied(finished_run, tmp_path).path)
    options = {"formats": ("tflite_float32",), "classifier": "none"}
    results = conversion.convert(config.ConvertSettings(path, **options))
    assert results["float_model"] == {} and results["classifier"] == "none"
    model = results["models"]["tflite_float32"]
    assert model["least_cosine"] > 1 - 1e-5
    assert model["output"]["name"] == "representation"
    assert "top_1" not in model


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"formats": ()}, "--formats must be different names, one or more"),
        ({"formats": ("onnx", "onnx")}, "--formats must be.*got 'onnx,onnx'"),
    ],
)
def test_wrong_settings_are_named(given, message):
    with pytest.raises(ValueError, match=message):
        config.ConvertSettings("run", **given)


def test_a_conversion_that_cannot_end_is_not_begun(finished_run, monkeypatch):
    monkeypatch.setattr(CONVERT, "_convert_all", None)  # would fail if called
    path = str(finished_run.path)
    pretrained = config.ConvertSettings(path, classifier="pretrained")
    with pytest.raises(ValueError, match="--classifier must be linear or none"):
        conversion.convert(pretrained)
    monkeypatch.setitem(sys.modules, "tf2onnx", None)
    with pytest.raises(ImportError, match="extra `onnx`: pip install"):
        conversion.convert(config.ConvertSettings(path, formats=("onnx",)))
    assert not (finished_run.path / "converted").exists()
