"""supcon_loss in strips is supcon_loss, in value, gradient, and less memory."""

import numpy as np
import pytest
import tensorflow as tf

from supcon_tf import losses
from supcon_tf.losses import supcon
from tests.losses import made

Z = made.unit([7, 2, 4], seed=3)
OTHERS = made.unit([3, 2, 4], seed=4)
HOT = np.array([[1, 0], [1, 1], [0, 0], [0, 1], [1, 0], [1, 1], [0, 1]])
WAYS = {
    "classes": {"labels": [4, -2, 4, 4, 9, -2, 9]},
    "none": {},
    "several": {"labels": HOT, "positives": "jaccard"},
    "mask": {
        "positive_mask": np.random.default_rng(0).integers(0, 3, [7, 7]) / 2
    },
    "contrasts": {
        "labels": [4, -2, 4, 4, 9, -2, 9],
        "contrast_projections": OTHERS,
        "contrast_labels": [9, 4, 0],
        "contrast_mask": [True, False, True],
    },
}


def value_and_gradients(strip_rows, contrast_projections=OTHERS[:0], **options):
    """Losses, and gradients of their weighted sum, also of the contrasts."""
    z, others = tf.constant(Z), tf.constant(contrast_projections)
    if len(contrast_projections):
        options["contrast_projections"] = others
    with tf.GradientTape() as tape:
        tape.watch([z, others])
        loss = losses.supcon_loss(z, strip_rows=strip_rows, **options)
        total = tf.reduce_sum(loss * np.arange(1.0, 8.0, dtype=np.float32))
    zero = tf.UnconnectedGradients.ZERO
    return loss, *tape.gradient(total, [z, others], unconnected_gradients=zero)


@pytest.mark.parametrize("way", list(WAYS))
def test_strips_equal_all_at_once(way):
    """One sample per strip, a last strip that is not full, one strip."""
    for rows, options in zip(
        (1, 6, 14, 1000, 6, 4),
        (
            {"denominator": "all"},
            {"denominator": "one_positive", "positives_cap": 2},
            {"denominator": "only_negatives", "formulation": "in"},
            {"denominator": "one_positive", "formulation": "in"},
            {"positives_cap": 3, "anchor_views": "first", "temperature": 0.01},
            {"positives_cap": 1, "scale_by_temperature": False},
        ),
        strict=True,
    ):
        options = WAYS[way] | options
        expected = value_and_gradients(None, **options)
        got = value_and_gradients(rows, **options)
        for a, b in zip(got, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("jit_compile", "batch"), [(False, None), (True, 7)])
def test_in_a_function(jit_compile, batch):
    options = {"positives_cap": 2, "denominator": "only_negatives"}

    @tf.function(
        jit_compile=jit_compile,
        input_signature=[
            tf.TensorSpec([batch, 2, 4]),
            tf.TensorSpec([batch], tf.int32),
        ],
    )
    def step(z, labels):
        return made.value_and_gradient(
            lambda z: losses.supcon_loss(z, labels, strip_rows=4, **options), z
        )

    labels = np.array([0, 1, 0, 0, 2, 1, 0], np.int32)
    for size in (7,) if batch else (3, 7):
        z = Z[:size].astype(np.float32)
        expected = made.supcon_value_and_gradient(z, labels[:size], **options)
        for a, b in zip(step(z, labels[:size]), expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_the_loss_takes_strips_for_large_matrices(monkeypatch):
    taken = []
    plain = supcon.supcon_loss
    monkeypatch.setattr(
        supcon,
        "supcon_loss",
        lambda *a, **o: taken.append(o["strip_rows"]) or plain(*a, **o),
    )
    labels, values = np.arange(7) % 3, []
    for implementation, most, expected in (
        ("auto", 2**22, None),
        ("auto", 14**2 - 1, 4),
        ("tiled", 2**22, 4),
        ("dense", 1, None),
    ):
        monkeypatch.setattr(supcon, "_PAIRS_AT_ONCE", most)
        monkeypatch.setattr(supcon, "_STRIP_ROWS", 4)
        loss = losses.SupConLoss(
            positives_cap=3, implementation=implementation, reduction="none"
        )
        values.append(loss(labels, Z))
        assert taken.pop() == expected
    for value in values:
        np.testing.assert_allclose(value, values[0], rtol=1e-5)
    with pytest.raises(ValueError, match="`strip_rows` must be at least 1"):
        plain(Z, labels, strip_rows=0)
