"""Training: the stages, and what they are made of."""

from supcon_tf.training.optimizers import SGD
from supcon_tf.training.representations import represent
from supcon_tf.training.run_directory import RunDirectory
from supcon_tf.training.schedules import WarmupCosine, scaled_learning_rate
from supcon_tf.training.stages import pretrain, train_linear

__all__ = [
    "SGD",
    "RunDirectory",
    "WarmupCosine",
    "pretrain",
    "represent",
    "scaled_learning_rate",
    "train_linear",
]
