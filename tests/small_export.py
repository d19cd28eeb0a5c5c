"""A small model that is not trained, and its export of every signature.

The fixture `small_run` has the export.
"""

from __future__ import annotations

import functools

import numpy as np

from supcon_tf import models, serving
from supcon_tf.keras_2 import keras

SIZE = 16  # pixels
NAMES = ("ant", "bee, wild", "größer")
MAX_PIXELS = 2_000_000


@functools.cache
def encoder_and_classifier():
    """Both built; representations have 26 numbers, and not unit length."""
    keras.utils.set_random_seed(1)
    encoder = models.Encoder("vgg8", width=0.1, normalize=False)
    encoder.build((None, SIZE, SIZE, 3))
    classifier = keras.layers.Dense(len(NAMES), kernel_initializer="normal")
    classifier.build((None, encoder.representation_dim))
    return encoder, classifier


def prototypes():
    """Two axes of the space; the second class has no images."""
    first, second = np.eye(2, encoder_and_classifier()[0].representation_dim)
    return np.stack([first, 0 * first, second])


def write(run_dir):
    """Exports the model below a run directory, as tools/export.py does."""
    encoder, classifier = encoder_and_classifier()
    serving.export_saved_model(
        encoder,
        run_dir / "export" / "1",
        image_size=SIZE,
        class_names=NAMES,
        classifier=classifier,
        prototypes=prototypes(),
        top_k=2,
        max_pixels=MAX_PIXELS,
    )
