"""What TensorBoard reads: scalars, views, profiles."""

from __future__ import annotations

import json

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.tsl.profiler.protobuf import xplane_pb2

from supcon_tf import training
from supcon_tf.training import tensorboard


def events(directory):
    """(step, tag, value) of every event of a directory, in order."""
    return [
        (event.step, value.tag, value.tensor)
        for file in sorted(directory.glob("events.*"))
        for event in tf.compat.v1.train.summary_iterator(str(file))
        for value in event.summary.value
    ]


def scalars(directory):
    return [
        (step, tag, pytest.approx(float(tf.make_ndarray(value))))
        for step, tag, value in events(directory)
    ]


def write_epochs(tmp_path, first, losses):
    """A `fit` that goes on from what metrics.jsonl says."""
    made = tensorboard.Scalars(tmp_path, tmp_path / "metrics.jsonl")
    made.on_train_begin()
    for epoch, loss in enumerate(losses, first):
        made.on_epoch_end(epoch, {"loss": loss, "images/s": 5.0})
    made.on_train_end()


def test_a_resumed_run_has_every_epoch_once(tmp_path):
    write_epochs(tmp_path, 0, [4.0, 3.0, 2.0])  # of which one was saved
    lines = [{"epoch": 1, "loss": 4.0, "images/s": 5.0, "alignment": None}]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (tmp_path / "metrics.jsonl").write_text(text)
    write_epochs(tmp_path, 1, [2.5, 1.5])
    expected = []
    for epoch, loss in ((1, 4.0), (2, 2.5), (3, 1.5)):
        expected += [(epoch, "loss", loss), (epoch, "images/s", 5.0)]
    assert expected == scalars(tmp_path / "train")


def grid_in_loops(views):
    """The same picture, pixel by pixel."""
    count, columns, height, width, _ = views.shape
    rows = min(count, 8)
    shape = [rows * (height + 2) - 2, columns * (width + 2) - 2, 3]
    grid = np.full(shape, 255, np.uint8)
    for row, column, y, x in np.ndindex(rows, columns, height, width):
        at = row * (height + 2) + y, column * (width + 2) + x
        grid[at] = views[row, column, y, x]
    return grid


@pytest.mark.parametrize("count", [3, 9])
def test_the_first_views_are_drawn_once(count, tmp_path):
    shape = [2, count, 2, 4, 5, 3]  # two batches
    views = np.random.default_rng(0).integers(0, 255, shape).astype(np.uint8)
    batches = tf.data.Dataset.from_tensor_slices((views, tf.zeros([2, count])))
    grid = grid_in_loops(views[0])
    for _ in range(2):  # a run, and its resumption
        tensorboard.Views(tmp_path, batches).on_train_begin()
    ((step, tag, value),) = events(tmp_path / "views")
    assert (step, tag) == (0, "views")
    *size, png = tf.make_ndarray(value)
    assert [int(x) for x in size] == [grid.shape[1], grid.shape[0]]
    np.testing.assert_array_equal(tf.io.decode_png(png), grid)


def profiled_steps(directory):
    """(epoch, step in it) of every step in the profile, counted from 0."""
    (file,) = directory.glob("plugins/profile/*/*.xplane.pb")
    space = xplane_pb2.XSpace.FromString(file.read_bytes())
    steps = []
    for plane in space.planes:
        for event in (e for line in plane.lines for e in line.events):
            if plane.event_metadata[event.metadata_id].name == "train":
                known = {
                    plane.stat_metadata[x.metadata_id].name: x.int64_value
                    for x in event.stats
                }
                steps.append((known["epoch_num"], known["step_num"]))
    return sorted(steps)


@pytest.fixture(scope="module")
def small_model():
    model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
    model.compile(training.SGD(0.1), "mse")
    return model


@pytest.mark.parametrize(
    ("first", "last", "initial_epoch", "expected"),
    [
        (3, 4, 0, [(0, 2), (1, 0)]),
        (1, 2, 0, [(0, 0), (0, 1)]),
        (3, 3, 0, [(0, 2)]),
        (4, 9, 0, [(1, 0), (1, 1), (1, 2)]),
        (2, 2, 7, [(7, 1)]),  # counted from where the run goes on
    ],
)
def test_a_profile_holds_exactly_its_steps(
    first, last, initial_epoch, expected, small_model, tmp_path
):
    fit_profiled(small_model, tmp_path, first, last, initial_epoch)
    assert profiled_steps(tmp_path) == expected


def test_a_profile_that_never_starts_is_said(small_model, tmp_path, capsys):
    fit_profiled(small_model, tmp_path, 7, 8, 0)
    assert not list(tmp_path.iterdir())
    assert capsys.readouterr().out == (
        "warning      no profile: 6 steps were taken, --profile starts at "
        "step 7\n"
    )


def fit_profiled(model, directory, first, last, initial_epoch):
    """Two epochs of three steps."""
    model.fit(
        tf.ones([6, 2]),
        tf.ones([6]),
        batch_size=2,
        initial_epoch=initial_epoch,
        epochs=initial_epoch + 2,
        verbose=0,
        callbacks=[tensorboard.Profile(directory, first, last)],
    )
