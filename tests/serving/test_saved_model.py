"""Exports on disk: there whole or not at all, and what is refused.

Their signatures are in tests/test_serving_guide.py.
"""

from __future__ import annotations

import json
import pathlib

import pytest
import tensorflow as tf

from supcon_tf import serving
from supcon_tf.serving import metadata
from tests import small_export


def export(directory, **options):
    encoder, _ = small_export.encoder_and_classifier()
    serving.export_saved_model(encoder, directory, image_size=16, **options)


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


def test_wrong_arguments_are_named(tmp_path):
    with pytest.raises(ValueError, match="`class_names` must be 0 names"):
        export(tmp_path / "1", class_names=("a",))
    # A bound that refuses every photograph.
    with pytest.raises(ValueError, match="`max_pixels` must be at least 972"):
        export(tmp_path / "1", max_pixels=971)
    assert not list(tmp_path.iterdir())
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
    signatures = metadata.read_signatures(tmp_path / "7")
    kinds = {"represent", "represent_images", "represent_images_float"}
    assert {*signatures} == kinds  # of an encoder alone
    assert not (tmp_path / "7" / "assets" / "class_names.txt").exists()
    request = tmp_path / "7" / "assets.extra" / "request.json"
    assert json.loads(request.read_text())["signature_name"] == "represent"
