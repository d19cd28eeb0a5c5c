"""Optimizers and learning-rate schedules, which `training` exports too.

Decay and layer-wise adaptation leave out batch norm and biases, by their rank.
LAMB is in `optimizers.lamb`: it may come from TensorFlow Addons.
"""

from supcon_tf.optimizers.lars import LARS
from supcon_tf.optimizers.schedules import (
    Warmup,
    WarmupCosine,
    WarmupExponential,
    WarmupLinear,
    WarmupStep,
    scaled_learning_rate,
)
from supcon_tf.optimizers.weight_decay import SGD, Adam, AdamW, RMSProp
