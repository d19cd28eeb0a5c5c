"""Contrastive losses: the formula as a function, and its Keras class."""

from supcon_tf import tracing  # noqa: F401
from supcon_tf.losses.baselines import NPairsLoss, SimCLRLoss, TripletLoss
from supcon_tf.losses.classification import CrossEntropyLoss, MaxMarginLoss
from supcon_tf.losses.diagnostics import (
    Alignment,
    AnchorsWithoutPositives,
    ContrastiveAccuracy,
    MeanCosine,
    PositivesPerAnchor,
    Uniformity,
    diagnostics,
)
from supcon_tf.losses.queue import ProjectionQueue
from supcon_tf.losses.supcon import SupConLoss, chance_loss, supcon_loss
from supcon_tf.losses.tiled import tiled_supcon_loss

__all__ = ["Alignment", "AnchorsWithoutPositives", "ContrastiveAccuracy"]
__all__ += ["CrossEntropyLoss", "MaxMarginLoss", "MeanCosine", "NPairsLoss"]
__all__ += ["PositivesPerAnchor", "ProjectionQueue", "SimCLRLoss", "SupConLoss"]
__all__ += ["TripletLoss", "Uniformity", "chance_loss", "diagnostics"]
__all__ += ["supcon_loss", "tiled_supcon_loss"]
