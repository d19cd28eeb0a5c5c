"""Losses and metrics are rebuilt from their configurations."""

import inspect

import numpy as np
import pytest

from supcon_tf import losses
from supcon_tf.keras_2 import keras
from tests.losses import vectors

LABELS = np.array([4, 1, 4, 4, 9, 1])
# What no constructor has by default, as far as it has such an argument.
OTHER = {
    "temperature": 0.2,
    "formulation": "in",
    "denominator": "one_positive",
    "anchor_views": "first",
    "positives_cap": 5,
    "scale_by_temperature": False,
    "normalize": False,
    "cross_replica": False,
    "implementation": "dense",
    "margin": 0.7,
    "hardness": 0.5,
    "spread": 0.25,
    "unsupervised_classes": (4,),
    "mining": "hard",
    "label_smoothing": 0.1,
    "scale": 5.0,
    "anchors": 3,
    "reduction": "sum",
    "name": "mine",
}


@pytest.mark.parametrize(
    "kind",
    [
        losses.SupConLoss,
        losses.SimCLRLoss,
        losses.NPairsLoss,
        losses.TripletLoss,
        losses.RankNContrastLoss,
        losses.CrossEntropyLoss,
        losses.MaxMarginLoss,
        losses.ContrastiveAccuracy,
        losses.Alignment,
        losses.Uniformity,
        losses.MeanCosine,
        losses.PositivesPerAnchor,
        losses.AnchorsWithoutPositives,
    ],
)
def test_configuration_holds_every_constructor_argument(kind):
    arguments = inspect.signature(kind).parameters
    default = kind()
    options = {
        name: value for name, value in OTHER.items() if name in arguments
    }
    if kind is losses.SupConLoss:  # a queue and positives have other tests
        assert {*arguments} <= {*OTHER, "queue", "positives"}
    configured = kind(**options)
    assert set(arguments) == set(default.get_config())
    assert configured.get_config().items() >= options.items()
    assert not options.items() & default.get_config().items()
    config = keras.saving.serialize_keras_object(configured)
    rebuilt = keras.saving.deserialize_keras_object(config)
    assert (
        type(rebuilt) is kind
        and rebuilt.get_config() == configured.get_config()
    )
    if isinstance(configured, keras.losses.Loss):
        z = vectors.unit([6, 2, 10], dtype=np.float32)
        assert rebuilt(LABELS, z) == configured(LABELS, z)
