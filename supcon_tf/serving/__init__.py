"""Serving: SavedModels for TF Serving."""

from supcon_tf.serving.saved_model import export_saved_model
from supcon_tf.serving.stage import export

__all__ = ["export", "export_saved_model"]
