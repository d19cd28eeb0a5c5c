"""Fine-tuning: from a pretrained network to a classifier of a user's images."""

from supcon_tf.finetuning.images import finetune_images, finetune_table
