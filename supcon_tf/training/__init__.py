"""Training: the stages, their optimizers and schedules, and trained runs."""

from supcon_tf.run_files import RunDirectory
from supcon_tf.training.optimizers import LARS, SGD, Adam, AdamW, RMSProp
from supcon_tf.training.representations import represent
from supcon_tf.training.runs import Run, load_encoder
from supcon_tf.training.schedules import (
    Warmup,
    WarmupCosine,
    WarmupExponential,
    WarmupLinear,
    WarmupStep,
    scaled_learning_rate,
)
from supcon_tf.training.stages import pretrain, train_linear
from supcon_tf.training.texts import finetune_text
