"""From settings to models, their parts in a checkpoint, and losses."""

from __future__ import annotations

import pytest
import tensorflow as tf

from supcon_tf import losses, models
from supcon_tf.training import builders


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
