"""Exports on disk: what TF Serving's tools and other processes see of them."""

from __future__ import annotations

import json
import pathlib

import pytest
import tensorflow as tf

from supcon_tf import serving
from supcon_tf.serving import metadata
from tests import small_export

# Inputs and outputs: names to types and shapes.
NAMED = {
    "class_names": ("string", [None, 3]),
    "predicted_class": ("string", [None]),
    "top_classes": ("string", [None, 2]),
}
CLASSIFIED = NAMED | {
    "probabilities": ("float32", [None, 3]),
    "top_probabilities": ("float32", [None, 2]),
}
COMPARED = NAMED | {
    "similarities": ("float32", [None, 3]),
    "top_similarities": ("float32", [None, 2]),
}
REPRESENTED = {"representation": ("float32", [None, 26])}
FILES = {"image_bytes": ("string", [None])}
IMAGES = {"images": ("uint8", [None, None, None, 3])}
FLOAT_IMAGES = {"images": ("float32", [None, None, None, 3])}
SIGNATURES = {
    "serving_default": (FILES, CLASSIFIED),
    "predict_images": (IMAGES, CLASSIFIED),
    "predict_images_float": (FLOAT_IMAGES, CLASSIFIED),
    "represent": (FILES, REPRESENTED),
    "represent_images": (IMAGES, REPRESENTED),
    "represent_images_float": (FLOAT_IMAGES, REPRESENTED),
    "classify_by_neighbours": (FILES, COMPARED),
}


def export(directory, **options):
    encoder, _ = small_export.encoder_and_classifier()
    serving.export_saved_model(encoder, directory, image_size=16, **options)


def tensors(infos):
    return {
        name: (
            tf.as_dtype(info.dtype).name,
            tf.TensorShape(info.tensor_shape).as_list(),
        )
        for name, info in infos.items()
    }


def test_an_export_has_the_documented_signatures():
    directory = small_export.run_dir() / "export" / "1"
    found = metadata.read_signatures(directory)
    assert {
        name: (tensors(one.inputs), tensors(one.outputs))
        for name, one in found.items()
    } == SIGNATURES
    names = (directory / "assets" / "class_names.txt").read_text()
    assert names == "zero, or so\ngrößer\ntwo\n"


@pytest.mark.parametrize(
    ("class_names", "message"),
    [
        (("a", "b"), "must be 3 names, got 2"),
        (("a", "b", "c", "d"), "must be 3 names, got 4"),
        ((), "must be 3 names, got 0"),
        (("a", "b", "c\nd"), r"must be a line of text each, got 'c\\nd'"),
        (("a", "b", ""), "must be a line of text each, got ''"),
        (("a", "b", "\udcff"), r"must be a line of text each, got '\\udcff'"),
    ],
)
def test_class_names_are_a_line_per_class(tmp_path, class_names, message):
    _, classifier = small_export.encoder_and_classifier()
    with pytest.raises(ValueError, match=f"`class_names` {message}"):
        export(tmp_path / "1", class_names=class_names, classifier=classifier)
    assert not list(tmp_path.iterdir())


def test_names_without_classifier_are_refused(tmp_path):
    with pytest.raises(ValueError, match="`class_names` must be 0 names"):
        export(tmp_path / "1", class_names=("a",))


def test_a_bound_that_refuses_every_photograph_is_refused(tmp_path):
    with pytest.raises(ValueError, match="`max_pixels` must be at least 972"):
        export(tmp_path / "1", max_pixels=971)
    assert not list(tmp_path.iterdir())


def test_a_version_is_never_replaced(tmp_path):
    (tmp_path / "1").mkdir()
    with pytest.raises(ValueError, match="`directory` must not exist, got"):
        export(tmp_path / "1")


def test_of_two_exports_at_once_one_is_refused(tmp_path):
    def finish(partial):
        (tmp_path / "7" / "mine").mkdir(parents=True)

    with pytest.raises(ValueError, match="7 must not exist, but does by now"):
        export(tmp_path / "7", finish=finish)
    assert [path.name for path in tmp_path.iterdir()] == ["7"]
    assert [path.name for path in (tmp_path / "7").iterdir()] == ["mine"]


def test_an_interrupted_export_is_not_seen_by_the_server(tmp_path, monkeypatch):
    def save(module, path, **arguments):
        (pathlib.Path(path) / "saved_model.pb").touch()
        assert not path.rpartition("/")[2].isdecimal()
        raise OSError("disk full")

    with monkeypatch.context() as patched:
        patched.setattr(tf.saved_model, "save", save)
        with pytest.raises(OSError, match="disk full"):
            export(tmp_path / "7")
    assert not list(tmp_path.iterdir())
    # What a killed export leaves; TF Serving loads numbers only.
    (tmp_path / ".7.killed.partial").mkdir()
    export(tmp_path / "7")
    assert [path.name for path in tmp_path.iterdir()] == ["7"]
    request = tmp_path / "7" / "assets.extra" / "request.json"
    assert json.loads(request.read_text())["signature_name"] == "represent"
