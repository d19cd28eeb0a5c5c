"""LAMB, an optimizer of the older kind, where the newer ones are expected."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from supcon_tf import training
from supcon_tf.training import lamb


def test_a_number_as_learning_rate_can_be_read_and_set():
    optimizer = lamb.LAMB(0.25)
    optimizer.build([])
    assert float(tf.convert_to_tensor(optimizer.learning_rate)) == 0.25
    optimizer.learning_rate = 0.5
    assert float(tf.convert_to_tensor(optimizer.learning_rate)) == 0.5


def test_lamb_trains_on_replicas_with_a_scaled_loss(
    mirrored_strategy, float32_policy
):
    images = np.random.default_rng(0).normal(size=[16, 3]).astype(np.float32)
    rates = training.WarmupCosine(0.1, 8, warmup_steps=2)
    weights = []
    for strategy, policy in (
        (tf.distribute.get_strategy(), "float32"),
        (mirrored_strategy, "mixed_float16"),
    ):
        tf.keras.utils.set_random_seed(0)
        tf.keras.mixed_precision.set_global_policy(policy)
        with strategy.scope():
            layer = tf.keras.layers.Dense(2, dtype="float32")
            model = tf.keras.Sequential([layer])
            model.build([None, 3])
            optimizer = lamb.LAMB(rates, weight_decay=0.1)
            if policy == "mixed_float16":
                optimizer = tf.keras.mixed_precision.LossScaleOptimizer(
                    optimizer, initial_scale=16.0
                )
            model.compile(optimizer, "mse")
        model.fit(images, images[:, :2], batch_size=8, epochs=2, verbose=0)
        weights.append(model.get_weights())
        rate = tf.convert_to_tensor(model.optimizer.learning_rate)
        assert float(rate) == pytest.approx(float(rates(3)))
        assert int(tf.convert_to_tensor(model.optimizer.iterations)) == 4
    for one, other in zip(*weights, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
