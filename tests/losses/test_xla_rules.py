"""XLA has no errors: an argument that breaks a rule makes its loss NaN."""

import numpy as np
import pytest
import tensorflow as tf

from supcon_tf import losses
from tests.losses import vectors

SETS = np.array([[1, 1, 0, 0], [0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 1]])
SHARES = np.array([[0.5, 0.5, 0, 0]] * 4, np.float32)


def several(name):
    loss = vectors.make_loss(name)
    return loss, np.eye(4)[[0, 0, 1, 2]], SETS


CASES = {
    **{
        name: lambda name=name: several(name)
        for name in ("streamed", "dense", "npairs", "triplet", "margin")
    },
    "function": lambda: (
        lambda labels, z: losses.supcon_loss(z, labels),
        np.eye(4)[[0, 0, 1, 2]],
        SHARES,
    ),
    "jaccard": lambda: (vectors.make_loss("jaccard"), SETS, 2 * SETS),
    "binary": lambda: (vectors.make_loss("binary"), SETS, 2 * SETS),
    "soft": lambda: (losses.SupConLoss(positives="soft"), SHARES, -SHARES),
    "cross-entropy": lambda: (
        vectors.make_loss("cross-entropy"),
        SHARES,
        2 * SHARES,
    ),
    **{
        name: lambda name=name: (
            vectors.make_loss(name),
            np.array([0, 0, 1, 3]),
            np.array([0, 0, 1, 4]),
        )
        for name in ("balanced", "paco", "hierarchy")
    },
    "rank": lambda: (
        vectors.make_loss("rank"),
        np.array([0.0, 1, 2, 3]),
        np.array([0.0, 1, 2, np.nan]),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_broken_rule_makes_nan(name):
    loss, labels, broken_labels = CASES[name]()
    z = vectors.unit([4, 2, 4], dtype=np.float32)

    def step(labels, z):
        return vectors.value_and_gradient(lambda z: loss(labels, z), z)

    compiled = tf.function(step, jit_compile=True, autograph=False)
    vectors.assert_close(compiled(labels, z), step(labels, z), 1e-4, 5e-6)
    value, _ = compiled(broken_labels, z)
    assert np.isnan(value).all()
    with pytest.raises(tf.errors.InvalidArgumentError):
        step(broken_labels, z)


def test_the_check_changes_no_bit():
    loss = losses.SupConLoss(reduction="none")
    z, ids = vectors.unit([6, 2, 4], dtype=np.float32), [0, 0, 1, 2, 1, 3]
    one_hot = vectors.value_and_gradient(lambda z: loss(np.eye(4)[ids], z), z)
    expected = vectors.value_and_gradient(lambda z: loss(ids, z), z)
    for actual, expected_tensor in zip(one_hot, expected, strict=True):
        np.testing.assert_array_equal(actual, expected_tensor)
