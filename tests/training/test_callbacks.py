"""The warning of a collapse: where it is due, and nowhere else."""

from __future__ import annotations

import dataclasses
import re

import pytest
import tensorflow as tf

from supcon_tf import config, training
from supcon_tf.training import (
    builders,
    callbacks,
    stages,
)

REMEDY = "lower --learning_rate, lengthen --warmup_epochs or check --temp"


def printed_after(
    epochs,
    capsys,
    steps=100,
    callback=callbacks.CollapseWarning,
    **arguments,
):
    """What the callback prints over epochs that end with these figures."""
    model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
    model.compile(training.SGD(0.1))
    model.optimizer.build([])
    warning = callback(**arguments)
    warning.set_model(model)
    warning.on_train_begin()
    for epoch, figures in enumerate(epochs):
        model.optimizer.iterations.assign_add(steps)
        warning.on_epoch_end(epoch, figures)
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("figures", "seen"),
    [
        ({"loss/chance": 1.004, "mean_cosine": 0.1}, "loss/chance is 1.0040"),
        ({"loss/chance": 0.9905}, "loss at chance level"),
        ({"loss/chance": 1.0, "mean_cosine": 0.9951}, "mean cosine is 0.9951"),
        ({"mean_cosine": 0.9951}, "projections collapsed"),
    ],
)
def test_a_collapse_is_said_once_with_its_remedy(figures, seen, capsys):
    printed = printed_after([figures] * 3, capsys)
    (line,) = printed.splitlines()
    assert line.startswith("warning ")
    assert seen in line and "after 100 steps" in line and REMEDY in line


@pytest.mark.parametrize(
    "figures",
    [
        {"loss/chance": 0.989, "mean_cosine": 0.98},
        {"loss/chance": 1.011},
        {"loss": 1.0},
    ],
)
def test_a_healthy_epoch_says_nothing(figures, capsys):
    assert printed_after([figures] * 3, capsys) == ""


def test_a_fresh_encoder_is_not_judged(capsys):
    collapsed, learned = {"loss/chance": 1.0}, {"loss/chance": 0.9}
    epochs = [collapsed, collapsed, learned, learned]
    assert printed_after(epochs, capsys, steps=50, after_steps=150) == ""
    printed = printed_after(epochs, capsys, steps=50, after_steps=100)
    assert "after 100 steps" in printed


def test_the_wait_is_two_epochs_past_the_warm_up(tiny_settings):
    chosen = tiny_settings(warmup_epochs=1.5)
    assert stages._settled_after(chosen, 1000) == 3500
    assert stages._settled_after(chosen, 3) == 100


def test_a_collapsed_run_warns_once(tiny_settings, capsys, monkeypatch):
    """A head of equal weights gives all views the same projection."""
    made = builders.supcon_model

    def collapsed(chosen):
        model = made(chosen)
        for weight in model.projection_head.trainable_weights:
            weight.assign(tf.ones_like(weight))
        return model

    monkeypatch.setattr(builders, "supcon_model", collapsed)
    training.pretrain(tiny_settings(epochs=36, checkpoint_every=36))
    printed = capsys.readouterr().out
    (line,) = [x for x in printed.splitlines() if x.startswith("warning")]
    assert "mean cosine is 1.0" in line and REMEDY in line


def test_a_healthy_run_does_not_warn(tiny_settings, capsys):
    run = training.pretrain(tiny_settings(epochs=36, checkpoint_every=36))
    assert "\nwarning" not in capsys.readouterr().out
    figures = run.metrics_file.read_text().splitlines()[-1]
    for metric in ("contrastive_accuracy", "mean_cosine", "alignment"):
        assert f'"{metric}"' in figures


def test_a_wait_for_data_is_said_once_with_what_helps(capsys):
    epochs = [{"data_wait": share} for share in (0.9, 0.25, 0.616, 0.7)]
    printed = printed_after(
        epochs, capsys, 50, callbacks.InputBoundWarning, after_steps=100
    )
    (line,) = printed.splitlines()
    assert line.startswith("input-bound  62 % of the time spent waiting for d")
    fields = {field.name for field in dataclasses.fields(config.LinearSettings)}
    fields.add("image_size")  # of stage 1, for both
    named = re.findall(r"--(\w+)", line)
    assert "augmentation" in named and set(named) <= fields


def test_steps_are_known_on_several_replicas(mirrored_strategy):
    with mirrored_strategy.scope():
        model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
        model.compile(training.SGD(0.1))
        model.optimizer.build([])
    model.optimizer.iterations.assign(7)
    stop = callbacks.StopOnNonFiniteLoss()
    stop.set_model(model)
    with pytest.raises(FloatingPointError, match="loss is nan at step 7"):
        stop.on_train_batch_end(0, {"loss": float("nan")})
