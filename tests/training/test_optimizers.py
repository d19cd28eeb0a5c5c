"""Every optimizer against its formula in NumPy, step by step."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from supcon_tf import training
from supcon_tf.training import lamb

# A schedule at work: warm-up, peak, two decays.
SCHEDULE = training.WarmupExponential(0.1, 2, 0.5, warmup_steps=2)
RATES = [0.05, 0.1, 0.1, 0.1, 0.05, 0.05, 0.025]


# Formulas: the next w from w, gradient g, memory, learning rate, step t = 1...
# and the optimizer's options; `kernel` is 0 for tensors of rank 1.


def sgd(w, g, memory, rate, t, kernel, *, momentum, nesterov, l2):
    g = g + kernel * l2 * w
    v = memory["v"] = momentum * memory.get("v", 0) - rate * g
    return w + (momentum * v - rate * g if nesterov else v)


def lars(w, g, memory, rate, t, kernel, *, momentum, trust_coefficient, l2):
    g = g + kernel * l2 * w
    if kernel:
        rate *= trust_coefficient * np.linalg.norm(w) / np.linalg.norm(g)
    v = memory["v"] = momentum * memory.get("v", 0) + rate * g
    return w - v


def rmsprop(w, g, memory, rate, t, kernel, *, rho, momentum, epsilon, l2):
    g = g + kernel * l2 * w
    s = memory["s"] = rho * memory.get("s", 0) + (1 - rho) * g**2
    v = momentum * memory.get("v", 0) + rate * g / np.sqrt(s + epsilon)
    memory["v"] = v
    return w - v


def adam(w, g, memory, rate, t, kernel, *, epsilon, l2):
    g = g + kernel * l2 * w
    m = memory["m"] = 0.9 * memory.get("m", 0) + 0.1 * g
    s = memory["s"] = 0.999 * memory.get("s", 0) + 0.001 * g**2
    rate *= np.sqrt(1 - 0.999**t) / (1 - 0.9**t)
    return w - rate * m / (np.sqrt(s) + epsilon)


def adamw(w, g, memory, rate, t, kernel, *, epsilon, weight_decay):
    w = w - kernel * rate * weight_decay * w
    return adam(w, g, memory, rate, t, kernel, epsilon=epsilon, l2=0)


def lamb_step(w, g, memory, rate, t, kernel, *, epsilon, weight_decay):
    m = memory["m"] = 0.9 * memory.get("m", 0) + 0.1 * g
    s = memory["s"] = 0.999 * memory.get("s", 0) + 0.001 * g**2
    u = m / (1 - 0.9**t) / (np.sqrt(s / (1 - 0.999**t)) + epsilon)
    u = u + kernel * weight_decay * w
    if kernel:
        rate *= np.linalg.norm(w) / np.linalg.norm(u)
    return w - rate * u


CASES = [
    *[
        (training.SGD, sgd, dict(momentum=momentum, nesterov=nesterov, l2=l2))
        for momentum in (0.0, 0.9)
        for nesterov in (False, True)
        for l2 in (0.0, 0.1)
    ],
    (training.LARS, lars, dict(momentum=0.9, trust_coefficient=0.5, l2=0.1)),
    (training.LARS, lars, dict(momentum=0.0, trust_coefficient=0.5, l2=0.0)),
    (
        training.RMSProp,
        rmsprop,
        dict(rho=0.9, momentum=0.8, epsilon=1e-3, l2=0.1),
    ),
    (training.Adam, adam, dict(epsilon=1e-2, l2=0.1)),
    (training.AdamW, adamw, dict(epsilon=1e-2, weight_decay=0.1)),
    (lamb.LAMB, lamb_step, dict(epsilon=1e-2, weight_decay=0.1)),
]
OF_EACH = list({case[0]: case for case in reversed(CASES)}.values())


@pytest.mark.parametrize(("optimizer", "formula", "options"), CASES)
def test_the_optimizer_is_its_formula(optimizer, formula, options):
    rng = np.random.default_rng(0)
    expected = [rng.normal(size=[3, 4]), rng.normal(size=[4])]
    variables = [tf.Variable(w, dtype=tf.float32) for w in expected]
    memories = [{}, {}]
    optimizer = optimizer(SCHEDULE, **options)
    for t, rate in enumerate(RATES, 1):
        gradients = [rng.normal(size=w.shape) for w in expected]
        optimizer.apply_gradients(
            (tf.constant(g, tf.float32), variable)
            for g, variable in zip(gradients, variables, strict=True)
        )
        assert float(optimizer.learning_rate) == pytest.approx(rate)
        for i, g in enumerate(gradients):
            kernel = float(g.ndim > 1)
            expected[i] = formula(
                expected[i], g, memories[i], rate, t, kernel, **options
            )
            np.testing.assert_allclose(
                variables[i], expected[i], rtol=1e-5, atol=1e-6
            )


@pytest.mark.parametrize(("optimizer", "formula", "options"), OF_EACH)
def test_serialisation_keeps_every_number(optimizer, formula, options):
    before = optimizer(SCHEDULE, **options)
    config = tf.keras.optimizers.serialize(before)
    after = tf.keras.optimizers.deserialize(config)
    assert type(after) is optimizer
    assert after.get_config() == before.get_config()
    for name, value in options.items():
        assert after.get_config()[name] == value
    schedule = after.get_config()["learning_rate"]
    assert schedule["config"] == SCHEDULE.get_config()


def test_adamw_still_excludes_by_keras_lists():
    variable = tf.Variable(np.ones([2, 2]), dtype=tf.float32)
    optimizer = training.AdamW(0.1, weight_decay=0.5)
    optimizer.exclude_from_weight_decay([variable])
    optimizer.apply_gradients([(tf.zeros([2, 2]), variable)])
    np.testing.assert_array_equal(variable, np.ones([2, 2]))
