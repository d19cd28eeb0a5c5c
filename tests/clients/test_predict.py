"""A real export, asked in both ways."""

from __future__ import annotations

import csv
import json
import pathlib
import re
import shutil

import numpy as np
import pytest
import tensorflow as tf

from supcon_tf import clients, config, data
from tests import model_server, small_export

NAMES = small_export.NAMES


@pytest.fixture(scope="module")
def server(small_run):
    with model_server.ModelServer(small_run / "export", "mine") as server:
        yield server


@pytest.fixture
def images(image_folder, tmp_path):
    """Three images, a truncated one and one that is none, in a folder."""
    folder = tmp_path / "images"
    for index, kind in enumerate(("dark", "mid", "bright")):
        (folder / kind).mkdir(parents=True)
        source = sorted((image_folder / "test" / kind).iterdir())[index]
        shutil.copy(source, folder / kind / f"{index}{source.suffix}")
    cut = next((folder / "mid").iterdir())
    (folder / "cut.jpg").write_bytes(cut.read_bytes()[:60])
    (folder / "none.png").write_bytes(b"not an image")
    return folder


def predict(run_dir, images, **options):
    settings = {"images": (str(images),), "batch_size": 4, **options}
    return clients.predict(config.PredictSettings(str(run_dir), **settings))


def test_both_ways_give_the_answers_of_the_model(
    small_run, server, images, tmp_path
):
    tables = []
    for index, address in enumerate((None, server.rest)):
        file = tmp_path / f"{index}.csv"
        failed = predict(small_run, images, server=address, output=str(file))
        assert failed == 2
        tables.append(file.read_text("utf-8"))
    rows = list(csv.DictReader(tables[0].splitlines()))
    encoder, layer = small_export.encoder_and_classifier()
    for row in rows:
        if row["error"]:
            assert row["path"].endswith(("cut.jpg", "none.png"))
            continue
        contents = pathlib.Path(row["path"]).read_bytes()
        view = data.decode_central_view(contents, small_export.SIZE)
        expected = tf.nn.softmax(layer(encoder(view[tf.newaxis])))[0].numpy()
        assert row["predicted_class"] == NAMES[expected.argmax()]
        best = pytest.approx(expected.max(), abs=1e-6)
        assert float(row["probability"]) == best
        for rank, index in enumerate(np.argsort(-expected), 1):
            assert row[f"top_{rank}_class"] == NAMES[index]
    assert sum(not row["error"] for row in rows) == 3

    number = r"\d\.\d+(?:e-\d+)?"  # its last digits may differ
    assert len({re.sub(number, "", text) for text in tables}) == 1
    here, there = ([*map(float, re.findall(number, x))] for x in tables)
    np.testing.assert_allclose(there, here, atol=1e-6)


def test_other_signatures(small_run, server, images, tmp_path):
    answers = []
    for signature in ("represent", "classify_by_neighbours"):
        file = tmp_path / f"{signature}.jsonl"
        options = {"signature": signature, "output": str(file)}
        assert predict(small_run, images, server=server.rest, **options) == 2
        rows = map(json.loads, file.read_text("utf-8").splitlines())
        answers.append([row for row in rows if "error" not in row])
    for row, similar in zip(*answers, strict=True):
        # Prototypes are the first two axes; the class between them has none.
        first, second = row["representation"][:2]
        expected = pytest.approx([first, -1, second], abs=1e-6)
        assert list(similar["similarities"]) == list(NAMES)
        assert list(similar["similarities"].values()) == expected


def test_a_damaged_export_is_not_loaded(lengths, images, tmp_path):
    export = shutil.copytree(lengths / "1", tmp_path / "export" / "1")
    listed = {"saved_model.pb": {"sha256": "of another", "bytes": 7}}
    (export / "assets.extra").mkdir()
    (export / "assets.extra" / "metadata.json").write_text(
        json.dumps({"files": listed})
    )
    with pytest.raises(ValueError, match="exported, but saved_model.pb differ"):
        predict(tmp_path, images)


@pytest.mark.parametrize("name", ["path", "error"])
def test_an_output_that_is_called_as_another_column_is_refused(
    images, tmp_path, name
):
    """It would take the place of the path, or make every answer an error."""

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "files")])
    def measure(files):
        return {name: tf.strings.length(files), "size": tf.size(files)}

    module = tf.Module()
    module.measure = measure
    tf.saved_model.save(module, str(tmp_path / "1"), measure)
    message = f"no output called error or path.*serving_default with .*{name}"
    with pytest.raises(ValueError, match=message):
        predict(tmp_path, images, model_dir=str(tmp_path))


def test_a_file_that_exists_is_kept(small_run, server, images, tmp_path):
    file = tmp_path / "out.csv"
    file.write_text("earlier")
    with pytest.raises(ValueError, match="out.csv exists already; choose ano"):
        predict("no export is looked for", images, output=str(file))
    assert file.read_text() == "earlier"
    options = {"server": server.rest, "overwrite": True}
    predict(small_run, images, output=str(file), **options)
    assert file.read_text().startswith("path,")
    (tmp_path / "folder.csv").mkdir()
    for path, message in (
        ("folder.csv", "--output must be a file, got .*folder.csv, a dir"),
        ("out.csv/a.csv", "`output` must be a folder that can be written"),
    ):
        options = {"output": str(tmp_path / path), "overwrite": True}
        with pytest.raises(ValueError, match=message):
            predict("no export is looked for", images, **options)


def test_a_run_without_an_export_is_named(images, tmp_path):
    with pytest.raises(ValueError, match="a run with an export, .*, got .*/no"):
        predict(tmp_path / "no", images)


def test_wrong_names_are_errors_before_any_image(
    small_run, server, images, tmp_path
):
    server.reset()
    names = "classify_by_neighbours, represent, serving_default"
    message = f"takes image files, {names}, got predict_images"
    with pytest.raises(ValueError, match=message):
        predict(
            small_run, images, server=server.rest, signature="predict_images"
        )
    with pytest.raises(RuntimeError, match=r"404: .*request: Latest\(yours\)"):
        predict(small_run, images, server=server.rest, model_name="yours")
    with pytest.raises(RuntimeError, match=r"404: .*Specific\(mine, 4\)"):
        predict(small_run, images, server=server.rest, model_version=4)
    with pytest.raises(ValueError, match="export must hold version 4 of tool"):
        predict(small_run, images, model_version=4)
    assert server.batch_sizes == []
