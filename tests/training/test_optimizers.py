"""SGD against its formula in NumPy, step by step."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from supcon_tf import training


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize("l2", [0.0, 0.01])
def test_sgd_is_the_formula(momentum, nesterov, l2):
    rng = np.random.default_rng(0)
    start = {"kernel": rng.normal(size=[3, 4]), "bias": rng.normal(size=[4])}
    variables = {
        name: tf.Variable(value, dtype=tf.float32)
        for name, value in start.items()
    }
    w = {name: value.copy() for name, value in start.items()}
    v = {name: np.zeros_like(value) for name, value in start.items()}
    optimizer = training.SGD(0.1, momentum, nesterov, l2=l2)
    for _ in range(5):
        gradients = {name: rng.normal(size=w[name].shape) for name in w}
        optimizer.apply_gradients(
            (tf.constant(gradients[name], tf.float32), variables[name])
            for name in w
        )
        for name in w:
            g = gradients[name]
            if name == "kernel":  # biases and batch norm do not decay
                g = g + l2 * w[name]
            v[name] = momentum * v[name] - 0.1 * g
            step = momentum * v[name] - 0.1 * g if nesterov else v[name]
            w[name] = w[name] + step
            np.testing.assert_allclose(
                variables[name], w[name], rtol=1e-5, atol=1e-6
            )
