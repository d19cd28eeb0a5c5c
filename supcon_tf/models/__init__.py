"""Encoders, projection head, classifiers and the models of stage 1."""

from supcon_tf import keras_2, tracing
from supcon_tf.models.backbone import BackboneEncoder, as_encoder
from supcon_tf.models.classifier import ClassifierModel, LinearClassifier
from supcon_tf.models.contrastive import SupConModel
from supcon_tf.models.encoder import Encoder
from supcon_tf.models.freezing import (
    follow_statistics,
    freeze,
    learning_rate_shares,
    ordered_layers,
)
from supcon_tf.models.heads import NoProjectionHead, ProjectionHead
from supcon_tf.models.hub import load_preset
from supcon_tf.models.layers import ClassCentres
from supcon_tf.models.momentum import MomentumSupConModel
from supcon_tf.models.named import (
    check_named,
    imagenet_weights,
    named_encoder,
)
from supcon_tf.models.weights import finalize, load_weights, set_weights
