"""Soft labels: of MixUp and CutMix in the tools, of a teacher in Python."""

import pathlib
import re

import numpy as np
import pytest
import tensorflow as tf

from supcon_tf import config, losses, training
from supcon_tf.keras_2 import keras
from supcon_tf.training import builders, input_pipeline, runs
from tests import reference

BESIDE = {  # how a classifier learns, and what is said of it
    "supcon": {"objective": "supcon", "online_classifier": True},
    "supcon+ce": {"objective": "supcon+ce", "classifier_weight": 0.25},
}


@pytest.fixture(autouse=True)
def traced_again():
    yield
    tf.config.run_functions_eagerly(False)


def small_network():
    """What is quick to trace."""
    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input((16, 16, 3)),
            layers.Conv2D(4, 4, 4),
            layers.Flatten(),
            layers.Dense(8),
        ]
    )


def first_outputs(settings):
    """Soft labels of the first batch, its projections and logits at start."""
    images = input_pipeline.source(settings, "train")
    mix = input_pipeline.mixing(settings, 3)
    size, views = settings.image_size, settings.num_views
    batches = input_pipeline.views(settings, images, size, views, mix)
    batch, soft = next(iter(batches))
    keras.utils.set_random_seed(settings.seed)
    model = builders.model(settings, 3)
    return soft.numpy(), *model._outputs(batch, training=True)


@pytest.mark.slow(but=["mixup-supcon+ce-cosine"])
@pytest.mark.parametrize(
    ("mixing", "objective", "positives"),
    [("cutmix", "supcon", None), ("mixup", "supcon+ce", "cosine")],
)
def test_the_first_batch_has_the_loss_of_its_soft_labels(
    tiny_settings, capsys, mixing, objective, positives
):
    """That of NumPy's loops, of the very views; 12 images make a step."""
    tf.config.run_functions_eagerly(True)  # nothing to trace for one step
    run = training.pretrain(
        tiny_settings(
            **BESIDE[objective],
            mixing=mixing,
            mixing_alpha=1.0,
            positives=positives,
            architecture=f"{__name__}:small_network",
            width=1.0,
            images_per_label=4,
            batch_size=12,
            num_views=3,
            epochs=1,
        )
    )
    kind = positives or "soft"
    line = f", {mixing} of images and labels, {kind} positives; chance level"
    assert line in capsys.readouterr().out
    soft, z, logits = first_outputs(run.recorded(config.PretrainSettings))
    assert ((soft > 0).sum(axis=1) == 2).sum() >= 3  # of two classes
    expected = np.mean(
        reference.supcon_loss(z, soft, temperature=0.1, positives=kind)
    )
    (figures,) = run.metrics()
    assert figures["loss"] == pytest.approx(expected, rel=1e-4)
    chance = 0.1 * np.log(35)
    assert figures["loss/chance"] == pytest.approx(expected / chance, rel=1e-4)
    log_shares = tf.nn.log_softmax(logits).numpy()
    expected = -np.mean((soft[:, None] * log_shares).sum(axis=2))
    assert figures["classifier_loss"] == pytest.approx(expected, rel=1e-3)
    labelled = {"contrastive_accuracy", "alignment", "positives_per_anchor"}
    assert not labelled & set(figures) and "uniformity" in figures


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mixing", "objective"), [("mixup", "supcon"), ("cutmix", "supcon+ce")]
)
def test_supcon_learns_from_mixed_images(tiny_settings, mixing, objective):
    run = training.pretrain(
        tiny_settings(
            **BESIDE[objective],
            mixing=mixing,
            epochs=8,
            warmup_epochs=0.0,
            gradient_cache_chunks=2,
        )
    )
    figures = run.metrics()
    assert figures[-1]["loss"] < figures[0]["loss"]
    assert figures[-1]["classifier_loss"] < figures[0]["classifier_loss"]
    assert 1 / 3 < figures[-1]["classifier_accuracy"] < 1
    restored = runs.Run.open(run.path).classifier("pretrained")
    assert restored.kernel.shape[1] == 3
    recorded = run.recorded(config.PretrainSettings)
    assert (recorded.mixing, recorded.positives) == (mixing, None)


@pytest.mark.slow
def test_a_student_learns_from_the_teacher_of_the_guide():
    """Whose probabilities are its only labels."""
    root = pathlib.Path(__file__).parents[2]
    page = (root / "docs/guides/labels.md").read_text()
    (block,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert "epochs=3)" in block
    keras.utils.set_random_seed(0)
    names = {}
    exec(block.replace("epochs=3)", "epochs=1)"), names)
    probabilities = names["probabilities"].numpy()
    assert probabilities.shape == (1437, 10) and (probabilities > 0).all()
    student, images = names["student"], names["images"].numpy()
    (loss,) = student.history.history["loss"]
    assert loss < 0.95 * losses.chance_loss(2 * 64 - 1, 0.1)
    some = slice(0, 8)
    z = student(np.stack([images[some], images[some, ::-1]], axis=1))
    expected = np.mean(
        reference.supcon_loss(
            z, probabilities[some], temperature=0.1, positives="soft"
        )
    )
    loss = float(student.loss(probabilities[some], z))
    assert loss == pytest.approx(expected, rel=1e-4)
