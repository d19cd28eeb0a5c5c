"""Fine-tuning: where it starts, what it changes, what it leaves."""

import math
import pathlib
import signal

import numpy as np
import pytest
import tensorflow as tf

from supcon_tf import config, run_files, training
from supcon_tf.keras_2 import keras
from supcon_tf.training import input_pipeline, runs
from supcon_tf.transfer import fine_tuning, linear_probe, selection, transfer
from tests import forks, workers

TOOL = pathlib.Path(__file__).parents[2] / "tools" / "transfer.py"
CELL = {"learning_rate": 0.5, "weight_decay": 1e-3}


@pytest.fixture(scope="module")
def tuned(finished_run, image_folder):
    """Five steps on 40 of the 48 images, at another size than before."""
    settings = config.TransferSettings(
        str(finished_run.path),
        dataset="folder",
        data_dir=str(image_folder),
        method="finetune",
        image_size=24,
        steps=5,
        batch_size=16,
        learning_rates=(0.5, 0.1),
        weight_decays=(0.0, 1e-3),
    )
    with tf.distribute.get_strategy().scope():
        method = fine_tuning.FineTuning(
            settings,
            runs.Run.open(finished_run.path),
            input_pipeline.source(settings, "train"),
            input_pipeline.source(settings, "test"),
            np.arange(40),
        )
    grid = [(0.5, 0.0), (0.5, 1e-3), (0.1, 0.0), (0.1, 1e-3)]
    assert [tuple(cell.values()) for cell in method.cells] == grid
    trained = method.fit(np.arange(40), CELL, seed=1)
    return method, trained


def settings_of(method):
    run = run_files.RunDirectory(method._stage.tuned)
    return method._settings(run, CELL, seed=1, batch_size=16)


def momenta(method):
    return {
        layer.momentum
        for layer in method.model.encoder.submodules
        if isinstance(layer, keras.layers.BatchNormalization)
    }


def test_training_lowers_the_loss_and_changes_all_weights(tuned, finished_run):
    method, trained = tuned
    labels = np.repeat([0, 1, 2], 16)[:40]
    after = selection.measure(method.predict(np.arange(40)), labels)
    assert trained["batch_size"] == 16
    # The classifier starts at zero, so the loss at log(3).
    assert trained["mean_loss"] < math.log(3) - 0.01
    assert after["nll"] < math.log(3) - 0.05
    before = training.load_encoder(finished_run.path).trainable_variables
    for old, new in zip(
        before, method.model.encoder.trainable_variables, strict=True
    ):
        assert np.abs(old.numpy() - new.numpy()).max() > 0, old.name


def test_optimizer_and_batch_norm_are_those_of_the_appendix(tuned):
    method, _ = tuned
    optimizer = method.model.optimizer
    assert optimizer.nesterov and optimizer.momentum == 0.9
    assert optimizer.l2 == pytest.approx(1e-3 / 0.5)
    rates = [float(optimizer._learning_rate(step)) for step in (0, 5)]
    assert rates == pytest.approx([0.5, 0.0])
    assert momenta(method) == {0.9}  # 2 steps per epoch
    method._start(settings_of(method), method.images, 16_000)
    assert momenta(method) == {0.99}


def test_every_training_starts_at_the_pretrained_encoder(tuned, finished_run):
    method, _ = tuned
    method._start(settings_of(method), method.images, 40)
    before = training.load_encoder(finished_run.path).variables
    for old, new in zip(before, method.model.encoder.variables, strict=True):
        np.testing.assert_array_equal(old, new)
    probabilities = method.predict()
    np.testing.assert_allclose(probabilities, 1 / 3, rtol=1e-6)


def test_answers_that_are_not_finite_are_a_divergence():
    """The loss before the last step does not know of them."""
    with pytest.raises(FloatingPointError, match="lower --learning_rates"):
        fine_tuning._finite(np.array([[0.5, np.nan]], np.float32))


@pytest.mark.slow
def test_a_batch_of_few_images_fits(finished_run, image_folder):
    """Also where each class has so many of it: 256 is nobody's choice."""
    settings = config.TransferSettings(
        str(finished_run.path),
        dataset="folder",
        data_dir=str(image_folder),
        name="few",
        method="finetune",
        steps=1,
        images_per_class=4,
        images_per_label=5,
        overwrite=True,
    )
    (draw,) = transfer.transfer_encoder(settings)["draws"]
    assert draw["training_images"] == 15
    assert draw["training"]["batch_size"] == 12


@pytest.mark.slow
def test_supcon_then_linear_and_both_at_once(finished_run, image_folder):
    """Both learn, from where they are told, and leave what they should."""
    for objective in ("supcon", "supcon+ce"):
        settings = config.TransferSettings(
            str(finished_run.path),
            dataset="folder",
            data_dir=str(image_folder),
            name=objective.replace("+", "_"),
            method="finetune",
            objective=objective,
            steps=4,
            batch_size=16,
            freeze=("stage0",),
            layer_decay=0.8,
            overwrite=True,
        )
        measured = transfer.transfer_encoder(settings)
        assert measured["test"]["nll"] < math.log(3), objective
        stage = finished_run.stage(settings.name)
        assert not stage.trainings.exists()
        run = runs.Run.open(stage.tuned)
        assert run.settings.objective == objective
        before = training.load_encoder(finished_run.path).stack.convs[0]
        after = run.encoder.stack.convs[0]
        for old, new in zip(before.weights, after.weights, strict=True):
            np.testing.assert_array_equal(old, new)
        names = ("pretrained",) if objective == "supcon+ce" else ()
        assert run.classifiers == names


@pytest.mark.parametrize("num_classes", [2, 3])
def test_a_dense_layer_answers_as_the_regression(num_classes):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=[30, 4]).astype(np.float32)
    labels = rng.permutation(np.arange(30) % num_classes)
    labels[labels == 1] = 3  # no class 1 of 4
    probe = linear_probe.LinearProbe(4, max_iterations=200)
    probe.fit(rows, labels, l2=0.1)
    layer = keras.layers.Dense(4, activation="softmax")
    layer.build([None, 4])
    layer.set_weights([probe.kernel, probe.bias])
    answers = layer(rows).numpy()
    np.testing.assert_allclose(answers, probe.predict(rows), atol=1e-6)
    assert not answers[:, 1].any()


KILLED = """
import os, signal
from supcon_tf.cli import commands
from supcon_tf.training import saving

save, saved = saving.Saver._save, []

def save_and_die(self, *arguments):
    save(self, *arguments)
    saved.append(arguments)
    if len(saved) == 6:  # in the second training of three
        os.kill(os.getpid(), signal.SIGKILL)

saving.Saver._save = save_and_die
commands.run("transfer")
"""


@pytest.mark.slow
def test_a_killed_training_goes_on_to_the_same(finished_run, image_folder):
    flags = [
        f"--run_dir={finished_run.path}",
        "--dataset=folder",
        f"--data_dir={image_folder}",
        "--method=finetune",
        "--deterministic",
        "--steps=4",
        "--learning_rates=0.5,0.1",
        "--batch_size=16",
        "--checkpoint_steps=1",
    ]
    whole = forks.run(TOOL, *flags, "--name=whole")
    assert whole.returncode == 0, whole.stderr
    killed = forks.run(KILLED, *flags, "--name=killed")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    stage = finished_run.stage("killed")
    assert {path.name for path in stage.trainings.iterdir()} == {"0000", "0001"}
    again = forks.run(TOOL, *flags, "--name=killed", "--resume")
    assert again.returncode == 0, again.stderr
    assert "resumed" in again.stdout
    expected = finished_run.stage("whole")
    for key, value in run_files.read_arrays(expected.predictions_file).items():
        resumed = run_files.read_arrays(stage.predictions_file)[key]
        np.testing.assert_array_equal(resumed, value)
    finished = forks.run(TOOL, *flags, "--name=killed", "--resume")
    assert finished.returncode == 0, finished.stderr
    table = finished.stdout.splitlines()
    assert again.stdout.splitlines()[-len(table) :] == table


@pytest.mark.slow
def test_two_workers_end_like_one_device(finished_run, image_folder):
    flags = [
        f"--run_dir={finished_run.path}",
        "--dataset=folder",
        f"--data_dir={image_folder}",
        "--method=finetune",
        "--objective=supcon+ce",
        "--steps=3",
        "--batch_size=16",
    ]
    alone = forks.run(TOOL, *flags, "--name=alone")
    assert alone.returncode == 0, alone.stderr
    flags += ["--name=two", "--strategy=multi_worker"]
    both = [
        forks.Fork(TOOL, *flags, env=environment)
        for environment in workers.environments(2)
    ]
    for worker in both:
        _, errors = worker.communicate()
        assert worker.returncode == 0, errors
    one, two = (
        run_files.read_arrays(finished_run.stage(name).predictions_file)
        for name in ("alone", "two")
    )
    np.testing.assert_allclose(
        two["probabilities"], one["probabilities"], atol=2e-3
    )
    assert not finished_run.stage("two").trainings.exists()
