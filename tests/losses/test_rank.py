"""Rank-N-Contrast against loops over its equation, and over replicas."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from supcon_tf import losses
from supcon_tf.keras_2 import keras
from supcon_tf.losses import rank
from tests import reference
from tests.losses import vectors

RNG = np.random.default_rng(0)
Z = 3 * RNG.normal(size=[7, 3, 2])  # of any length
LABELS = {
    "all different": np.array([3.5, -1.0, 0.25, 8.0, 2.0, 90.0, 41.0]),
    "ties": np.array([1.0, 2.0, 3.0, 2.0, 1.0, 3.0, 0.0]),
    "on both sides": np.array([-2.0, 2.0, 0.0, -1.0, 1.0, 0.0, 4.0]),
    "all the same": np.full(7, 0.5),
    "integers": np.array([5, 60, 7, 7, 18, 33, 5], np.uint8),
    "beyond float32": 2**40 + np.array([0, 1, 3, 3, 7, 2, 1]),
    "several numbers": RNG.integers(0, 3, size=[7, 2]).astype(float),
}


def per_sample(labels, z, temperature=2.0, **options):
    loss = losses.RankNContrastLoss(temperature, reduction="none", **options)
    return loss(labels, z)


def assert_equals_the_loops(labels, z, temperature=2.0):
    weights = np.linspace(0.5, 2, len(z))
    value, gradient = vectors.value_and_gradient(
        lambda z: per_sample(labels, z, temperature), z, weights
    )
    assert value.dtype == tf.float32
    expected = reference.rank_n_contrast_loss(z, labels, temperature)
    np.testing.assert_allclose(value, expected, rtol=2e-6, atol=1e-7)
    expected = reference.finite_differences(
        lambda z: (
            weights @ reference.rank_n_contrast_loss(z, labels, temperature)
        ),
        z,
    )
    np.testing.assert_allclose(gradient, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.slow(
    but=[
        "all different-2",
        "ties-1",
        "ties-2",
        "ties-3",
        "on both sides-2",
        "all the same-2",
        "integers-2",
        "beyond float32-2",
        "several numbers-2",
    ]
)
@pytest.mark.parametrize("views", [1, 2, 3])
@pytest.mark.parametrize("kind", LABELS)
def test_value_and_gradient_are_those_of_the_loops(kind, views):
    numbers = 4 - views  # of three views one: the loops take longest
    assert_equals_the_loops(LABELS[kind], Z[:, :views, :numbers])


@pytest.mark.parametrize("temperature", [0.2, 0.5, 20.0])
def test_any_temperature(temperature):
    assert_equals_the_loops(LABELS["ties"], Z[:, :2], temperature)


@pytest.mark.parametrize("batch", [1, 2, 3])
def test_small_batches(batch):
    assert_equals_the_loops(LABELS["ties"][:batch], Z[:batch, :2])
    assert_equals_the_loops(LABELS["ties"][:batch], Z[:batch, :1])


def test_rows_of_rank_2_are_one_view():
    np.testing.assert_array_equal(
        per_sample(LABELS["ties"], Z[:, 0]),
        per_sample(LABELS["ties"], Z[:, :1]),
    )


def test_tiles_of_every_size(monkeypatch):
    """The last of them is not full."""
    for numbers in (1, 6, 10, 28):
        monkeypatch.setattr(rank, "_NUMBERS_PER_TILE", numbers)
        assert_equals_the_loops(LABELS["ties"], Z[:, :2])


def test_a_row_that_is_alone_has_loss_and_gradient_zero():
    value, gradient = vectors.value_and_gradient(
        lambda z: per_sample([3.0], z), Z[:1, :1]
    )
    assert not np.any(value) and not np.any(gradient)


def test_the_order_of_samples_and_views_is_without_effect():
    labels, order = LABELS["ties"], RNG.permutation(7)
    np.testing.assert_allclose(
        per_sample(labels[order], Z[order][:, ::-1]),
        tf.gather(per_sample(labels, Z), order),
        rtol=1e-6,
    )


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
        for z in itertools.permutations(labels)
    ]
    # Forwards and backwards.
    assert sorted(np.argsort(values)[:2]) == [0, len(values) - 1]


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


@pytest.mark.parametrize("kind", LABELS)
def test_the_gradient_is_finite_where_rows_are_equal(kind):
    z = Z.copy()
    z[2, 1] = z[2, 0]
    z[4] = z[5]
    for rows in (z, np.ones_like(z), np.zeros_like(z)):
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


@pytest.mark.slow(but=["True"])
@pytest.mark.parametrize("cross_replica", [True, False])
def test_two_replicas_equal_one_device(mirrored_strategy, cross_replica):
    loss = losses.RankNContrastLoss(0.7, cross_replica, reduction="none")
    parts = [slice(0, 2), slice(2, 7)]
    z, labels = Z.astype(np.float32), LABELS["ties"]

    def step(z, labels):
        return vectors.value_and_gradient(lambda z: loss(labels, z), z)

    results = vectors.on_two_replicas(mirrored_strategy, step, parts, z, labels)
    batches = [slice(0, 7)] if cross_replica else parts
    expected = [step(z[part], labels[part]) for part in batches]
    for result, expected_result in zip(
        results, zip(*expected, strict=True), strict=True
    ):
        np.testing.assert_allclose(
            result, np.concatenate(expected_result), rtol=2e-5, atol=2e-6
        )


@pytest.mark.parametrize("jit_compile", [False, True])
def test_in_a_function_with_unknown_batch(jit_compile):
    @tf.function(
        jit_compile=jit_compile,
        input_signature=[tf.TensorSpec([None, 2, 2]), tf.TensorSpec([None])],
    )
    def step(z, labels):
        return vectors.value_and_gradient(lambda z: per_sample(labels, z), z)

    for batch in (1, 3, 7):
        z = Z[:batch, :2].astype(np.float32)
        labels = LABELS["ties"][:batch].astype(np.float32)
        expected = vectors.value_and_gradient(
            lambda z: per_sample(labels, z),  # noqa: B023
            z,
        )
        for tensor, expected_tensor in zip(
            step(z, labels), expected, strict=True
        ):
            np.testing.assert_allclose(
                tensor, expected_tensor, rtol=1e-4, atol=1e-6
            )


@pytest.mark.parametrize("precision", ["mixed_float16", "mixed_bfloat16"])
def test_it_is_float32_in_mixed_precision(precision, float32_policy):
    keras.mixed_precision.set_global_policy(precision)
    z = tf.cast(Z, precision.removeprefix("mixed_"))
    value = per_sample(LABELS["ties"], z)
    assert value.dtype == tf.float32
    expected = reference.rank_n_contrast_loss(
        tf.cast(z, tf.float64), LABELS["ties"], 2.0
    )
    np.testing.assert_allclose(value, expected, rtol=2e-6)


@pytest.mark.slow(but=["targets0"])
@pytest.mark.parametrize("targets", [(), (3,)])
def test_fit_takes_its_gradient_with_weights_of_samples(targets):
    labels = RNG.normal(size=(7, *targets)).astype(np.float32)
    weights = np.array([0, 1, 2, 0.5, 1, 3, 1], np.float32)
    dense = keras.layers.Dense(3, use_bias=False)
    model = keras.Sequential([keras.Input(Z.shape[1:]), dense])
    kernel = tf.Variable(dense.get_weights()[0])
    loss = losses.RankNContrastLoss()
    model.compile(keras.optimizers.SGD(1.0), loss)
    z = Z.astype(np.float32)
    history = model.fit(z, labels, 7, verbose=0, sample_weight=weights).history
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
        ({}, [1.0, 2.0], r"`labels` must have shape \[7, None\] to go with"),
        ({}, ["a"] * 7, "`labels` must be numbers, got string"),
        ({}, [True] * 7, "`labels` must be numbers, got bool"),
        ({}, np.ones([7, 1, 1]), r"`labels` must be \[batch\] or \[batch, tar"),
    ],
)
def test_bad_input_is_named(options, labels, message):
    with pytest.raises(ValueError, match=message):
        losses.RankNContrastLoss(**options)(labels, Z)


@pytest.mark.parametrize("label", [np.nan, np.inf])
def test_a_label_that_is_missing_is_refused(label):
    labels = LABELS["ties"].copy()
    labels[3] = label
    with pytest.raises(tf.errors.InvalidArgumentError, match="must be finite"):
        per_sample(labels, Z)
