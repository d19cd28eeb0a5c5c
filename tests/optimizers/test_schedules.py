"""Learning rates against the formula in NumPy, step by step."""

import math

import numpy as np
import pytest
import tensorflow as tf

from supcon_tf import training

PEAK = 0.8


def cosine(step, warmup, total=60):
    progress = min((step - warmup) / max(total - warmup, 1), 1)
    return (1 + math.cos(math.pi * progress)) / 2


def linear(step, warmup, total=60):
    return max(total - step, 0) / (total - warmup)


def exponential(step, warmup, every=7):
    share = 1.0
    for _ in range(warmup + every, step + 1, every):
        share *= 0.9
    return share


def boundaries(step, warmup):
    return 1.0 if step < 41 else 0.5 if step < 50 else 0.25


SCHEDULES = {
    cosine: lambda w: training.WarmupCosine(PEAK, 60, w),
    linear: lambda w: training.WarmupLinear(PEAK, 60, w),
    exponential: lambda w: training.WarmupExponential(PEAK, 7, 0.9, w),
    boundaries: lambda w: training.WarmupStep(PEAK, [41, 50], 0.5, w),
    lambda step, warmup: 1.0: lambda w: training.Warmup(PEAK, w),
}


@pytest.mark.parametrize("warmup", [0, 1, 7, 40])
@pytest.mark.parametrize(
    "decay",
    SCHEDULES,
    ids=["cosine", "linear", "exponential", "step", "constant"],
)
def test_the_schedule_is_its_formula(decay, warmup):
    schedule = SCHEDULES[decay](warmup)
    steps = np.arange(70)  # also beyond the last
    expected = [
        PEAK * ((t + 1) / warmup if t < warmup else decay(t, warmup))
        for t in steps
    ]
    rates = schedule(tf.constant(steps, tf.int64))
    assert rates.dtype == tf.float32
    np.testing.assert_allclose(rates, expected, rtol=2e-6, atol=1e-7)
    scalar = schedule(tf.Variable(45, dtype=tf.int64))
    assert float(scalar) == pytest.approx(float(rates[45]), abs=1e-7)
    assert schedule.get_config() == (
        type(schedule).from_config(schedule.get_config()).get_config()
    )


def test_the_staircase_is_exact_under_xla():
    # 41 * (1 / 41) is below 1 in float32.
    schedule = training.WarmupExponential(1.0, 41, 0.5)
    rates = tf.function(schedule, jit_compile=True)
    steps = tf.range(41 * 9, dtype=tf.int64)
    np.testing.assert_array_equal(
        rates(steps), np.repeat(0.5 ** np.arange(9), 41)
    )


def test_schedule_never_wastes_a_step():
    schedule = training.WarmupCosine(1.0, 10, 3)
    assert all(float(schedule(step)) > 0 for step in range(10))
    assert float(schedule(2)) == 1.0
    assert float(schedule(10)) == 0.0


def test_bad_steps_are_named():
    for kind, arguments, message in (
        (training.WarmupCosine, (10, 11), "`warmup_steps` must be between 0"),
        (training.Warmup, (-1,), "`warmup_steps` must be at least 0"),
        (training.WarmupExponential, (0, 0.5), "`decay_steps` must be at leas"),
        (training.WarmupCosine, (10, 2.5), "`warmup_steps` must be an integer"),
        (training.WarmupExponential, (1.5, 0.5), "`decay_steps` must be an in"),
        (training.WarmupStep, ([2, 4.5], 0.5), "`boundaries` must be an int"),
    ):
        with pytest.raises(ValueError, match=message):
            kind(0.1, *arguments)


def test_scaled_learning_rate():
    for scaling, expected in (("linear", 2.0), ("sqrt", 1.0), ("none", 0.5)):
        rate = training.scaled_learning_rate(0.5, 1024, scaling)
        assert rate == pytest.approx(expected)
    with pytest.raises(ValueError, match="`scaling` must be one of linear, sq"):
        training.scaled_learning_rate(0.5, 1024, "log")
