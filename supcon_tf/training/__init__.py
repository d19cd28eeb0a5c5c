"""Training: the stages, and what they are made of."""

from supcon_tf.training.lars import LARS
from supcon_tf.training.optimizers import SGD, Adam, AdamW, RMSProp
from supcon_tf.training.representations import represent
from supcon_tf.training.restoring import load_encoder
from supcon_tf.training.run_directory import RunDirectory
from supcon_tf.training.schedules import (
    Warmup,
    WarmupCosine,
    WarmupExponential,
    WarmupStep,
    scaled_learning_rate,
)
from supcon_tf.training.stages import pretrain, train_linear

__all__ = [
    "LARS",
    "SGD",
    "Adam",
    "AdamW",
    "RMSProp",
    "RunDirectory",
    "Warmup",
    "WarmupCosine",
    "WarmupExponential",
    "WarmupStep",
    "load_encoder",
    "pretrain",
    "represent",
    "scaled_learning_rate",
    "train_linear",
]
