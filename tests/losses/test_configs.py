"""Losses and metrics are rebuilt from their configurations."""

import inspect

import pytest

from supcon_tf import losses
from supcon_tf.keras_2 import keras
from tests.losses import vectors

# What no constructor has by default, as far as it has such an argument.
OPTIONS = {
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
# Losses of centres and of a hierarchy are rebuilt in their files.
NAMES = (
    "SupConLoss SimCLRLoss NPairsLoss TripletLoss RankNContrastLoss "
    "CrossEntropyLoss MaxMarginLoss ContrastiveAccuracy Alignment Uniformity "
    "MeanCosine PositivesPerAnchor AnchorsWithoutPositives"
).split()


@pytest.mark.parametrize("name", NAMES)
def test_configuration_holds_every_constructor_argument(name):
    public_class = getattr(losses, name)
    arguments = set(inspect.signature(public_class).parameters)
    options = {
        name: value for name, value in OPTIONS.items() if name in arguments
    }
    default, configured = public_class(), public_class(**options)
    if name == "SupConLoss":  # a queue and positives have other tests
        assert arguments <= {*OPTIONS, "queue", "positives"}
    assert arguments == set(default.get_config())
    assert configured.get_config().items() >= options.items()
    assert not options.items() & default.get_config().items()
    config = keras.saving.serialize_keras_object(configured)
    rebuilt = keras.saving.deserialize_keras_object(config)
    assert type(rebuilt) is public_class
    assert rebuilt.get_config() == configured.get_config()
    if isinstance(configured, keras.losses.Loss):
        z = vectors.unit([7, 2, 4])
        assert rebuilt(vectors.LABELS, z) == configured(vectors.LABELS, z)
