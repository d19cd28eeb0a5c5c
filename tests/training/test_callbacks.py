"""Records of epochs, warnings, and stops of a training."""

import dataclasses
import inspect
import math
import re

import numpy as np
import pytest
import tensorflow as tf

from supcon_tf import config, run_files, training
from supcon_tf.finetuning import tuning
from supcon_tf.keras_2 import keras
from supcon_tf.training import callbacks
from supcon_tf.transfer import fine_tuning

REMEDY = "try a learning rate ten times as large or as small, and milder"


def with_model(callback):
    """The callback, with a compiled model."""
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile(training.SGD(0.1))
    model.optimizer.build([])
    callback.set_model(model)
    return callback


def printed_after(epochs, capsys, steps=100, kind=None, **arguments):
    """The printed lines of the callback over epochs with figures."""
    warning = with_model((kind or callbacks.CollapseWarning)(**arguments))
    for epoch, figures in enumerate(epochs):
        for batch in range(steps):
            warning.on_train_batch_end(batch, figures)
        warning.model.optimizer.iterations.assign_add(steps)
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
def test_a_collapse_has_a_single_warning_with_a_remedy(figures, seen, capsys):
    printed = printed_after([figures] * 3, capsys)
    (line,) = printed.splitlines()
    assert line.startswith("warning ")
    assert seen in line and "after 100 steps" in line and REMEDY in line


def test_healthy_epochs_and_fresh_encoders_have_no_warning(capsys):
    for figures in (
        {"loss/chance": 0.989, "mean_cosine": 0.98},
        {"loss/chance": 1.011},
        {"loss": 1.0},
    ):
        assert printed_after([figures] * 3, capsys) == ""
    collapsed, learned = {"loss/chance": 1.0}, {"loss/chance": 0.9}
    epochs = [collapsed, collapsed, learned, learned]
    assert printed_after(epochs, capsys, steps=50, after_steps=150) == ""
    printed = printed_after(epochs, capsys, steps=50, after_steps=100)
    assert "after 100 steps" in printed


def test_a_wait_for_data_has_a_single_warning_with_remedies(capsys):
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
    # A resumed run waits anew for its buffers: the optimizer's counter is past
    # the wait, the steps are not.
    warning = with_model(callbacks.InputBoundWarning(after_steps=2))
    warning.model.optimizer.iterations.assign(5000)
    for epoch, seen in enumerate(("", "input-bound")):
        warning.on_train_batch_end(999)
        warning.on_epoch_end(epoch, {"data_wait": 0.9})
        assert capsys.readouterr().out.startswith(seen)
        assert warning.warned == bool(seen)


def test_metrics_are_json_and_continue_in_a_resumed_run(tmp_path):
    file = callbacks.EpochRecords(run_files.RunDirectory(tmp_path))
    path = file.run.metrics_file
    file.on_train_begin()
    for epoch, loss in enumerate((np.float32(0.1), math.nan, -math.inf)):
        file.on_epoch_end(epoch, {"loss": loss, "knn_accuracy": 0.5})
    expected = [
        {"epoch": 1, "loss": float(np.float32(0.1)), "knn_accuracy": 0.5},
        {"epoch": 2, "loss": None, "knn_accuracy": 0.5},
        {"epoch": 3, "loss": None, "knn_accuracy": 0.5},
    ]
    assert "NaN" not in path.read_text() and "Inf" not in path.read_text()
    assert run_files.read_metrics(path) == expected
    with path.open("a") as torn:
        torn.write('{"epoch": 4, "lo')
    assert run_files.read_metrics(path) == expected
    # A damaged line inside the file, too, in a resumed run.
    path.write_bytes(b"\xff\n" + path.read_bytes())
    resumed = callbacks.EpochRecords(file.run, start_epoch=2)
    resumed.on_train_begin()
    assert run_files.read_metrics(path) == expected[:2]
    resumed.on_epoch_end(2, {"loss": 1.5})
    assert run_files.read_metrics(path) == [
        *expected[:2],
        {"epoch": 3, "loss": 1.5},
    ]
    callbacks.EpochRecords(file.run).on_train_begin()
    assert path.read_text() == ""
    assert {*tmp_path.iterdir()} == {path, file.run.tensorboard}


def test_a_loss_that_is_not_finite_is_named_with_its_step():
    """The fifth batch is bad, in the second epoch of three steps."""
    inputs = np.ones([18, 2], np.float32)
    inputs[9] = np.nan
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile(training.SGD(0.1), "mse")
    with pytest.raises(FloatingPointError) as error:
        model.fit(
            tf.data.Dataset.from_tensor_slices((inputs, np.ones(18))).batch(2),
            epochs=3,
            steps_per_epoch=3,
            verbose=0,
            callbacks=[callbacks.StopOnNonFiniteLoss()],
        )
    assert str(error.value) == (
        "loss is nan at step 5: lower --learning_rate or lengthen "
        "--warmup_epochs; earlier checkpoints are kept"
    )


@pytest.mark.parametrize(
    "train", [tuning.Tuning.train, fine_tuning.FineTuning.fit]
)
def test_a_tool_that_tries_several_rates_names_its_flag(train):
    class Search:
        """Diverges in the first step of a training."""

        def __getattr__(self, name):
            stop = with_model(callbacks.StopOnNonFiniteLoss())
            stop.on_train_batch_end(0, {"loss": math.nan})

    arguments = [None] * (len(inspect.signature(train).parameters) - 1)
    with pytest.raises(FloatingPointError) as error:
        train(Search(), *arguments)
    assert str(error.value) == "loss is nan at step 0: lower --learning_rates"


def test_losses_stop_a_training_and_other_metrics_do_not(monkeypatch, capsys):
    stop = with_model(callbacks.StopOnNonFiniteLoss())
    good = {"loss": 1.0, "classifier_loss": 2.0, "uniformity": math.nan}
    stop.on_train_batch_end(0, good)
    assert capsys.readouterr().out == ""
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    with pytest.raises(FloatingPointError, match="^classifier_loss is inf at"):
        stop.on_train_batch_end(0, good | {"classifier_loss": math.inf})
    assert capsys.readouterr().out == "\n"  # below the bar


def test_a_weight_that_is_not_finite_is_named(mirrored_strategy):
    """A weight of a layer, a statistic of batch norm, a state of SGD."""
    for strategy in (tf.distribute.get_strategy(), mirrored_strategy):
        with strategy.scope():
            model = keras.Sequential(
                [
                    keras.layers.Dense(2, name="first"),
                    keras.layers.BatchNormalization(name="norm"),
                ]
            )
            model.build([None, 3])
            model.compile(training.SGD(0.1, momentum=0.9), "mse")
            model.optimizer.build(model.trainable_variables)
        callbacks.check_finite_weights(model)
        model.optimizer.iterations.assign(7)
        traced = callbacks._are_finite.experimental_get_tracing_count()
        for variable, value, name in (
            (model.layers[0].kernel, math.nan, "first/kernel:0"),
            (model.layers[1].moving_mean, math.inf, "norm/moving_mean:0"),
            (model.optimizer.variables[-1], -math.inf, "norm/beta:0"),
        ):
            good = tf.convert_to_tensor(variable).numpy()
            bad = good.copy()
            bad.flat[-1] = value
            variable.assign(bad)
            expected = f"{re.escape(name)} is not finite at step 7: lower"
            with pytest.raises(FloatingPointError, match=expected):
                callbacks.check_finite_weights(model)
            variable.assign(good)
            callbacks.check_finite_weights(model)
        assert traced == callbacks._are_finite.experimental_get_tracing_count()
