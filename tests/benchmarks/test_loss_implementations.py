"""Implementations and the oracle they are compared with."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from supcon_tf import losses
from supcon_tf.benchmarks import loss_implementations


def make_problem(rows=24, views=2, classes=4):
    return loss_implementations.make_problem(
        rows, views, 8, classes, seed=3, temperature=0.2, threads=2
    )


def test_problems_are_unit_vectors_and_repeat():
    problem, again = make_problem(), make_problem()
    assert problem.projections.shape == (12, 2, 8)
    norms = np.linalg.norm(problem.projections, axis=2)
    np.testing.assert_allclose(norms, 1, rtol=1e-6)
    np.testing.assert_array_equal(problem.projections, again.projections)
    np.testing.assert_array_equal(problem.labels, again.labels)


# With one view and many classes some anchors have no positives.
@pytest.mark.parametrize(("views", "classes"), [(2, 4), (3, 2), (1, 30)])
def test_the_oracle_is_the_gradient_of_the_loss(views, classes):
    problem = make_problem(views=views, classes=classes)
    z = tf.constant(problem.projections)
    with tf.GradientTape() as tape:
        tape.watch(z)
        loss = tf.reduce_mean(
            losses.supcon_loss(z, problem.labels, temperature=0.2)
        )
    oracle = loss_implementations.oracle_gradient(problem)
    np.testing.assert_allclose(tape.gradient(loss, z), oracle, atol=1e-7)


def test_the_floor_runs_all_products():
    """Without sums of its own its result is still E Z, E symmetric."""
    problem = make_problem(rows=30)
    z = problem.projections.reshape(30, 8)
    # Threads are set once per process; the function alone is tested here.
    step = loss_implementations.floor_step(z)
    np.testing.assert_allclose(step()[1], np.exp(z @ z.T) @ z, rtol=1e-4)
