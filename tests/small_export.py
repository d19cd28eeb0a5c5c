"""A small model that is not trained, and its export."""

from __future__ import annotations

import functools
import pathlib
import tempfile

import numpy as np
import tensorflow as tf

from supcon_tf import models, serving

SIZE = 16  # pixels
NAMES = ("zero, or so", "größer", "two")
_FOLDER = tempfile.TemporaryDirectory()  # until the process ends


@functools.cache
def encoder_and_classifier():
    """Both built; representations have 26 numbers."""
    encoder = models.Encoder("vgg8", width=0.05)
    encoder.build((None, SIZE, SIZE, 3))
    classifier = tf.keras.layers.Dense(len(NAMES))
    classifier.build((None, encoder.representation_dim))
    return encoder, classifier


@functools.cache
def run_dir():
    """A directory with an export of every signature, as tools/export.py does.

    The prototypes are the first axes of the representations.
    """
    run = pathlib.Path(_FOLDER.name) / "mine"
    encoder, classifier = encoder_and_classifier()
    serving.export_saved_model(
        encoder,
        run / "export" / "1",
        image_size=SIZE,
        class_names=NAMES,
        classifier=classifier,
        prototypes=np.eye(len(NAMES), encoder.representation_dim),
        top_k=2,
    )
    return run
