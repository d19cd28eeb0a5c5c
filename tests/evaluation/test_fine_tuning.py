"""Fine-tuning: where it starts, what it changes, what it leaves."""

import math

import numpy as np
import pytest
import tensorflow as tf

from supcon_tf import config, run_files, training
from supcon_tf.evaluation import fine_tuning, selection
from supcon_tf.training import checkpoints, input_pipeline, runs

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


def momenta(method):
    return {
        layer.momentum
        for layer in method.model.encoder.submodules
        if isinstance(layer, tf.keras.layers.BatchNormalization)
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
    method._start(CELL, 1000)
    assert momenta(method) == {0.99}


def test_every_training_starts_at_the_pretrained_encoder(tuned, finished_run):
    method, _ = tuned
    method._start(CELL, 2)
    before = training.load_encoder(finished_run.path).variables
    for old, new in zip(before, method.model.encoder.variables, strict=True):
        np.testing.assert_array_equal(old, new)
    probabilities = method.predict()
    np.testing.assert_allclose(probabilities, 1 / 3, rtol=1e-6)


def test_the_checkpoint_holds_encoder_and_classifier(tuned, tmp_path):
    from etils import epath

    method, _ = tuned
    method.model.classifier.bias.assign([1.0, 2.0, 3.0])
    method.save(epath.Path(tmp_path))
    method.model.classifier.bias.assign([0.0, 0.0, 0.0])
    checkpoints.restore(
        run_files.path_of(epath.Path(tmp_path), 5),
        encoder=method.model.encoder,
        classifier=method.model.classifier,
    )
    assert method.model.classifier.bias.numpy().tolist() == [1.0, 2.0, 3.0]
