"""Views and profiles for TensorBoard."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.tsl.profiler.protobuf import xplane_pb2

from supcon_tf import training
from supcon_tf.keras_2 import keras
from supcon_tf.training import tensorboard


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
def test_the_first_views_are_written_once(count, tmp_path):
    shape = [2, count, 2, 4, 5, 3]  # two batches
    views = np.random.default_rng(0).integers(0, 255, shape).astype(np.uint8)
    batches = tf.data.Dataset.from_tensor_slices((views, tf.zeros([2, count])))
    grid = grid_in_loops(views[0])
    for _ in range(2):  # a run, and its resumption
        tensorboard.Views(tmp_path, batches).on_train_begin()
    (file,) = tmp_path.glob("views/events.*")
    *_, event = tf.compat.v1.train.summary_iterator(str(file))
    assert (event.step, event.summary.value[0].tag) == (0, "views")
    *size, png = tf.make_ndarray(event.summary.value[0].tensor)
    assert [int(side) for side in size] == [grid.shape[1], grid.shape[0]]
    np.testing.assert_array_equal(tf.io.decode_png(png), grid)


def profiled_steps(directory):
    """Epoch and step in the epoch of every profiled step, from 0."""
    (file,) = directory.glob("plugins/profile/*/*.xplane.pb")
    space = xplane_pb2.XSpace.FromString(file.read_bytes())
    steps = []
    for plane in space.planes:
        for event in (e for line in plane.lines for e in line.events):
            if plane.event_metadata[event.metadata_id].name == "train":
                stats = {
                    plane.stat_metadata[stat.metadata_id].name: stat.int64_value
                    for stat in event.stats
                }
                steps.append((stats["epoch_num"], stats["step_num"]))
    return sorted(steps)


@pytest.fixture(scope="module")
def small_model():
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile(training.SGD(0.1), "mse")
    return model


@pytest.mark.parametrize(
    ("first", "last", "initial_epoch", "expected"),
    [
        (3, 4, 0, [(0, 2), (1, 0)]),
        (4, 9, 0, [(1, 0), (1, 1), (1, 2)]),
        (2, 2, 7, [(7, 1)]),  # counted from the first step of this `fit`
    ],
)
def test_a_profile_has_exactly_its_steps(
    first, last, initial_epoch, expected, small_model, tmp_path
):
    fit_profiled(small_model, tmp_path, first, last, initial_epoch)
    assert profiled_steps(tmp_path) == expected


def test_a_profile_without_steps_has_a_warning(small_model, tmp_path, capsys):
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
