"""Serving: SavedModels for TF Serving."""

from supcon_tf.serving.export import export
from supcon_tf.serving.model import export_saved_model
