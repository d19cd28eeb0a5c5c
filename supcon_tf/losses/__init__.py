"""Contrastive losses: the formula as a function, and its Keras class."""

from supcon_tf.losses.supcon import SupConLoss, chance_loss, supcon_loss

__all__ = ["SupConLoss", "chance_loss", "supcon_loss"]
