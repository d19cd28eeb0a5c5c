"""The parts of the gradient against automatic differentiation."""

import numpy as np
import pytest
import tensorflow as tf

from supcon_tf.measures import hardness


@pytest.mark.parametrize("formulation", ["out", "in"])
def test_the_parts_add_up_to_the_gradient_of_an_anchors_loss(formulation):
    rng = np.random.default_rng(0)
    w = rng.normal(size=[12, 5])
    labels, temperature = np.arange(12) % 3, 0.2
    lengths = np.linalg.norm(w, axis=1, keepdims=True)
    z = w / lengths
    factors = hardness.pair_gradients(z, labels, temperature, formulation)
    for anchor in (0, 4, 11):
        anchor_vector = tf.Variable(w[anchor])
        with tf.GradientTape() as tape:
            unit = anchor_vector / tf.norm(anchor_vector)
            logits = tf.linalg.matvec(tf.constant(z), unit) / temperature
            is_contrast = np.arange(12) != anchor
            is_positive = is_contrast & (labels == labels[anchor])
            total = tf.reduce_logsumexp(logits[is_contrast])
            log_p = logits[is_positive] - total
            loss = -temperature * (
                tf.reduce_mean(log_p)
                if formulation == "out"
                else tf.reduce_logsumexp(log_p) - np.log(is_positive.sum())
            )
        tangents = z - (z @ z[anchor])[:, np.newaxis] * z[anchor]
        expected = factors[anchor] @ tangents / lengths[anchor]
        np.testing.assert_allclose(
            tape.gradient(loss, anchor_vector), expected, 1e-9
        )


def test_easy_pairs_add_little():
    """An easy positive nothing, a hard one and a near negative the most."""
    angles = np.array([0.0, 0.01, 1.2, 0.5, 3.0])
    z = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    factors = hardness.pair_gradients(z, [0, 0, 0, 1, 1], 0.1)[0]
    lengths = np.abs(factors) * np.abs(np.sin(angles))
    assert lengths[0] == 0
    assert lengths[2] > 10 * lengths[1]
    assert lengths[3] > 10 * lengths[4]
    with pytest.raises(ValueError, match="`formulation` must be"):
        hardness.pair_gradients(z, [0, 0, 0, 1, 1], 0.1, "both")
