"""Second derivatives and forward mode of the tiled loss are the dense ones."""

import numpy as np
import pytest
import tensorflow as tf

from supcon_tf import distribute, exceptions, losses
from tests.losses import vectors

LABELS = np.array([0, 0, 1, 1, 2, 0])
KERNEL = vectors.unit([4, 5], seed=3, dtype=np.float32)
DIRECTION = vectors.unit([4, 5], seed=4, dtype=np.float32)
CASES = {
    "streamed": {},
    "loop": {"temperature": 0.01},
    "windows": {"formulation": "in"},
    "strips": {"positives": "jaccard", "positives_cap": 2},
}


def squared_gradient(loss, labels, kernel):
    """|dL / dz|^2, as a gradient penalty has it, and its gradient."""
    with tf.GradientTape() as outer:
        outer.watch(kernel)
        z = vectors.unit([6, 2, 4], dtype=np.float32) @ kernel
        with tf.GradientTape() as inner:
            inner.watch(z)
            value = loss(labels, z)
        square = tf.reduce_sum(inner.gradient(value, z) ** 2)
    return square, outer.gradient(square, kernel)


def directional_derivative(loss, labels):
    """The derivative of the loss along `DIRECTION`, in forward mode."""
    kernel = tf.constant(KERNEL)
    with tf.autodiff.ForwardAccumulator(kernel, DIRECTION) as accumulator:
        value = loss(labels, vectors.unit([6, 2, 4]).astype("f") @ kernel)
    return accumulator.jvp(value)


def make_losses(options):
    return [
        losses.SupConLoss(implementation=implementation, **options)
        for implementation in ("tiled", "dense")
    ]


# In a graph, windows and the loop take half a minute to trace.
@pytest.mark.slow(
    but=[f"{name}-False" for name in CASES] + ["streamed-True", "strips-True"]
)
@pytest.mark.parametrize("in_function", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_second_derivatives(name, in_function):
    labels = np.eye(3)[LABELS] if name == "strips" else LABELS
    tiled, dense = make_losses(CASES[name])
    expected = squared_gradient(dense, labels, tf.Variable(KERNEL))
    kernel, call = tf.Variable(KERNEL), squared_gradient
    if in_function:
        call = tf.function(call, autograph=False)
    vectors.assert_close(call(tiled, labels, kernel), expected, rtol=1e-3)


def test_with_a_queue():
    queue = losses.ProjectionQueue(size=3, dim=5)
    queue.enqueue(vectors.unit([2, 5]), [0, 9])
    values = [
        squared_gradient(loss, LABELS, tf.Variable(KERNEL))
        for loss in make_losses({"queue": queue})
    ]
    vectors.assert_close(*values, rtol=1e-3)


def test_of_other_losses():
    """Eager and by finite differences: SimCLR's, and that of a hierarchy."""
    table = [[0, 0], [0, 1], [1, 2]]
    for loss in (
        losses.SimCLRLoss(),
        losses.HierarchicalSupConLoss(ancestors=table),
    ):
        _, gradient = squared_gradient(loss, LABELS, tf.constant(KERNEL))
        upper, lower = (
            squared_gradient(loss, LABELS, tf.constant(KERNEL + step))[0]
            for step in (0.01 * DIRECTION, -0.01 * DIRECTION)
        )
        expected = (upper - lower) / 0.02
        actual = tf.reduce_sum(gradient * DIRECTION)
        np.testing.assert_allclose(actual, expected, rtol=0.01)


@pytest.mark.parametrize("name", ["streamed", "loop", "windows"])
def test_forward_mode(name):
    tiled, dense = (
        directional_derivative(loss, LABELS)
        for loss in make_losses(CASES[name])
    )
    np.testing.assert_allclose(tiled, dense, rtol=1e-4)


@pytest.mark.slow(but=["False"])
@pytest.mark.parametrize("in_function", [False, True])
def test_a_constant_part_is_refused(in_function):
    """Hardness is a constant of the gradient, which the sums cannot keep."""
    loss, dense = make_losses({"hardness": 2.0})
    call = squared_gradient
    if in_function:
        call = tf.function(call, autograph=False)
    rule = '`implementation` must be "dense", on one replica'
    with pytest.raises(exceptions.InvalidValue, match=rule):
        call(loss, LABELS, tf.Variable(KERNEL))
    with pytest.raises(exceptions.InvalidValue, match=rule):
        directional_derivative(loss, LABELS)
    assert np.isfinite(directional_derivative(dense, LABELS))


def test_rows_of_other_replicas_are_refused(monkeypatch):
    monkeypatch.setattr(distribute, "replicas_in_sync", lambda: 2)
    monkeypatch.setattr(
        distribute,
        "gather_across_replicas",
        lambda *tensors: [tf.concat([t, t], axis=0) for t in tensors],
    )
    loss = losses.SupConLoss(reduction="none")
    with pytest.raises(exceptions.InvalidValue, match="on several replicas"):
        squared_gradient(loss, LABELS, tf.Variable(KERNEL))
