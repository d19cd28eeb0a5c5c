"""Losses, metrics, views and `Backbone` for models of Keras 3.

The losses and metrics are classes of Keras 3 that wrap those of
`supcon_tf.losses`, with the same names and arguments. TensorFlow 2.16 and newer
have Keras 3.

Raises:
  ImportError: Keras 2 alone is installed.
  ValueError: Keras 3 computes with another package than TensorFlow.
"""

from supcon_tf.keras_3.layers import ClassCentres
from supcon_tf.keras_3.losses import (
    Alignment,
    AnchorsWithoutPositives,
    BalancedSupConLoss,
    BinaryCrossEntropyLoss,
    ContrastiveAccuracy,
    CrossEntropyLoss,
    HierarchicalSupConLoss,
    MaxMarginLoss,
    MeanCosine,
    NPairsLoss,
    PaCoLoss,
    PositivesPerAnchor,
    RankNContrastLoss,
    SimCLRLoss,
    SupConLoss,
    TripletLoss,
    Uniformity,
    diagnostics,
)
from supcon_tf.keras_3.views import Views
from supcon_tf.models.of_keras_3 import Backbone
