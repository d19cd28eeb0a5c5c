"""Exports on disk: what TF Serving's tools and other processes see of them."""

from __future__ import annotations

import json
import pathlib

import pytest
import tensorflow as tf

from supcon_tf import models, serving
from tests import forks

SHOW = """
import sys
from tensorflow.python.tools import saved_model_cli
sys.argv = ["saved_model_cli", "show", "--dir", sys.argv[1], "--all"]
saved_model_cli.main()
"""
# Inputs and outputs as saved_model_cli prints them: name, type, shape.
NAMED = {
    ("class_names", "DT_STRING", "(-1, 3)"),
    ("predicted_class", "DT_STRING", "(-1)"),
    ("top_classes", "DT_STRING", "(-1, 2)"),
}
CLASSIFIED = NAMED | {
    ("probabilities", "DT_FLOAT", "(-1, 3)"),
    ("top_probabilities", "DT_FLOAT", "(-1, 2)"),
}
COMPARED = NAMED | {
    ("similarities", "DT_FLOAT", "(-1, 3)"),
    ("top_similarities", "DT_FLOAT", "(-1, 2)"),
}
REPRESENTED = {("representation", "DT_FLOAT", "(-1, 26)")}
FILES = ("image_bytes", "DT_STRING", "(-1)")
IMAGES = ("images", "DT_UINT8", "(-1, -1, -1, 3)")
FLOAT_IMAGES = ("images", "DT_FLOAT", "(-1, -1, -1, 3)")
SIGNATURES = {
    "serving_default": (FILES, CLASSIFIED),
    "predict_images": (IMAGES, CLASSIFIED),
    "predict_images_float": (FLOAT_IMAGES, CLASSIFIED),
    "represent": (FILES, REPRESENTED),
    "represent_images": (IMAGES, REPRESENTED),
    "represent_images_float": (FLOAT_IMAGES, REPRESENTED),
    "classify_by_neighbours": (FILES, COMPARED),
}


@pytest.fixture(scope="module")
def encoder():
    made = models.Encoder("vgg8", width=0.05)
    made.build((None, 16, 16, 3))
    return made


@pytest.fixture(scope="module")
def classifier(encoder):
    made = tf.keras.layers.Dense(3)
    made.build((None, encoder.representation_dim))
    return made


def export(encoder, directory, **options):
    serving.export_saved_model(encoder, directory, image_size=16, **options)


def test_saved_model_cli_shows_the_documented_signatures(
    encoder, classifier, tmp_path
):
    export(
        encoder,
        tmp_path / "1",
        class_names=("a", "b", "c"),
        classifier=classifier,
        prototypes=tf.eye(3, encoder.representation_dim),
        top_k=2,
    )
    done = forks.run(SHOW, str(tmp_path / "1"))
    assert done.returncode == 0, done.stderr[-2000:]
    found = {}
    for part in done.stdout.split("signature_def['")[1:]:
        name, _, text = part.partition("']:")
        text = text.partition("Concrete Functions:")[0]
        inputs = text.partition("outputs['")[0]
        found[name] = (tensors(inputs, "inputs"), tensors(text, "outputs"))
    del found["__saved_model_init_op"]
    assert found == {
        name: ({given}, answers)
        for name, (given, answers) in SIGNATURES.items()
    }
    names = (tmp_path / "1" / "assets" / "class_names.txt").read_text()
    assert names == "a\nb\nc\n"


def tensors(text, kind):
    """Names, types and shapes in the text of saved_model_cli."""
    found = set()
    for part in text.split(f"{kind}['")[1:]:
        name = part.partition("']")[0]
        lines = [line.strip() for line in part.splitlines()]
        values = dict(line.split(": ", 1) for line in lines[1:3])
        found.add((name, values["dtype"], values["shape"]))
    return found


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
def test_class_names_are_a_line_per_class(
    encoder, classifier, tmp_path, class_names, message
):
    with pytest.raises(ValueError, match=f"`class_names` {message}"):
        export(
            encoder,
            tmp_path / "1",
            class_names=class_names,
            classifier=classifier,
        )
    assert not list(tmp_path.iterdir())


def test_names_without_classifier_are_refused(encoder, tmp_path):
    with pytest.raises(ValueError, match="`class_names` must be 0 names"):
        export(encoder, tmp_path / "1", class_names=("a",))


def test_a_bound_that_refuses_every_photograph_is_refused(encoder, tmp_path):
    with pytest.raises(ValueError, match="`max_pixels` must be at least 972"):
        export(encoder, tmp_path / "1", max_pixels=971)
    assert not list(tmp_path.iterdir())


def test_a_version_is_never_replaced(encoder, tmp_path):
    (tmp_path / "1").mkdir()
    with pytest.raises(ValueError, match="`directory` must not exist, got"):
        export(encoder, tmp_path / "1")


def test_of_two_exports_at_once_one_is_refused(encoder, tmp_path):
    def finish(partial):
        (tmp_path / "7" / "mine").mkdir(parents=True)

    with pytest.raises(ValueError, match="7 must not exist, but does by now"):
        export(encoder, tmp_path / "7", finish=finish)
    assert [path.name for path in tmp_path.iterdir()] == ["7"]
    assert [path.name for path in (tmp_path / "7").iterdir()] == ["mine"]


def test_an_interrupted_export_is_not_seen_by_the_server(
    encoder, tmp_path, monkeypatch
):
    def save(module, path, **arguments):
        (pathlib.Path(path) / "saved_model.pb").touch()
        assert not path.rpartition("/")[2].isdecimal()
        raise OSError("disk full")

    with monkeypatch.context() as patched:
        patched.setattr(tf.saved_model, "save", save)
        with pytest.raises(OSError, match="disk full"):
            export(encoder, tmp_path / "7")
    assert not list(tmp_path.iterdir())
    # What a killed export leaves; TF Serving loads numbers only.
    (tmp_path / ".7.killed.partial").mkdir()
    export(encoder, tmp_path / "7")
    assert [path.name for path in tmp_path.iterdir()] == ["7"]
    request = tmp_path / "7" / "assets.extra" / "request.json"
    assert json.loads(request.read_text())["signature_name"] == "represent"
