"""Options, unit vectors, gradients, and steps on two replicas."""

import itertools

import numpy as np
import tensorflow as tf

from supcon_tf import losses

FORMULATIONS = ("out", "in")
DENOMINATORS = ("all", "one_positive", "only_negatives")


def combinations(**values):
    """Options of every combination of these values."""
    for combination in itertools.product(*values.values()):
        yield dict(zip(values, combination, strict=True))


def unit(shape, seed=0, dtype=np.float64):
    z = np.random.default_rng(seed).normal(size=shape)
    return (z / np.linalg.norm(z, axis=-1, keepdims=True)).astype(dtype)


def value_and_gradient(function, z, weights=1.0):
    """Losses `function(z)`, and the gradient of their weighted sum."""
    z = tf.convert_to_tensor(z)
    with tf.GradientTape() as tape:
        tape.watch(z)
        loss = function(z)
        total = tf.reduce_sum(tf.cast(weights, loss.dtype) * loss)
    return loss, tape.gradient(total, z)


def supcon_value_and_gradient(z, labels, **options):
    return value_and_gradient(
        lambda z: losses.supcon_loss(z, labels, **options), z
    )


def assert_replicas_equal_one_device(strategy, loss, parts, z, labels):
    """Asserts equal values and gradients of a loss on one and two replicas."""

    def step(z, labels):
        return value_and_gradient(lambda z: loss(labels, z), z)

    z = z.astype(np.float32)
    replica_results = on_two_replicas(strategy, step, parts, z, labels)
    for actual, expected in zip(replica_results, step(z, labels), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=2e-5, atol=2e-6)


def on_two_replicas(strategy, step, parts, *arrays):
    """The results of a step, replica after replica.

    `parts` are the rows of `arrays` that each replica gets.
    """

    def distributed(array):
        return strategy.experimental_distribute_values_from_function(
            lambda c: tf.constant(array[parts[c.replica_id_in_sync_group]])
        )

    # One function for all shapes, as with a partial last batch in fit.
    run = tf.function(
        lambda *inputs: strategy.run(step, inputs), reduce_retracing=True
    )
    results = run(*map(distributed, arrays))
    return [
        np.concatenate(
            [r.numpy() for r in strategy.experimental_local_results(result)]
        )
        for result in results
    ]
