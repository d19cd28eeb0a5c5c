"""Encoders, projection head, linear classifier and the model of stage 1."""

from __future__ import annotations

from supcon_tf.models.contrastive import SupConModel
from supcon_tf.models.encoder import Encoder
from supcon_tf.models.heads import LinearClassifier, ProjectionHead

__all__ = ["Encoder", "LinearClassifier", "ProjectionHead", "SupConModel"]
