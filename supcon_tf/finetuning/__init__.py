"""Fine-tuning: from a pretrained network to a classifier of a user's images.

`finetune`, `load`, `Predictor` and `Prediction` are names of `supcon_tf` too.
"""

from supcon_tf.finetuning.images import finetune_images, finetune_table
from supcon_tf.finetuning.predictor import (
    Prediction,
    Predictor,
    finetune,
    load,
)
