"""Learning rates against the formula in NumPy, step by step."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from supcon_tf import training


@pytest.mark.parametrize("warmup", [0, 1, 7, 40])
def test_warmup_cosine_is_the_formula(warmup):
    total, peak = 40, 0.8
    schedule = training.WarmupCosine(peak, total, warmup)
    for step in range(total + 5):
        if step < warmup:
            expected = peak * (step + 1) / warmup
        else:
            progress = min((step - warmup) / max(total - warmup, 1), 1)
            expected = peak * (1 + np.cos(np.pi * progress)) / 2
        assert float(schedule(step)) == pytest.approx(expected, abs=1e-7)


def test_schedule_never_wastes_a_step():
    schedule = training.WarmupCosine(1.0, 10, 3)
    assert all(float(schedule(step)) > 0 for step in range(10))
    assert float(schedule(2)) == 1.0
    assert float(schedule(10)) == 0.0


def test_schedule_round_trip_inside_an_optimizer():
    schedule = training.WarmupCosine(0.3, 100, 10)
    optimizer = training.SGD(schedule, momentum=0.8, nesterov=True, l2=1e-3)
    config = tf.keras.optimizers.serialize(optimizer)
    again = tf.keras.optimizers.deserialize(config)
    assert isinstance(again, training.SGD)
    assert again.get_config() == optimizer.get_config()
    assert isinstance(again._learning_rate, training.WarmupCosine)
    assert again.l2 == 1e-3 and again.momentum == 0.8 and again.nesterov


def test_bad_warmup_is_named():
    with pytest.raises(ValueError, match="`warmup_steps` must be between 0"):
        training.WarmupCosine(0.1, 10, 11)


@pytest.mark.parametrize(
    ("scaling", "expected"), [("linear", 4.0), ("sqrt", 2.0), ("none", 1.0)]
)
def test_scaled_learning_rate(scaling, expected):
    rate = training.scaled_learning_rate(0.5, 1024, scaling)
    assert rate == pytest.approx(0.5 * expected)
