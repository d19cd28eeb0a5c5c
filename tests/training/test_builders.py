"""From settings to models, losses and optimizers, and their printed lines."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from supcon_tf import config, data, losses, models, training
from supcon_tf.keras_2 import keras
from supcon_tf.optimizers import lamb
from supcon_tf.training import builders, console


def test_figures_of_unsupervised_classes_count_their_own_views(tiny_settings):
    images = data.from_arrays(np.zeros([7, 8, 8, 3], np.uint8), np.arange(7))
    settings = tiny_settings(unsupervised_classes=("3", "0"))
    model = builders.model(settings, 7)
    builders.compile_model(settings, model, 1, images)
    model.train_on_batch(
        np.zeros([4, 2, 8, 8, 3], np.uint8), np.array([3, 3, 5, 5])
    )
    figures = {metric.name: float(metric.result()) for metric in model.metrics}
    assert figures["positives_per_anchor"] == 2  # of each, 1, 1, 3 and 3


@pytest.mark.parametrize(
    ("overrides", "parts", "loss", "weight"),
    [
        ({}, "projection_head", losses.SupConLoss, None),
        ({"objective": "triplet"}, "projection_head", losses.TripletLoss, None),
        ({"objective": "ce"}, "classifier", losses.CrossEntropyLoss, None),
        ({"objective": "max_margin"}, "classifier", losses.MaxMarginLoss, None),
        (
            {"objective": "supcon+ce", "classifier_weight": 0.2},
            "projection_head classifier",
            losses.SupConLoss,
            0.2,
        ),
        (
            {"objective": "simclr+ce"},
            "projection_head classifier",
            losses.SimCLRLoss,
            0.5,
        ),
        (
            {"objective": "npairs", "online_classifier": True},
            "projection_head classifier",
            losses.NPairsLoss,
            None,
        ),
        (
            {"objective": "paco"},
            "projection_head centres",
            losses.PaCoLoss,
            None,
        ),
        (
            {"objective": "bcl"},
            "projection_head centres",
            losses.BalancedSupConLoss,
            None,
        ),
    ],
)
def test_every_objective_has_its_model_and_loss(
    tiny_settings, overrides, parts, loss, weight
):
    settings = tiny_settings(**overrides, label_smoothing=0.0)
    model = builders.model(settings, 7)
    assert set(builders.checkpointed(model)) == {"encoder", *parts.split()}
    images = data.from_arrays(np.zeros([7, 8, 8, 3], np.uint8), np.arange(7))
    built = builders.loss(settings, model, images)
    assert type(built) is loss
    if loss is losses.PaCoLoss:
        shares = built.get_config()["class_shares"]
        assert shares == pytest.approx([1 / 7] * 7)
    assert settings.has_classifier == ("classifier" in parts)
    if "projection_head" in parts:
        assert (model.classifier is None) == ("classifier" not in parts)
        assert model.gradient_cache_chunks == 1
        assert model.classifier_weight == weight
    else:
        assert isinstance(model, models.ClassifierModel)
        assert model.cosine == (settings.objective == "max_margin")
    if settings.objective == "ce":
        smoothed = tiny_settings(objective="ce", label_smoothing=0.1)
        assert builders.loss(smoothed).label_smoothing == 0.1


def test_shares_of_classes_need_the_labels_of_all_files():
    images = data.from_arrays(np.zeros([3, 8, 8, 3], np.uint8), [0, 1, 1])
    assert builders._class_shares(images) == pytest.approx([1 / 3, 2 / 3])
    of_a_worker = dataclasses.replace(images, shard=(0, 2))
    with pytest.raises(ValueError, match="--auto_shard must be element for a"):
        builders._class_shares(of_a_worker)


def test_chunks_have_batch_norm_without_synchronization(
    tiny_settings, mirrored_strategy
):
    """A loop over chunks cannot synchronize replicas."""
    for chunks in (1, 4):
        settings = tiny_settings(
            gradient_cache_chunks=chunks, projection_batch_norm=True
        )
        with mirrored_strategy.scope():
            model = builders.model(settings, 7)
        assert model.gradient_cache_chunks == chunks
        norms = [
            layer.synchronized
            for layer in model.submodules
            if isinstance(layer, keras.layers.BatchNormalization)
        ]
        assert norms == [chunks == 1] * 9


EPOCH_STEPS = 10


def linear(**fields):
    return config.LinearSettings("run", **{"batch_size": 1024, **fields})


OPTIMIZERS = {
    "lars": (
        {"momentum": 0.8},
        training.LARS,
        {"momentum": 0.8, "trust_coefficient": 0.001, "l2": 0.01},
        "lars, momentum 0.8, weight decay 0.01; learning rate 10 "
        "(2.5 per 256, linear scaling), warm-up 0 epochs, cosine decay",
    ),
    "sgd": (
        {"nesterov": True},
        training.SGD,
        {"momentum": 0.9, "nesterov": True, "l2": 0.01},
        "sgd, Nesterov momentum 0.9, weight decay 0.01; ",
    ),
    "rmsprop": (
        {"momentum": 0.8},
        training.RMSProp,
        {"rho": 0.9, "momentum": 0.8, "epsilon": 1e-3, "l2": 0.01},
        "rmsprop, momentum 0.8, epsilon 0.001, weight decay 0.01; ",
    ),
    "adam": (
        {},
        training.Adam,
        {"epsilon": 1e-7, "l2": 0.01, "weight_decay": None},
        "adam, epsilon 1e-07, weight decay 0.01; ",
    ),
    "adamw": (
        {"optimizer_epsilon": 1e-4},
        training.AdamW,
        {"epsilon": 1e-4, "weight_decay": 0.01},
        "adamw, epsilon 0.0001, weight decay 0.01; ",
    ),
    "lamb": (
        {},
        lamb.LAMB,
        {"epsilon": 1e-6, "weight_decay": 0.01},
        "lamb, epsilon 1e-06, weight decay 0.01; ",
    ),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimizer_gets_its_settings(name, capsys):
    fields, kind, numbers, text = OPTIMIZERS[name]
    settings = linear(optimizer=name, weight_decay=0.01, **fields)
    optimizer = builders.optimizer(settings, EPOCH_STEPS)
    assert type(optimizer) is kind
    optimizer_config = optimizer.get_config()
    assert {key: optimizer_config[key] for key in numbers} == numbers
    assert optimizer_config["learning_rate"]["config"] == {
        "peak": 10.0,
        "warmup_steps": 0,
        "total_steps": 1000,
    }
    console.print_optimizer(settings)
    assert capsys.readouterr().out.startswith(f"optimizer    {text}")
    clipped = dataclasses.replace(settings, clip_norm=0.5)
    assert builders.optimizer(clipped, EPOCH_STEPS).global_clipnorm == 0.5


def test_repeated_rows_are_clipped_by_the_norm_of_their_sum():
    """Rows of an embedding: [3, 4] has length 5, its parts sqrt(13)."""
    table = tf.Variable([[0.0, 0.0]])
    optimizer = builders.optimizer(
        linear(optimizer="sgd", nesterov=False, momentum=0, clip_norm=0.5),
        EPOCH_STEPS,
    )
    rows = tf.IndexedSlices([[3.0, 2.0], [0.0, 2.0]], [0, 0], [1, 2])
    optimizer.apply_gradients([(rows, table)])
    rate = float(optimizer.learning_rate)
    np.testing.assert_allclose(-table[0] / rate, [0.3, 0.4], rtol=1e-5)


SCHEDULES = {
    "cosine": (
        {},
        training.WarmupCosine,
        {"total_steps": 1000},
        "cosine decay",
    ),
    "exponential": (
        {"decay_rate": 0.97, "decay_epochs": 0.5},
        training.WarmupExponential,
        {"decay_steps": 5, "decay_rate": 0.97},
        "then times 0.97 every 0.5 epochs",
    ),
    "step": (
        {"decay_boundaries": (60.0, 75.5)},
        training.WarmupStep,
        {"boundaries": [600, 755], "decay_rate": 0.1},
        "then times 0.1 at epochs 60, 75.5",
    ),
    "constant": ({}, training.Warmup, {}, "then constant"),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_every_schedule_gets_its_settings(name, capsys):
    fields, kind, numbers, text = SCHEDULES[name]
    settings = linear(
        schedule=name,
        learning_rate=0.2,
        learning_rate_scaling="none",
        warmup_epochs=2.5,
        **fields,
    )
    schedule = builders.schedule(settings, EPOCH_STEPS)
    assert type(schedule) is kind
    assert schedule.get_config() == (
        {"peak": 0.2, "warmup_steps": 25} | numbers
    )
    untrained = dataclasses.replace(settings, epochs=0)
    untrained = builders.schedule(untrained, EPOCH_STEPS)
    assert untrained.get_config()["warmup_steps"] == 0
    console.print_optimizer(settings)
    assert capsys.readouterr().out.endswith(
        "; learning rate 0.2 (whatever the batch), warm-up 2.5 epochs, "
        f"{text}\n"
    )


def test_boundaries_that_never_decay_are_refused():
    step = {"schedule": "step", "warmup_epochs": 5.0}
    for epochs in (0, 100):
        linear(**step, decay_boundaries=(5.0, 99.0), epochs=epochs)
    for boundaries, epochs in (((30.0, 80.0), 80), ((4.0, 60.0), 100), ((), 9)):
        with pytest.raises(ValueError, match="^--decay_boundaries must be fro"):
            linear(**step, decay_boundaries=boundaries, epochs=epochs)
