"""Training: the stages, their optimizers and schedules, and trained runs."""

import sys

from supcon_tf import optimizers
from supcon_tf.optimizers import (
    LARS,
    SGD,
    Adam,
    AdamW,
    RMSProp,
    Warmup,
    WarmupCosine,
    WarmupExponential,
    WarmupLinear,
    WarmupStep,
    scaled_learning_rate,
)
from supcon_tf.run_files import RunDirectory
from supcon_tf.training.representations import represent
from supcon_tf.training.runs import Run, load_encoder
from supcon_tf.training.stages import pretrain, train_linear
from supcon_tf.training.texts import finetune_text

# A model that Keras saved names the module of its optimizer; these two have
# become the room `optimizers`.
for _module in ("optimizers", "schedules"):
    sys.modules[f"{__name__}.{_module}"] = optimizers
