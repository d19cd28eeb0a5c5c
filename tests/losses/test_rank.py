"""Rank-N-Contrast against loops over its equation."""

import numpy as np
import pytest
import tensorflow as tf

from supcon_tf import losses
from supcon_tf.keras_2 import keras
from supcon_tf.losses import rank
from tests import reference
from tests.losses import vectors

RNG = np.random.default_rng(0)
Z = 3 * RNG.normal(size=[5, 3, 2])  # of any length
LABELS = {
    "all different": np.array([3.5, -1.0, 0.25, 8.0, 90.0]),
    "ties": np.array([1.0, 2.0, 3.0, 2.0, 1.0]),
    "on both sides": np.array([-2.0, 2.0, 0.0, -1.0, 1.0]),
    "all the same": np.full(5, 0.5),
    "integers": np.array([5, 60, 7, 7, 18], np.uint8),
    "beyond float32": 2**40 + np.array([0, 1, 3, 3, 7]),
    "several numbers": RNG.integers(0, 3, size=[5, 2]).astype(float),
}


def per_sample(labels, z, temperature=2.0, **options):
    loss = losses.RankNContrastLoss(temperature, reduction="none", **options)
    return loss(labels, z)


def assert_equals_the_loops(labels, z, temperature=2.0):
    weights = np.linspace(0.5, 2, len(z))
    value, gradient = vectors.value_and_gradient(
        lambda z: per_sample(labels, z, temperature), z, weights
    )

    def compute_expected(z):
        return reference.rank_n_contrast_loss(z, labels, temperature)

    differences = reference.finite_differences(
        lambda z: weights @ compute_expected(z), z
    )
    np.testing.assert_allclose(value, compute_expected(z), 2e-6, 1e-7)
    np.testing.assert_allclose(gradient, differences, 1e-4, 1e-6)


@pytest.mark.parametrize("kind", LABELS)
def test_value_and_gradient_are_those_of_the_loops(kind):
    assert_equals_the_loops(LABELS[kind], Z[:, :2])


@pytest.mark.parametrize("views", [1, 3])
@pytest.mark.parametrize("temperature", [0.2, 20.0])
def test_any_views_and_temperature(views, temperature):
    assert_equals_the_loops(LABELS["ties"], Z[:, :views, :1], temperature)


@pytest.mark.parametrize("batch", [1, 2, 3])
def test_small_batches(batch):
    assert_equals_the_loops(LABELS["ties"][:batch], Z[:batch, :2])
    assert_equals_the_loops(LABELS["ties"][:batch], Z[:batch, :1])


@pytest.mark.parametrize("numbers", [1, 6, 28])
def test_tiles_of_every_size(monkeypatch, numbers):
    """The last of them is not full."""
    monkeypatch.setattr(rank, "_NUMBERS_PER_TILE", numbers)
    assert_equals_the_loops(LABELS["ties"], Z[:, :2])


def test_a_row_that_is_alone_has_loss_and_gradient_zero():
    value, gradient = vectors.value_and_gradient(
        lambda z: per_sample([3.0], z), Z[:1, :1]
    )
    assert not np.any(value) and not np.any(gradient)


def test_only_the_order_of_distances_counts():
    labels = LABELS["all different"]
    np.testing.assert_array_equal(
        per_sample(labels, Z), per_sample(7.0 - 0.5 * labels, Z)
    )
    assert np.all(per_sample(labels, Z) != per_sample(LABELS["ties"], Z))


def test_rows_in_the_order_of_their_labels_have_a_lower_loss():
    labels = np.arange(4.0)
    values = [
        float(tf.reduce_mean(per_sample(labels, np.array(z)[:, None] * 3.0)))
        for z in ([0, 1, 2, 3], [3, 2, 1, 0], [0, 2, 1, 3], [1, 0, 2, 3])
    ]
    assert max(values[:2]) < min(values[2:])  # forwards and backwards


def test_far_rows_have_a_logarithm():
    """Of e^-1000, which is no float32."""
    z = np.array([[0.0], [1.0], [2000.0], [2003.0]])
    value, gradient = vectors.value_and_gradient(
        lambda z: per_sample([0.0, 1.0, 2.0, 3.0], z), z
    )
    # Of the first row D_i2 = e^-1000 + e^-1001.5; all else is one term.
    expected = np.log1p(np.exp(-1.5)) / 3
    np.testing.assert_allclose(value[0], expected, atol=1e-4)
    assert np.isfinite(value).all() and np.isfinite(gradient).all()


@pytest.mark.parametrize("kind", ["ties", "all the same", "several numbers"])
def test_the_gradient_is_finite_where_rows_are_equal(kind):
    z = Z.copy()
    z[2, 1] = z[2, 0]
    z[3] = z[4]
    for rows in (z, np.ones_like(z)):
        value, gradient = vectors.value_and_gradient(
            lambda z: per_sample(LABELS[kind], z), rows
        )
        expected = reference.rank_n_contrast_loss(rows, LABELS[kind], 2.0)
        np.testing.assert_allclose(value, expected, rtol=2e-6)
        assert np.isfinite(gradient).all()
    assert not np.any(gradient)  # of collapsed rows


def test_near_rows_have_a_gradient_of_the_right_direction():
    """Differences of products would be of the size of their rounding."""
    z = 100 + np.array([[0.0, 0.0], [3e-4, 4e-4], [50.0, 0.0]])
    z = z.astype(np.float32)
    _, gradient = vectors.value_and_gradient(
        lambda z: per_sample([0.0, 1.0, 5.0], z), z, [1.0, 0.0, 0.0]
    )
    direction = (z[1] - z[0]) / np.linalg.norm(z[1] - z[0])
    share = gradient[1] / np.linalg.norm(gradient[1])
    np.testing.assert_allclose(share, direction, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("targets", [(), (3,)])
def test_fit_takes_its_gradient_with_weights_of_samples(targets):
    labels = RNG.normal(size=(5, *targets)).astype(np.float32)
    weights = np.array([0, 1, 2, 0.5, 3], np.float32)
    dense = keras.layers.Dense(3, use_bias=False)
    model = keras.Sequential([keras.Input(Z.shape[1:]), dense])
    kernel = tf.Variable(dense.get_weights()[0])
    loss = losses.RankNContrastLoss()
    model.compile(keras.optimizers.SGD(1.0), loss)
    z = Z.astype(np.float32)
    history = model.fit(z, labels, 5, verbose=0, sample_weight=weights).history
    with tf.GradientTape() as tape:
        value = tf.reduce_mean(weights * per_sample(labels, z @ kernel))
    np.testing.assert_allclose(history["loss"], [value], rtol=1e-5)
    np.testing.assert_allclose(
        kernel - dense.get_weights()[0],
        tape.gradient(value, kernel),
        rtol=1e-4,
        atol=1e-6,
    )


@pytest.mark.parametrize(
    ("options", "labels", "message"),
    [
        ({"temperature": 0.0}, None, "`temperature` must be positive, got 0.0"),
        ({}, [1.0, 2.0], r"`labels` must have shape \[5, None\] to go with"),
        ({}, ["a"] * 5, "`labels` must be numbers, got string"),
        ({}, [True] * 5, "`labels` must be numbers, got bool"),
        ({}, np.ones([5, 1, 1]), r"`labels` must be \[batch\] or \[batch, tar"),
    ],
)
def test_bad_input_is_named(options, labels, message):
    with pytest.raises(ValueError, match=message):
        losses.RankNContrastLoss(**options)(labels, Z)


@pytest.mark.parametrize("label", [np.nan, np.inf])
def test_a_label_that_is_missing_is_refused(label):
    with pytest.raises(tf.errors.InvalidArgumentError, match="must be finite"):
        per_sample([1.0, label, 3.0, 2.0, 1.0], Z)
