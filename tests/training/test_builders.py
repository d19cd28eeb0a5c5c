"""From settings to models, losses and optimizers, and what is printed."""

from __future__ import annotations

import pytest
import tensorflow as tf

from supcon_tf import config, losses, models, training
from supcon_tf.training import builders, console, lamb


@pytest.mark.parametrize(
    ("overrides", "weight"),
    [
        ({"online_classifier": True}, None),
        ({"objective": "supcon+ce", "classifier_weight": 0.2}, 0.2),
        ({"objective": "triplet+ce"}, 0.5),
    ],
)
def test_a_classifier_beside_the_projections(tiny_settings, overrides, weight):
    model = builders.model(tiny_settings(**overrides), 7)
    assert isinstance(model, models.SupConModel)
    assert model.classifier.kernel.shape == (26, 7)
    assert model.classifier_weight == weight


@pytest.mark.parametrize(
    ("overrides", "top"),
    [
        ({}, {"projection_head"}),
        ({"objective": "ce"}, {"classifier"}),
        ({"objective": "max_margin"}, {"classifier"}),
        ({"objective": "supcon+ce"}, {"projection_head", "classifier"}),
        ({"online_classifier": True}, {"projection_head", "classifier"}),
    ],
)
def test_what_is_checkpointed(tiny_settings, overrides, top):
    settings = tiny_settings(**overrides)
    model = builders.model(settings, 7)
    assert set(builders.checkpointed(model)) == {"encoder"} | top
    assert builders.has_classifier(settings) == ("classifier" in top)
    if "projection_head" in top:
        assert (model.classifier is None) == ("classifier" not in top)
        assert model.gradient_cache_chunks == 1
    else:
        assert isinstance(model, models.ClassifierModel)
        assert model.cosine == (settings.objective == "max_margin")


def test_chunks_take_their_own_batch_norm(tiny_settings, mirrored_strategy):
    """A loop cannot synchronize: the default flags must work on replicas."""
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
            if isinstance(layer, tf.keras.layers.BatchNormalization)
        ]
        assert norms == [chunks == 1] * 6


@pytest.mark.parametrize(
    ("objective", "expected"),
    [
        ("supcon", losses.SupConLoss),
        ("supcon+ce", losses.SupConLoss),
        ("simclr+ce", losses.SimCLRLoss),
        ("npairs+ce", losses.NPairsLoss),
        ("triplet", losses.TripletLoss),
        ("ce", losses.CrossEntropyLoss),
        ("max_margin", losses.MaxMarginLoss),
    ],
)
def test_losses(tiny_settings, objective, expected):
    assert type(builders.loss(tiny_settings(objective=objective))) is expected


def test_cross_entropy_smooths_labels(tiny_settings):
    for smoothing in (0.0, 0.1):
        settings = tiny_settings(objective="ce", label_smoothing=smoothing)
        assert builders.loss(settings).label_smoothing == smoothing


EPOCH_STEPS = 10


def linear(**fields):
    return config.LinearSettings("run", **{"batch_size": 1024, **fields})


OPTIMIZERS = {
    "lars": (
        {"momentum": 0.8, "trust_coefficient": 0.002},
        training.LARS,
        {"momentum": 0.8, "trust_coefficient": 0.002, "l2": 0.01},
        "lars, momentum 0.8, trust 0.002, weight decay 0.01; learning rate 10 "
        "(2.5 per 256, linear scaling), warm-up 0 epochs, cosine decay",
    ),
    "sgd": (
        {"nesterov": True},
        training.SGD,
        {"momentum": 0.9, "nesterov": True, "l2": 0.01},
        "sgd, Nesterov momentum 0.9, weight decay 0.01; ",
    ),
    "rmsprop": (
        {"rmsprop_decay": 0.95},
        training.RMSProp,
        {"rho": 0.95, "momentum": 0.9, "epsilon": 1e-3, "l2": 0.01},
        "rmsprop, decay 0.95, momentum 0.9, epsilon 0.001, weight decay 0.01; ",
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
    made = optimizer.get_config()
    assert {key: made[key] for key in numbers} == numbers
    assert made["learning_rate"]["config"] == {
        "peak": 10.0,
        "warmup_steps": 0,
        "total_steps": 1000,
    }
    console.print_optimizer(settings)
    assert capsys.readouterr().out.startswith(f"optimizer    {text}")


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
    console.print_optimizer(settings)
    assert capsys.readouterr().out.endswith(
        "; learning rate 0.2 (whatever the batch), warm-up 2.5 epochs, "
        f"{text}\n"
    )


def test_a_run_of_no_epochs_has_an_optimizer():
    settings = linear(epochs=0, warmup_epochs=5.0)
    schedule = builders.schedule(settings, EPOCH_STEPS)
    assert schedule.get_config()["warmup_steps"] == 0


@pytest.mark.parametrize(
    ("boundaries", "epochs", "raises"),
    [
        ((30.0, 60.0, 80.0), 80, True),
        ((4.0, 60.0), 100, True),
        ((), 100, True),
        ((5.0, 99.0), 100, False),
        ((5.0, 99.0), 0, False),
    ],
)
def test_boundaries_that_never_decay_are_refused(boundaries, epochs, raises):
    fields = {"decay_boundaries": boundaries, "epochs": epochs}
    fields |= {"schedule": "step", "warmup_epochs": 5.0}
    if not raises:
        assert linear(**fields).decay_boundaries == boundaries
        return
    with pytest.raises(ValueError, match="^--decay_boundaries must be from"):
        linear(**fields)
