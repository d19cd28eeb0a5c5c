"""Losses are float32 and finite, of any batch in any precision."""

import numpy as np
import pytest
import tensorflow as tf

from tests.losses import vectors


@pytest.mark.parametrize("name", vectors.LOSSES)
def test_value_and_gradient_are_finite(name):
    """Also of collapsed and of long projections, at a temperature near 0."""
    loss = vectors.make_loss(name)
    if hasattr(loss, "temperature"):
        loss = vectors.make_loss(name, temperature=0.005)
    classes = [0, 1, 2, 3, 0]
    for labels, projections, dtype in (
        ([3], 100 * vectors.unit([1, 2, 4]), tf.float16),
        ([1] * 5, np.ones([5, 2, 4]), tf.bfloat16),
        (classes, np.zeros([5, 2, 4]), tf.float16),
        (classes, 100 * vectors.unit([5, 2, 4]), tf.float16),
    ):
        labels = vectors.labels_for(name, labels)
        value, gradient = vectors.value_and_gradient(
            lambda z, y=labels: loss(y, z), tf.cast(projections, dtype)
        )
        assert value.shape == (len(labels),) and value.dtype == tf.float32
        assert np.isfinite(value).all(), (labels, dtype)
        assert np.isfinite(tf.cast(gradient, tf.float32)).all(), (labels, dtype)


@pytest.mark.parametrize("name", vectors.LOSSES)
def test_half_precision_is_computed_in_float32(name):
    loss, labels = vectors.make_loss(name), vectors.labels_for(name)
    z = tf.cast(vectors.unit([7, 2, 4]), tf.float16)
    value = loss(labels, z)
    assert value.dtype == tf.float32
    np.testing.assert_array_equal(value, loss(labels, tf.cast(z, tf.float32)))
