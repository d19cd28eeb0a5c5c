"""Figures of steps and epochs, and the line that shows them."""

from __future__ import annotations

import re

import pytest
import tensorflow as tf
import tqdm

from supcon_tf import training
from supcon_tf.training import progress
from tests.clock import Clock


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr(progress, "time", made)
    return made


def steps(callback, batches, clock, seconds, **logs):
    """Takes steps of this many seconds; returns what their logs became."""
    seen = []
    for batch in batches:
        clock.now += seconds
        seen.append(dict(logs))
        callback.on_train_batch_end(batch, seen[-1])
    return seen


def figures_of(learning_rate, **arguments):
    model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
    model.compile(training.SGD(learning_rate))
    figures = progress.Figures(**arguments)
    figures.set_model(model)
    figures.on_train_begin()
    return figures


def test_figures_of_steps_and_epochs(clock):
    """The first step of a run takes 30 s to trace and is not counted."""
    figures = figures_of(0.25, images_per_step=10, chance=0.5)
    figures.on_epoch_begin(0)
    (traced,) = steps(figures, [0], clock, 30.0, loss=0.4)
    assert traced["images/s"] == pytest.approx(10 / 30)
    for logs in steps(figures, range(1, 4), clock, 2.0, loss=0.4):
        assert logs["images/s"] == pytest.approx(5.0)
        assert logs["loss/chance"] == pytest.approx(0.8)
        assert logs["learning_rate"] == 0.25
    epoch = {"loss": 0.3}
    clock.now += 2.0  # of a slow callback
    figures.on_epoch_end(0, epoch)
    assert epoch.pop("images/s") == pytest.approx(30 / 8)
    assert epoch == {
        "loss": 0.3,
        "loss/chance": pytest.approx(0.6),
        "learning_rate": 0.25,
    }
    figures.on_epoch_begin(1)  # which does not trace
    logs = steps(figures, range(4), clock, 4.0, loss=0.4)
    assert [x["images/s"] for x in logs] == [pytest.approx(2.5)] * 4


def test_a_part_of_an_epoch_counts_the_steps_taken(clock):
    """Of 1,000 steps the last two are taken, after an interruption."""
    figures = figures_of(0.1, images_per_step=10)
    figures.on_epoch_begin(7)
    steps(figures, [998], clock, 9.0, loss=1.0)
    steps(figures, [999], clock, 2.0, loss=1.0)
    logs = {"loss": 1.0}
    figures.on_epoch_end(7, logs)
    assert logs["images/s"] == pytest.approx(5.0)
    assert "loss/chance" not in logs


def test_the_learning_rate_is_looked_at_rarely(clock):
    figures = figures_of(0.1, images_per_step=1)
    figures.on_epoch_begin(0)
    steps(figures, [0], clock, 1.0, loss=1.0)
    figures.model.optimizer.learning_rate.assign(0.2)
    logs = steps(figures, range(1, 4), clock, 0.2, loss=1.0)
    seen = [x["learning_rate"] for x in logs]
    assert seen == pytest.approx([0.1, 0.1, 0.2])
    figures.model.optimizer.learning_rate.assign(0.3)
    figures.on_epoch_end(0, epoch := {"loss": 1.0})
    assert epoch["learning_rate"] == pytest.approx(0.3)


LOGS = {
    "mean_cosine": 0.5,
    "loss": 2.5,
    "learning_rate": 0.00025,
    "data_wait": 0.125,
    "contrastive_accuracy": 0.75,
    "loss/chance": 0.8,
    "images/s": 12345.6,
}


@pytest.fixture
def bar(clock, monkeypatch):
    """Of the second of three epochs, on a terminal of 200 columns."""
    monkeypatch.setattr(tqdm.std, "time", clock.perf_counter)
    monkeypatch.setattr(
        tqdm.std, "_screen_shape_wrapper", lambda: lambda file: (200, 40)
    )
    made = progress.ProgressBar()
    made.set_params({"verbose": 1, "epochs": 3, "steps": 1251})
    made.on_epoch_begin(1)
    return made


def test_the_bar_of_a_step(bar, clock, capsys):
    """It goes on at step 1,000; after the first step one takes 2 s."""
    steps(bar, [1000], clock, 90.0, **LOGS)
    first = capsys.readouterr().out
    assert "? left" in first and "1001/1251" in first
    steps(bar, [1001, 1002], clock, 2.0, **LOGS)
    shown = capsys.readouterr().out.split("\r")[-1]
    assert re.fullmatch(
        r"epoch 2/3  1003/1251 \[.{10}\] 08:16 left, loss 2\.500  "
        r"loss/chance 0\.8000  contrastive_accuracy 0\.7500  "
        r"images/s 12,346  data_wait 0\.1250  learning_rate 0\.0002500",
        shown,
    )


def test_the_line_is_not_longer_than_the_terminal(
    bar, clock, capsys, monkeypatch
):
    monkeypatch.setattr(
        tqdm.std, "_screen_shape_wrapper", lambda: lambda file: (60, 40)
    )
    steps(bar, range(3), clock, 2.0, **LOGS)
    lines = capsys.readouterr().out.split("\r")
    assert {len(line) for line in lines[1:]} == {60}


def test_values_are_those_of_now_and_the_epoch_says_all(bar, clock, capsys):
    for loss in (9.0, 5.0, 1.0):
        steps(bar, [1], clock, 2.0, loss=loss)
        assert f"loss {loss}" in capsys.readouterr().out
    bar.on_epoch_end(1, LOGS | {"knn_accuracy": float("nan")})
    *_, cleared, epoch = capsys.readouterr().out.split("\r")
    assert cleared.isspace() and epoch == (
        "epoch        2/3  0:00:06  loss 2.500  loss/chance 0.8000  "
        "contrastive_accuracy 0.7500  images/s 12,346  data_wait 0.1250  "
        "learning_rate 0.0002500  mean_cosine 0.5000  knn_accuracy nan\n"
    )
    bar.on_epoch_begin(2)
    steps(bar, [0], clock, 2.0, loss=1.0)
    assert capsys.readouterr().out.startswith("\repoch 3/3  1/1251")


def test_fast_steps_are_not_all_drawn(bar, clock, capsys):
    steps(bar, range(1000), clock, 0.001, loss=1.0)
    assert 9 <= capsys.readouterr().out.count("\r") <= 11


@pytest.mark.parametrize("verbose", [0, 2])
def test_a_log_gets_one_line_per_epoch(verbose, capsys):
    """It takes the place of Keras' own bar."""
    model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
    model.compile(training.SGD(0.1), "mse")
    model.fit(
        tf.ones([8, 2]),
        tf.ones([8]),
        batch_size=2,
        epochs=2,
        verbose=verbose,
        callbacks=[progress.Figures(2), progress.ProgressBar()],
    )
    printed = capsys.readouterr().out
    assert "\r" not in printed
    lines = printed.splitlines()
    assert len(lines) == verbose  # epochs, or none
    for epoch, line in enumerate(lines):
        assert re.fullmatch(
            rf"epoch        {epoch + 1}/2  \d:\d\d:\d\d  loss \S+  "
            r"images/s \S+  learning_rate 0.1000",
            line,
        )
