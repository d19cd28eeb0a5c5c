"""Serving: SavedModels for TF Serving."""

from supcon_tf.serving.export import export
from supcon_tf.serving.saved_model import export_saved_model
