"""Projector data, as a real TensorBoard serves it."""

import dataclasses
import io
import json
import time
import urllib.error
import urllib.parse
import urllib.request

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image
from tensorboard import program

from supcon_tf import data, measures, training
from supcon_tf.data import subsets
from supcon_tf.evaluation import projector, splits

NAMES = ("cat", "öl\tor not", "7")
COUNT, SIDE = 11, 72


@pytest.fixture(scope="module")
def images():
    """Each of one colour, so that a reduced image is known."""
    colors = np.random.default_rng(0).integers(0, 256, [COUNT, 3], np.uint8)
    return np.tile(colors[:, None, None], [1, SIDE, SIDE, 1])


@pytest.fixture(scope="module")
def test_split(images):
    labels = np.arange(COUNT, dtype=np.int32) % 3
    points = np.random.default_rng(1).normal(size=[COUNT, 5])
    source = data.from_arrays(images, labels, NAMES, split="test")
    points = points.astype(np.float32)
    return splits.EncodedSplit(source, points, labels, SIDE)


@pytest.fixture(scope="module")
def run(tmp_path_factory, test_split):
    """With the data of eight images, of which the classifier gets one wrong."""
    directory = training.RunDirectory(tmp_path_factory.mktemp("runs") / "run")
    predicted = test_split.labels.copy()
    predicted[4] = 2
    predictions = measures.Predictions.of(
        np.eye(3)[predicted], test_split.labels
    )
    sure = dataclasses.replace(test_split, predictions=predictions)
    write(directory, sure, 8)
    return directory


POSITIONS = [0, 1, 2, 4, 5, 6, 8, 9]


def write(run, split, count=COUNT):
    projector.write_projector(run, split, subsets.evenly(COUNT, count))


class Board:
    """A TensorBoard in this process."""

    def __init__(self, directory):
        board = program.TensorBoard()
        # Its faster loader would be one more process.
        flags = f"--logdir={directory}", "--port=0", "--load_fast=false"
        board.configure(argv=["", *flags])
        self.url = board.launch()

    def get(self, route, **query):
        """What the projector of the page would get."""
        path = f"data/plugin/projector/{route}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(self.url + path, timeout=600) as answer:
            return answer.read()

    def runs(self):
        """Names of runs, once the directory is read for the first time."""
        until = time.monotonic() + 600
        while not (names := json.loads(self.get("runs"))):
            assert time.monotonic() < until
            time.sleep(0.1)
        return names


def test_tensorboard_serves_the_written_files(run, test_split, images):
    board, name = Board(run.path.parent), "run/tensorboard/projector"
    assert board.runs() == [name]
    (info,) = json.loads(board.get("info", run=name))["embeddings"]
    assert info == {
        "tensorName": "representations",
        "tensorPath": "tensors.tsv",
        "tensorShape": [8, 5],
        "metadataPath": "metadata.tsv",
        "sprite": {"imagePath": "sprite.png", "singleImageDim": [64, 64]},
    }
    query = {"run": name, "name": "representations"}
    points = np.frombuffer(board.get("tensor", **query), np.float32)
    np.testing.assert_allclose(
        points.reshape(8, 5), test_split.representations[POSITIONS], rtol=1e-5
    )
    metadata = board.get("metadata", **query).decode()
    assert metadata == (run.projector / "metadata.tsv").read_text("utf-8")
    sprite = np.asarray(
        Image.open(io.BytesIO(board.get("sprite_image", **query)))
    )
    assert sprite.shape == (3 * 64, 3 * 64, 3)
    for index, position in enumerate(POSITIONS):
        y, x = 64 * (index // 3), 64 * (index % 3)
        cell = sprite[y : y + 64, x : x + 64]
        np.testing.assert_array_equal(cell, images[position, :64, :64])
    assert (sprite[128:, 128:] == 255).all()


def test_metadata_has_a_line_per_point(run):
    lines = (run.projector / "metadata.tsv").read_text("utf-8").split("\n")
    header, *rows, end = [line.split("\t") for line in lines]
    assert header == ["class", "label", "predicted", "correct", "id"]
    assert end == [""] and len(rows) == 8
    other = r"öl\tor not"
    assert rows[:4] == [
        ["cat", "0", "cat", "yes", "0"],
        [other, "1", other, "yes", "1"],
        ["7", "2", "7", "yes", "2"],
        [other, "1", "7", "no", "4"],
    ]


def test_without_a_classifier_nothing_is_predicted(
    test_split, tmp_path, monkeypatch
):
    """Of eleven images; and a sprite is no larger than a texture."""
    run = training.RunDirectory(tmp_path / "run")
    source = dataclasses.replace(
        test_split.source, ids=tuple(f"cat/{i}.png" for i in range(COUNT))
    )
    with_ids = dataclasses.replace(test_split, source=source)
    for side, largest in ((64, 8192), (25, 100)):
        monkeypatch.setattr(projector, "_SPRITE_SIDE", largest)
        write(run, with_ids)
        sprite = Image.open(run.projector / "sprite.png")
        assert sprite.size == (4 * side, 4 * side)  # a square for eleven
        config_text = (run.projector / "projector_config.pbtxt").read_text()
        assert config_text.count(f"single_image_dim: {side}") == 2
    lines = (run.projector / "metadata.tsv").read_text("utf-8").splitlines()
    assert lines[0] == "class\tlabel\tid" and lines[1] == "cat\t0\tcat/0.png"
    assert len(lines) == COUNT + 1


def test_a_projector_is_written_whole_or_not(test_split, tmp_path, monkeypatch):
    run = training.RunDirectory(tmp_path / "run")
    write(run, test_split)
    before = sorted(p.name for p in run.projector.iterdir())
    assert len(before) == 5 and before[0].startswith("events.out.")

    def fail(*_):
        raise OSError("full")

    with monkeypatch.context() as patch:
        patch.setattr(tf.summary, "create_file_writer", fail)  # comes last
        with pytest.raises(OSError, match="full"):
            write(run, test_split)
    assert sorted(p.name for p in run.projector.iterdir()) == before
    write(run, test_split, 1)
    assert (run.projector / "metadata.tsv").read_text().count("\n") == 2
    assert [p.name for p in run.tensorboard.iterdir()] == ["projector"]
