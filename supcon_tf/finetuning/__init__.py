"""From a pretrained network to a classifier of own images."""

from supcon_tf.finetuning.images import finetune_images, finetune_table
