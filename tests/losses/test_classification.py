"""Losses of a classifier on every view, against NumPy loops."""

import numpy as np
import pytest
import tensorflow as tf

from supcon_tf import losses
from supcon_tf.keras_2 import keras

LABELS = np.array([2, 0, 1, 2])
SOFT = np.array([[0.25, 0.75, 0], [1, 0, 0], [0.5, 0.25, 0.25], [0, 1, 0]])


def make_logits(views=2):
    rng = np.random.default_rng(views)
    return rng.uniform(-1, 1, [4, views, 3]).astype(np.float32)


def cross_entropy_loops(values, labels):
    samples, views, _ = values.shape
    total = np.zeros(samples)
    for s, v in np.ndindex(samples, views):
        e = np.exp(values[s, v])
        total[s] -= np.log(e[labels[s]] / e.sum()) / views
    return total


@pytest.mark.parametrize("views", [1, 2])
def test_max_margin_lowers_the_cosine_of_the_label(views):
    cosines = make_logits(views)
    for margin, scale in ((0.35, 30.0), (0.1, 4.0)):
        moved_cosines = cosines - margin * np.eye(3)[LABELS][:, None]
        np.testing.assert_allclose(
            losses.MaxMarginLoss(margin, scale, reduction="none")(
                LABELS, cosines
            ),
            cross_entropy_loops(scale * moved_cosines, LABELS),
            rtol=1e-4,
            atol=1e-6,
        )
    np.testing.assert_allclose(
        losses.MaxMarginLoss(margin=0, scale=1)(LABELS, cosines),
        losses.CrossEntropyLoss()(LABELS, cosines),
        rtol=1e-6,
    )


@pytest.mark.parametrize(
    "loss",
    [
        losses.CrossEntropyLoss(),
        losses.CrossEntropyLoss(0.1),
        losses.MaxMarginLoss(),
    ],
)
def test_per_sample_and_finite(loss):
    for value in (0.0, 1.0, 1e4):
        logits = tf.fill([4, 2, 3], value)
        with tf.GradientTape() as tape:
            tape.watch(logits)
            result = loss.call(tf.constant(LABELS), logits)
        assert result.shape == (4,) and result.dtype == tf.float32
        assert np.isfinite(result).all()
        assert np.isfinite(tape.gradient(result, logits)).all()


def test_bad_options_are_named():
    with pytest.raises(ValueError, match="`margin` must be at least 0, got"):
        losses.MaxMarginLoss(margin=-0.1)
    with pytest.raises(ValueError, match="`scale` must be positive, got 0"):
        losses.MaxMarginLoss(scale=0)
    for share in (-0.1, 1.0, float("nan")):
        with pytest.raises(ValueError, match=f"and below 1, got {share}"):
            losses.CrossEntropyLoss(share)
    with pytest.raises(ValueError, match="`logits` must be"):
        losses.CrossEntropyLoss()(LABELS, np.ones([4, 2, 2, 3], np.float32))


def test_soft_labels_in_a_function_must_sum_to_1():
    logits, loss = make_logits(), losses.CrossEntropyLoss(reduction="none")
    graph = tf.function(
        loss,
        input_signature=[tf.TensorSpec([None, 3]), tf.TensorSpec([None, 2, 3])],
    )
    np.testing.assert_allclose(
        graph(SOFT, logits), loss(SOFT, logits), rtol=1e-5
    )
    below_0 = np.float32([[1.5, -0.5, 0]] * 4)
    nans = np.full([4, 3], np.nan)
    for labels in (SOFT * 1.01, np.ones([4, 3]), nans, below_0):
        with pytest.raises(tf.errors.InvalidArgumentError, match="sum to 1"):
            graph(labels, logits)
    with pytest.raises(ValueError, match="`labels` must have shape .4, 3. to"):
        loss(SOFT[:, :2], logits)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.6])
@pytest.mark.parametrize("views", [1, 2, 3])
def test_cross_entropy_is_the_mean_over_views(share, views):
    """The loops of Sec. 7, a share spread over all classes; Keras agrees."""
    logits = make_logits(views)
    loss = losses.CrossEntropyLoss(share, reduction="none")
    losses_by_class = [cross_entropy_loops(logits, [c] * 4) for c in range(3)]
    keras_loss = keras.losses.CategoricalCrossentropy(
        from_logits=True, label_smoothing=share, reduction="none"
    )
    hard = np.eye(3)[LABELS]
    for labels, weights in (
        (LABELS, hard),
        (LABELS[:, None], hard),
        (hard, hard),
        (SOFT, SOFT),
    ):
        expected = np.zeros(4)
        for s, c in np.ndindex(4, 3):
            weight = (1 - share) * weights[s, c] + share / 3
            expected[s] += weight * losses_by_class[c][s]
        np.testing.assert_allclose(loss(labels, logits), expected, rtol=1e-5)
        view_losses = [keras_loss(weights, logits[:, v]) for v in range(views)]
        np.testing.assert_allclose(
            loss(labels, logits), np.mean(view_losses, axis=0), rtol=1e-5
        )


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16])
def test_smoothing_is_computed_in_float32(dtype):
    logits = tf.cast(30 * make_logits(), dtype)
    loss = losses.CrossEntropyLoss(0.1, reduction="none")
    result = loss(LABELS, logits)
    assert result.dtype == tf.float32
    np.testing.assert_array_equal(
        result, loss(LABELS, tf.cast(logits, tf.float32))
    )


def test_logit_adjustment_by_the_formula():
    """Menon et al. 2021, Eq. 10."""
    logits, shares = make_logits(), np.array([0.7, 0.2, 0.1])
    loss = losses.CrossEntropyLoss(
        class_shares=shares.tolist(), logit_adjustment=1.5, reduction="none"
    )
    adjusted = np.array(logits) + 1.5 * np.log(shares)
    unadjusted_loss = losses.CrossEntropyLoss(reduction="none")
    expected = unadjusted_loss(LABELS, adjusted.astype(np.float32))
    np.testing.assert_allclose(loss(LABELS, logits), expected, rtol=1e-6)
    rebuilt = losses.CrossEntropyLoss.from_config(loss.get_config())
    np.testing.assert_allclose(rebuilt(LABELS, logits), expected, rtol=1e-6)
    with pytest.raises(ValueError, match="`class_shares` must be positive"):
        losses.CrossEntropyLoss(class_shares=[0.5, 0.0])
    with pytest.raises(ValueError, match="`class_shares` must have shape"):
        losses.CrossEntropyLoss(class_shares=[1.0])(LABELS, logits)


def test_binary_cross_entropy_by_the_formula():
    logits, labels = np.array(make_logits(), np.float64), np.eye(3)[LABELS]
    labels[0] = [1, 1, 0]
    labels[1] = 0
    p = 1 / (1 + np.exp(-logits))
    hot = labels[:, None]
    expected = -(hot * np.log(p) + (1 - hot) * np.log(1 - p)).sum(2).mean(1)
    loss = losses.BinaryCrossEntropyLoss(reduction="none")
    np.testing.assert_allclose(loss(labels, logits), expected, rtol=1e-5)
    with pytest.raises(tf.errors.InvalidArgumentError, match="must be 0 or 1"):
        loss(labels * 2, logits)
