"""From settings to models, their parts in a checkpoint, and losses."""

from __future__ import annotations

import pytest
import tensorflow as tf

from supcon_tf import config, losses, models
from supcon_tf.training import builders


def chosen(**overrides) -> config.PretrainSettings:
    return config.PretrainSettings(
        run_dir="run",
        **{
            "image_size": 8,
            "architecture": "vgg8",
            "width": 0.05,
            "hidden_dims": (8,),
            "projection_dim": 4,
            "batch_size": 16,
            **overrides,
        },
    )


@pytest.mark.parametrize(
    ("overrides", "weight"),
    [
        ({"online_classifier": True}, None),
        ({"objective": "supcon+ce", "classifier_weight": 0.2}, 0.2),
        ({"objective": "triplet+ce"}, 0.5),
    ],
)
def test_a_classifier_beside_the_projections(overrides, weight) -> None:
    model = builders.model(chosen(**overrides), 7)
    assert isinstance(model, models.SupConModel)
    assert model.classifier.kernel.shape == (26, 7)
    assert model.classifier_weight == weight
    assert builders.checkpointed(model) == {
        "encoder": model.encoder,
        "projection_head": model.projection_head,
        "classifier": model.classifier,
    }


def test_projections_alone() -> None:
    model = builders.model(chosen(), 7)
    assert model.classifier is model.classifier_weight is None
    assert model.gradient_cache_chunks == 1
    assert set(builders.checkpointed(model)) == {"encoder", "projection_head"}


def test_logits_alone() -> None:
    model = builders.model(chosen(objective="max_margin"), 7)
    assert isinstance(model, models.ClassifierModel)
    assert model.cosine
    assert set(builders.checkpointed(model)) == {"encoder", "classifier"}


def test_chunks_take_their_own_batch_norm(mirrored_strategy) -> None:
    """A loop cannot synchronize: the default flags must work on replicas."""
    for chunks in (1, 4):
        settings = chosen(
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
def test_losses(objective: str, expected: type) -> None:
    assert type(builders.loss(chosen(objective=objective))) is expected


def test_cross_entropy_smooths_labels() -> None:
    loss = builders.loss(chosen(objective="ce", label_smoothing=0.1))
    assert loss.label_smoothing == 0.1
    assert builders.loss(chosen(objective="ce")).label_smoothing == 0


@pytest.mark.parametrize(
    ("overrides", "has"),
    [
        ({"objective": "ce"}, True),
        ({"objective": "max_margin"}, True),
        ({"objective": "supcon+ce"}, True),
        ({"online_classifier": True}, True),
        ({}, False),
    ],
)
def test_what_has_a_classifier_keeps_it(overrides, has) -> None:
    settings = chosen(**overrides)
    assert builders.has_classifier(settings) == has
    parts = builders.checkpointed(builders.model(settings, 7))
    assert ("classifier" in parts) == has
