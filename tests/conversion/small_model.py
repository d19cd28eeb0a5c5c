"""A small model that tells images apart, and such images."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from supcon_tf import models
from supcon_tf.conversion import graph

SIDE = 16  # pixels


def images(count: int, seed: int) -> np.ndarray:
    """Noise around a colour that is another in every image."""
    rng = np.random.default_rng(seed)
    colors = rng.uniform(0, 255, (count, 1, 1, 3))
    pixels = rng.normal(colors, 40, (count, SIDE, SIDE, 3))
    return pixels.clip(0, 255).astype(np.uint8)


def image_model() -> graph.ImageModel:
    """Strided convolutions, residuals, and batch norms that do something."""
    encoder = models.Encoder("resnet18", width=0.05)
    classifier = models.LinearClassifier(encoder, 5)
    classifier.build((None, SIDE, SIDE, 3))
    rng = np.random.default_rng(2)
    for variable in encoder.variables:
        kind = variable.name.rpartition("/")[2].partition(":")[0]
        shape = variable.shape
        variable.assign(
            {
                "kernel": rng.normal(0, np.prod(shape[:-1]) ** -0.5, shape),
                "gamma": rng.uniform(0.5, 1.5, shape),
                "beta": rng.uniform(-0.3, 0.3, shape),
                "moving_mean": rng.uniform(-0.3, 0.3, shape),
                "moving_variance": rng.uniform(0.5, 1.5, shape),
            }[kind]
        )
    kernel, bias = classifier.classifier.weights
    # Logits of these images around 0, one deviation apart.
    unit = encoder(images(12, seed=0), training=False)
    kernel.assign(rng.normal(0, 1, kernel.shape))
    logits = tf.matmul(unit, kernel)
    kernel.assign(kernel / tf.math.reduce_std(logits, axis=0))
    bias.assign(-tf.reduce_mean(tf.matmul(unit, kernel), axis=0))
    return graph.ImageModel(encoder, SIDE, classifier.classifier)
