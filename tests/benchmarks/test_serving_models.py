"""What is served, and the plain model of Keras; ours is in test_serving.py."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from supcon_tf import config
from supcon_tf.benchmarks import serving_models, serving_point


def test_every_implementation_of_the_settings_is_served():
    assert tuple(serving_models.SERVED) == config.SERVING_IMPLEMENTATIONS


def test_keras_is_saved_plain_and_asked_by_its_one_input(tmp_path, monkeypatch):
    asked = []

    def make(**arguments):
        asked.append(arguments)
        layers = [tf.keras.layers.GlobalMaxPooling2D()]
        return tf.keras.Sequential([tf.keras.Input([2, 2, 3]), *layers])

    monkeypatch.setattr(tf.keras.applications, "ResNet50", make)
    serving_models.make_keras(tmp_path / "keras")
    assert asked == [{"weights": None, "classes": 1000}]
    served = serving_models.SERVED["keras_resnet50"]
    predict = serving_point.load(tmp_path / "keras", 1)[served.signature]
    (answer,) = predict(np.full([2, 2, 2, 3], 0.5, np.float32)).values()
    np.testing.assert_array_equal(answer, np.full([2, 3], 0.5))
