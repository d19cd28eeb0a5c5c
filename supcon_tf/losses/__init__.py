"""Contrastive losses: the formula as a function, and its Keras class."""

from supcon_tf import keras_2, tracing
from supcon_tf.losses.baselines import NPairsLoss, SimCLRLoss, TripletLoss
from supcon_tf.losses.classification import (
    BinaryCrossEntropyLoss,
    CrossEntropyLoss,
    MaxMarginLoss,
)
from supcon_tf.losses.diagnostics import (
    Alignment,
    AnchorsWithoutPositives,
    ContrastiveAccuracy,
    MeanCosine,
    PositivesPerAnchor,
    Uniformity,
    diagnostics,
)
from supcon_tf.losses.hierarchical import HierarchicalSupConLoss
from supcon_tf.losses.long_tail import BalancedSupConLoss, PaCoLoss
from supcon_tf.losses.queue import ProjectionQueue
from supcon_tf.losses.rank import RankNContrastLoss
from supcon_tf.losses.supcon import (
    SupConLoss,
    chance_loss,
    supcon_loss,
    tiled_supcon_loss,
)
