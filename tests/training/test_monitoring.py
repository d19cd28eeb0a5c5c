"""The figures of a run on a terminal and in files, from real fits."""

import itertools
import re
import types

import numpy as np
import pytest
import tensorflow as tf
import tqdm

from supcon_tf import config, distribute, losses, run_files, training
from supcon_tf.keras_2 import keras
from supcon_tf.training import callbacks, checkpoints, jobs, loop, progress

STEPS = 4
DURING = (  # an epoch
    "loss",
    "loss/chance",
    "contrastive_accuracy",
    "learning_rate",
    "examples/s",
    "data_wait",
)
AT_THE_END = (*DURING, "alignment", "uniformity", "mean_cosine")


class Small(keras.Model):
    """Views to projections, of means."""

    def __init__(self):
        super().__init__()
        self.linear = keras.layers.Dense(4)

    def call(self, views):
        means = tf.reduce_mean(tf.cast(views, tf.float32), axis=[2, 3])
        return tf.math.l2_normalize(self.linear(means / 255), axis=-1)


class KnnEveryOther(keras.callbacks.Callback):
    """A figure that only some epochs have."""

    def on_epoch_end(self, epoch, logs=None):
        if epoch % 2:
            logs["knn_accuracy"] = 0.875


def views():
    """Endless batches of noise."""

    def batch(index):
        noise = tf.random.stateless_uniform(
            [16, 2, 4, 4, 3], tf.stack([0, index]), 0, 256, tf.int32
        )
        return tf.cast(noise, tf.uint8), tf.range(16) % 4

    return tf.data.Dataset.counter().map(batch)


@pytest.fixture
def clock(monkeypatch):
    """A clock that advances when read: each step is drawn."""
    ticks = itertools.count(1000.0, 0.06)
    time_module = types.SimpleNamespace(perf_counter=lambda: next(ticks))
    monkeypatch.setattr(progress, "time", time_module)


@pytest.fixture(scope="module")
def small_model():
    model = Small()
    model.compile(training.SGD(0.1), losses.SupConLoss(), losses.diagnostics())
    return model


def job_of(settings, run):
    return jobs.Job(settings, run, tf.distribute.get_strategy(), train=None)


def fit(model, run, settings, start_epoch=0):
    """Two epochs of `STEPS` steps."""
    wait = progress.DataWait()
    start = checkpoints.Progress(start_epoch * STEPS, STEPS)
    callback_list = loop.make_callbacks(
        job_of(settings, run),
        start,
        wait=wait,
        measures=[KnnEveryOther()],
        views=views(),
    )
    model.fit(
        wait.attach(views()),
        initial_epoch=start_epoch,
        epochs=start_epoch + 2,
        steps_per_epoch=STEPS,
        verbose=progress.verbosity(),
        callbacks=callback_list,
    )


def scalars(run):
    """Tag to its (epoch, value)s, as TensorBoard draws curves."""
    curves = {}
    for file in run.tensorboard.glob("train/events.*"):
        for event in tf.compat.v1.train.summary_iterator(str(file)):
            for value in event.summary.value:
                point = event.step, float(tf.make_ndarray(value.tensor))
                curves.setdefault(value.tag, []).append(point)
    return curves


def assert_same_curves(run, epochs):
    """metrics.jsonl and TensorBoard have the same figures, each epoch once."""
    figures = run.metrics()
    assert [line["epoch"] for line in figures] == epochs
    curves = scalars(run)
    assert set(AT_THE_END) < curves.keys()
    for name, points in curves.items():
        records = [record for record in figures if record.get(name) is not None]
        expected = [(record["epoch"], record[name]) for record in records]
        np.testing.assert_allclose(points, expected, rtol=1e-6)
    even = [(epoch, 0.875) for epoch in epochs if epoch % 2 == 0]
    assert curves["knn_accuracy"] == even


def test_a_terminal_and_the_files_have_every_figure(
    small_model, tiny_settings, tmp_path, monkeypatch, clock, capsys
):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setattr(tqdm.std, "time", progress.time.perf_counter)
    run = run_files.RunDirectory(tmp_path)
    settings = tiny_settings(profile=(3, 4))
    fit(small_model, run, settings)
    first, second, _ = capsys.readouterr().out.split("\n")
    _, *drawn, cleared, end = first.split("\r")
    assert len(drawn) == STEPS and cleared.isspace()
    for line in drawn:
        assert line.startswith("epoch 1/2  ")
        assert all(f" {name} " in line for name in DURING)
    assert f"  1/{STEPS} [" in drawn[0]
    assert end.startswith("epoch        1/2  0:00:0")
    assert all(f"  {name} " in end for name in AT_THE_END)
    assert "knn_accuracy" not in end and "knn_accuracy 0.8750" in second
    assert_same_curves(run, [1, 2])
    assert list(run.tensorboard.glob("plugins/profile/*/*.xplane.pb"))


def test_a_resumed_run_continues_its_files(
    small_model, tiny_settings, tmp_path, capsys
):
    run = run_files.RunDirectory(tmp_path)
    settings = tiny_settings()
    fit(small_model, run, settings)
    (grid,) = run.tensorboard.glob("views/events.*")
    drawn = grid.read_bytes()
    text = run.metrics_file.read_text().replace(
        '"loss"', '"lost": null, "loss"'
    )
    run.metrics_file.write_text(text + '{"epoch": 3, ')  # torn
    fit(small_model, run, settings, start_epoch=1)  # the second was not saved
    assert_same_curves(run, [1, 2, 3])
    (grid,) = run.tensorboard.glob("views/events.*")
    assert grid.read_bytes() == drawn
    # A log gets one line per epoch, in the place of Keras' own bar.
    printed = capsys.readouterr().out
    assert "\r" not in printed
    for line, epoch in zip(printed.splitlines(), (1, 2, 2, 3), strict=True):
        assert re.match(rf"epoch        {epoch}/\d  \d:\d\d:\d\d  loss ", line)


def test_only_the_chief_writes(
    small_model, tiny_settings, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(distribute, "is_chief", lambda strategy: False)
    run = run_files.RunDirectory(tmp_path / "run")
    settings = tiny_settings(profile=(1, 1))
    fit(small_model, run, settings)
    assert not run.path.exists()
    assert len(capsys.readouterr().out.splitlines()) == 2


def test_a_stage_has_the_callbacks_of_its_figures(tiny_settings, tmp_path):
    run = run_files.RunDirectory(tmp_path)

    def callbacks_by_kind(settings, steps):
        start = checkpoints.Progress(0, steps)
        callback_list = loop.make_callbacks(job_of(settings, run), start)
        return {type(callback): callback for callback in callback_list}

    kinds = callbacks_by_kind(
        config.LinearSettings(str(tmp_path), batch_size=8), 1
    )
    assert kinds.keys() >= {callbacks.StopOnNonFiniteLoss, progress.Figures}
    warnings = {callbacks.CollapseWarning, callbacks.InputBoundWarning}
    assert not kinds.keys() & warnings
    # Two epochs past the warm-up.
    for steps, wait in ((1000, 3500), (3, 100)):
        kinds = callbacks_by_kind(tiny_settings(warmup_epochs=1.5), steps)
        assert kinds[callbacks.CollapseWarning].after_steps == wait
