"""BCL and PaCo by loops over rows and centres, and over replicas."""

import numpy as np
import pytest
import tensorflow as tf

from supcon_tf import losses, models
from tests import reference
from tests.losses import vectors

LABELS = np.array([0, 2, 0, 0, 1, 2])  # class 3 is in no batch
CENTRES = vectors.unit([4, 4], seed=7)
SHARES = [0.6, 0.2, 0.15, 0.05]


def layer():
    made_layer = models.ClassCentres(4, 4)
    made_layer.build(None)
    made_layer.centres.assign(3 * CENTRES)  # of any length
    return made_layer


def loops(z, loss, temperature=0.1, alpha=0.05, shares=None):
    """[batch], from float64 rows of any length."""
    z = z / np.linalg.norm(z, axis=-1, keepdims=True)
    rows = [(z[s, v], LABELS[s], False) for s in range(6) for v in range(2)]
    columns = rows + [(CENTRES[c], c, True) for c in range(4)]
    result = np.zeros(6)
    for i, (row, label, _) in enumerate(rows):
        s = [np.dot(row, column) / temperature for column, _, _ in columns]
        if shares is not None:
            s[12:] += np.log(shares)
        contrasts = [k for k in range(16) if k != i]
        positives = [k for k in contrasts if columns[k][1] == label]
        if loss == "bcl":
            d = 0.0
            for c in range(4):
                members = [k for k in contrasts if columns[k][1] == c]
                d += np.mean([np.exp(s[k]) for k in members])
            terms = [np.log(np.exp(s[k]) / d) for k in positives]
            result[i // 2] -= np.mean(terms) / 2
        else:
            d = sum(np.exp(s[k]) for k in contrasts)
            weights = [1.0 if columns[k][2] else alpha for k in positives]
            terms = [np.log(np.exp(s[k]) / d) for k in positives]
            result[i // 2] -= np.average(terms, weights=weights) / 2
    return result * temperature


CASES = {
    "bcl": (losses.BalancedSupConLoss, {}, {}),
    "paco": (losses.PaCoLoss, {"alpha": 0.3}, {"alpha": 0.3}),
    "adjusted": (losses.PaCoLoss, {"class_shares": SHARES}, {"shares": SHARES}),
}


@pytest.mark.parametrize("case", CASES)
def test_equals_the_loops(case):
    kind, options, loop_options = CASES[case]
    z = vectors.unit([6, 2, 4])
    loss = kind(layer(), reduction="none", **options)
    value, gradient = vectors.value_and_gradient(lambda z: loss(LABELS, z), z)
    np.testing.assert_allclose(value, loops(z, case, **loop_options), rtol=1e-5)
    expected = reference.finite_differences(
        lambda z: loops(z, case, **loop_options).sum(), z
    )
    np.testing.assert_allclose(gradient, expected, atol=1e-5)
    rebuilt = kind.from_config(loss.get_config())
    assert rebuilt.get_config() == loss.get_config()


def test_balanced_classes_of_one_row_are_supcon_with_centres():
    """Of classes of equal sizes the denominator is SupCon's, but for i."""
    z, centres = vectors.unit([4, 1, 4]), layer()
    labels = np.arange(4)
    values = losses.BalancedSupConLoss(centres, reduction="none")(labels, z)
    s = np.exp((z[:, 0] @ np.concatenate([z[:, 0], CENTRES]).T) / 0.1)
    own_terms = s[np.arange(4), 4 + np.arange(4)]
    other_sums = s.sum(1) - s[np.arange(4), np.arange(4)] - own_terms
    expected = -0.1 * np.log(own_terms / (own_terms + other_sums / 2))
    np.testing.assert_allclose(values, expected, rtol=1e-5)


@pytest.mark.slow(but=["paco"])
@pytest.mark.parametrize("case", CASES)
def test_replicas_equal_one_device(case, mirrored_strategy):
    kind, options, _ = CASES[case]
    vectors.assert_replicas_equal_one_device(
        mirrored_strategy,
        kind(layer(), reduction="none", **options),
        [slice(0, 2), slice(2, 6)],
        vectors.unit([6, 2, 4]),
        LABELS,
    )


def test_the_centres_learn():
    centres, z = layer(), tf.constant(vectors.unit([6, 2, 4]), tf.float32)
    for kind, options, _ in CASES.values():
        loss = kind(centres, **options)
        with tf.GradientTape() as tape:
            value = loss(LABELS, z)
        gradient = tape.gradient(value, centres.centres)
        assert np.abs(gradient).max() > 1e-4


def test_bad_options_are_refused():
    with pytest.raises(ValueError, match="`centres` must be given"):
        losses.BalancedSupConLoss()
    with pytest.raises(ValueError, match="`temperature` must be positive"):
        losses.PaCoLoss(layer(), temperature=0.0)
    with pytest.raises(ValueError, match="`alpha` must be positive"):
        losses.PaCoLoss(layer(), alpha=0.0)
    with pytest.raises(ValueError, match="`class_shares` must be positive"):
        losses.PaCoLoss(layer(), class_shares=[0.0, 1.0])
