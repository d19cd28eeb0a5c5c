"""A real export, asked in all three ways."""

from __future__ import annotations

import csv
import hashlib
import json
import shutil

import grpc
import numpy as np
import pytest
import tensorflow as tf

from supcon_tf import clients, config, data
from supcon_tf.clients import asking
from tests import model_server, small_export

NAMES, SIZE = small_export.NAMES, small_export.SIZE


@pytest.fixture(scope="module")
def run_dir():
    return small_export.run_dir()


@pytest.fixture(scope="module")
def server(run_dir):
    with model_server.ModelServer(run_dir / "export", "mine") as server:
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


@pytest.fixture
def waits(monkeypatch):
    """The seconds that were waited."""
    seconds = []
    monkeypatch.setattr(asking.time, "sleep", seconds.append)
    return seconds


def predict(run_dir, images, **options):
    return clients.predict(
        config.PredictSettings(
            str(run_dir), (str(images),), batch_size=4, **options
        )
    )


def test_all_ways_give_the_answers_of_the_model(
    run_dir, server, images, tmp_path
):
    written = []
    for index, address in enumerate((None, server.grpc, server.rest)):
        file = tmp_path / f"{index}.csv"
        failed = predict(run_dir, images, server=address, output=str(file))
        assert failed == 2
        written.append(file.read_text("utf-8"))
    rows = list(csv.DictReader(written[0].splitlines()))
    encoder, layer = small_export.encoder_and_classifier()
    for row in rows:
        if row["error"]:
            assert row["path"].endswith(("cut.jpg", "none.png"))
            continue
        contents = open(row["path"], "rb").read()
        view = data.decode_central_view(contents, SIZE)
        expected = tf.nn.softmax(layer(encoder(view[tf.newaxis])))[0].numpy()
        assert row["predicted_class"] == NAMES[expected.argmax()]
        assert float(row["probability"]) == pytest.approx(
            expected.max(), abs=1e-6
        )
        for rank, index in enumerate(np.argsort(-expected), 1):
            assert row[f"top_{rank}_class"] == NAMES[index]
    assert sum(not row["error"] for row in rows) == 3
    for other in written[1:]:
        assert_same(rows, list(csv.DictReader(other.splitlines())))


def assert_same(rows, others):
    """The same text but for the last digits of numbers."""
    assert len(rows) == len(others)
    for row, other in zip(rows, others, strict=True):
        assert list(row) == list(other)
        for name in row:
            if "probability" in name and row[name]:
                assert float(row[name]) == pytest.approx(
                    float(other[name]), abs=1e-6
                )
            else:
                assert row[name] == other[name]


def test_other_signatures(run_dir, server, images, tmp_path):
    found = {}
    for signature in ("represent", "classify_by_neighbours"):
        file = tmp_path / f"{signature}.jsonl"
        assert 2 == predict(
            run_dir,
            images,
            server=server.rest,
            signature=signature,
            output=str(file),
        )
        rows = map(json.loads, file.read_text("utf-8").splitlines())
        found[signature] = [row for row in rows if "error" not in row]
    for row, near in zip(*found.values(), strict=True):
        representation = row["representation"]
        assert np.linalg.norm(representation) == pytest.approx(1, abs=1e-5)
        assert list(near["similarities"]) == list(NAMES)
        np.testing.assert_allclose(
            list(near["similarities"].values()),
            representation[: len(NAMES)],
            atol=1e-6,
        )
        assert near["similarity"] == max(near["similarities"].values())


@pytest.mark.parametrize("interface", ["grpc", "rest"])
def test_a_busy_server_is_asked_again(
    run_dir, server, images, tmp_path, waits, interface
):
    file = tmp_path / "out.jsonl"
    options = {
        "server": getattr(server, interface),
        "output": str(file),
        "requests_in_flight": 1,
    }
    server.reset(fail_first=9)
    with pytest.raises(RuntimeError, match="queue is full"):
        predict(run_dir, images, retries=1, **options)
    assert not file.exists()
    server.reset(fail_first=3)
    assert predict(run_dir, images, **options) == 2
    assert waits == [1, 1, 2, 4]
    assert server.batch_sizes[:4] == [4] * 4
    server.reset()


@pytest.mark.parametrize("interface", ["grpc", "rest"])
def test_an_exhausted_server_is_no_fault_of_an_image(
    run_dir, server, images, tmp_path, waits, interface
):
    server.reset(fail_first=2, fail_with=grpc.StatusCode.RESOURCE_EXHAUSTED)
    image = next((images / "dark").iterdir())
    file = str(tmp_path / "out.jsonl")
    address = getattr(server, interface)
    assert predict(run_dir, image, server=address, output=file) == 0
    assert waits == [1, 2]
    assert server.batch_sizes == [1] * 3
    server.reset()


def test_a_damaged_export_is_not_loaded(lengths, images, tmp_path):
    export = shutil.copytree(lengths / "1", tmp_path / "export" / "1")
    graph = export / "saved_model.pb"
    content = graph.read_bytes()
    sha256 = hashlib.sha256(content).hexdigest()
    listed = {graph.name: {"sha256": sha256, "bytes": len(content)}}
    (export / "assets.extra").mkdir()
    (export / "assets.extra" / "metadata.json").write_text(
        json.dumps({"files": listed})
    )
    assert predict(tmp_path, images, output=str(tmp_path / "a.csv")) == 0
    graph.write_bytes(content[:-1])
    with pytest.raises(ValueError, match="exported, but saved_model.pb differ"):
        predict(tmp_path, images)


def test_a_file_that_exists_is_kept(run_dir, server, images, tmp_path):
    file = tmp_path / "out.csv"
    file.write_text("earlier")
    with pytest.raises(ValueError, match="out.csv exists already; choose ano"):
        predict("no export is looked for", images, output=str(file))
    assert file.read_text() == "earlier"
    options = {"server": server.rest, "overwrite": True}
    predict(run_dir, images, output=str(file), **options)
    assert file.read_text().startswith("path,")
    (tmp_path / "folder.csv").mkdir()
    for place, message in (
        ("folder.csv", "--output must be a file, got .*folder.csv, a dir"),
        ("out.csv/a.csv", "`output` must be a folder that can be written"),
    ):
        with pytest.raises(ValueError, match=message):
            predict(
                "no export is looked for",
                images,
                output=str(tmp_path / place),
                overwrite=True,
            )


def test_wrong_names_are_errors_before_any_image(
    run_dir, server, images, tmp_path
):
    server.reset()
    with pytest.raises(
        ValueError,
        match="takes image files, classify_by_neighbours, represent, serving_d"
        "efault, got predict_images",
    ):
        predict(run_dir, images, server=server.rest, signature="predict_images")
    with pytest.raises(RuntimeError, match=r"404: .*request: Latest\(yours\)"):
        predict(run_dir, images, server=server.rest, model_name="yours")
    with pytest.raises(RuntimeError, match=r"NOT_FOUND: .*Specific\(mine, 4\)"):
        predict(run_dir, images, server=server.grpc, model_version=4)
    with pytest.raises(ValueError, match="export must hold version 4 of tool"):
        predict(run_dir, images, model_version=4)
    assert server.batch_sizes == []
