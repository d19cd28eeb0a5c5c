"""LARS at its corners, on replicas, with scaled losses, compiled, restored."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from supcon_tf import training

OPTIONS = dict(momentum=0.9, trust_coefficient=0.01, l2=0.1)


def make_optimizer():
    schedule = training.WarmupCosine(0.5, 8, warmup_steps=2)
    return training.LARS(schedule, **OPTIONS)


def draw(rng):
    """A kernel and a bias."""
    return [rng.normal(size=shape).astype("float32") for shape in ([3, 4], [4])]


def make_variables():
    return [tf.Variable(values) for values in draw(np.random.default_rng(0))]


def make_gradients(steps):
    rng = np.random.default_rng(1)
    return [[tf.constant(values) for values in draw(rng)] for _ in range(steps)]


def apply(optimizer, gradients, variables):
    optimizer.apply_gradients(zip(gradients, variables, strict=True))


@pytest.fixture(scope="module")
def five_steps():
    """Weights after five plain steps, those that test_optimizers proves."""
    optimizer, variables = make_optimizer(), make_variables()
    for gradients in make_gradients(5):
        apply(optimizer, gradients, variables)
    return [variable.numpy() for variable in variables]


def assert_equal(variables, expected):
    for variable, values in zip(variables, expected, strict=True):
        np.testing.assert_allclose(variable, values, rtol=1e-6, atol=1e-7)


def first_step(weights, gradients, **options):
    variable = tf.Variable(weights)
    optimizer = training.LARS(0.5, **{**OPTIONS, "l2": 0.0, **options})
    optimizer.apply_gradients([(tf.constant(gradients), variable)])
    return variable.numpy() - weights


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_the_first_step_has_the_length_of_the_weights(scale):
    rng = np.random.default_rng(0)
    w, g = rng.normal(size=[2, 5, 3]).astype(np.float32)
    length = np.linalg.norm(first_step(w, scale * g))
    np.testing.assert_allclose(
        length, 0.5 * 0.01 * np.linalg.norm(w), rtol=1e-5
    )


def test_trust_is_1_where_a_norm_is_0():
    ones, zeros = np.ones([2, 2], np.float32), np.zeros([2, 2], np.float32)
    np.testing.assert_allclose(first_step(zeros, ones), -0.5 * ones)
    np.testing.assert_array_equal(first_step(ones, zeros), zeros)
    np.testing.assert_array_equal(first_step(zeros, zeros), zeros)


def test_norms_are_float32():
    # Squares of 300 overflow float16; 300 of them do in any case.
    w = np.full([300, 2], 300.0, np.float16)
    step = first_step(w, np.ones_like(w))
    np.testing.assert_allclose(step, -1.5, rtol=0.1)


def test_replicas_take_the_step_of_one_device(mirrored_strategy, five_steps):
    with mirrored_strategy.scope():
        optimizer, variables = make_optimizer(), make_variables()

    @tf.function
    def step(gradients):
        def replica():
            # Keras adds up the gradients of the replicas.
            own = tf.distribute.get_replica_context().replica_id_in_sync_group
            share = tf.cast(own, tf.float32) * 0.5 + 0.25  # 0.25 + 0.75
            apply(optimizer, [share * g for g in gradients], variables)

        mirrored_strategy.run(replica)

    for gradients in make_gradients(5):
        step(gradients)
    for variable, expected in zip(variables, five_steps, strict=True):
        for replica in mirrored_strategy.experimental_local_results(variable):
            assert_equal([replica], [expected])


def test_a_scaled_loss_takes_the_same_steps(five_steps):
    optimizer = tf.keras.mixed_precision.LossScaleOptimizer(
        make_optimizer(), dynamic=True, initial_scale=256.0
    )
    variables = make_variables()
    for gradients in make_gradients(5):
        scaled = optimizer.get_unscaled_gradients([256 * g for g in gradients])
        apply(optimizer, scaled, variables)
    assert_equal(variables, five_steps)
    infinite = [np.inf * g for g in gradients]
    apply(optimizer, optimizer.get_unscaled_gradients(infinite), variables)
    assert_equal(variables, five_steps)


def test_xla_takes_the_same_steps(five_steps):
    optimizer, variables = make_optimizer(), make_variables()
    optimizer.build(variables)

    @tf.function(jit_compile=True)
    def step(gradients):
        apply(optimizer, gradients, variables)

    for gradients in make_gradients(5):
        step(gradients)
    assert_equal(variables, five_steps)


def test_a_checkpoint_continues(tmp_path, five_steps):
    gradients = make_gradients(5)
    optimizer, variables = make_optimizer(), make_variables()
    for step in gradients[:3]:
        apply(optimizer, step, variables)
    checkpoint = tf.train.Checkpoint(optimizer=optimizer, variables=variables)
    assert len(optimizer.variables) == 3  # iteration, velocities
    path = checkpoint.save(str(tmp_path / "checkpoint"))
    optimizer = make_optimizer()
    variables = [tf.Variable(tf.zeros_like(v)) for v in variables]
    optimizer.build(variables)
    status = tf.train.Checkpoint(optimizer=optimizer, variables=variables)
    status.restore(path).assert_existing_objects_matched()
    for step in gradients[3:]:
        apply(optimizer, step, variables)
    for variable, expected in zip(variables, five_steps, strict=True):
        np.testing.assert_array_equal(variable, expected)
