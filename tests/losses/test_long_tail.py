"""BCL and PaCo by loops over rows and centres."""

import numpy as np
import pytest
import tensorflow as tf

from supcon_tf import losses, models
from tests import reference
from tests.losses import vectors

LABELS = np.array([0, 2, 0, 0, 1, 2])  # class 3 is in no batch
CENTRES = vectors.unit([4, 4], seed=7)
SHARES = [0.6, 0.2, 0.15, 0.05]


def loops(z, is_balanced, temperature=0.1, alpha=0.05, class_shares=()):
    """[batch], from float64 rows of any length."""
    z = z / np.linalg.norm(z, axis=-1, keepdims=True)
    columns = np.concatenate([z.reshape(-1, 4), CENTRES])
    classes = np.concatenate([np.repeat(LABELS, 2), range(4)])
    anchor_losses = np.zeros([6, 2])
    for i in range(12):
        s = columns @ columns[i] / temperature
        s[12:] += np.log(class_shares or 1)
        contrasts = [k for k in range(16) if k != i]
        positives = [k for k in contrasts if classes[k] == classes[i]]
        weights, d = [1.0] * len(positives), 0.0
        if is_balanced:
            for c in range(4):
                members = [k for k in contrasts if classes[k] == c]
                d += np.mean([np.exp(s[k]) for k in members])
        else:
            d = sum(np.exp(s[k]) for k in contrasts)
            weights = [alpha if k < 12 else 1.0 for k in positives]
        terms = [np.log(np.exp(s[k]) / d) for k in positives]
        anchor_losses[i // 2, i % 2] = -np.average(terms, weights=weights)
    return temperature * anchor_losses.mean(axis=1)


CASES = [
    (losses.BalancedSupConLoss, {}),
    (losses.PaCoLoss, {"alpha": 0.3}),
    (losses.PaCoLoss, {"class_shares": SHARES}),
]


@pytest.mark.parametrize(("loss_class", "options"), CASES)
def test_equals_the_loops(loss_class, options):
    z = vectors.unit([6, 2, 4])
    loss = loss_class(vectors.make_centres(), reduction="none", **options)
    results = vectors.value_and_gradient(lambda z: loss(LABELS, z), z)
    is_balanced = loss_class is losses.BalancedSupConLoss

    def compute_expected(z):
        return loops(z, is_balanced, **options)

    differences = reference.finite_differences(
        lambda z: compute_expected(z).sum(), z
    )
    expected = compute_expected(z), differences
    vectors.assert_close(results, expected, 1e-5, 1e-5)
    rebuilt = loss_class.from_config(loss.get_config())
    assert rebuilt.get_config() == loss.get_config()


def test_balanced_classes_of_one_row_are_supcon_with_centres():
    """Of classes of equal sizes the denominator is SupCon's, but for i."""
    z, centres = vectors.unit([4, 1, 4]), vectors.make_centres()
    labels = np.arange(4)
    values = losses.BalancedSupConLoss(centres, reduction="none")(labels, z)
    s = np.exp((z[:, 0] @ np.concatenate([z[:, 0], CENTRES]).T) / 0.1)
    positives = np.diag(s[:, 4:])  # the centre of the class of an anchor
    negatives = s.sum(1) - np.diag(s) - positives
    expected = -0.1 * np.log(positives / (positives + negatives / 2))
    np.testing.assert_allclose(values, expected, rtol=1e-5)


def test_the_centres_learn():
    centres, z = (
        vectors.make_centres(),
        tf.constant(vectors.unit([6, 2, 4]), tf.float32),
    )
    for loss_class, options in CASES:
        loss = loss_class(centres, **options)
        with tf.GradientTape() as tape:
            value = loss(LABELS, z)
        gradient = tape.gradient(value, centres.centres)
        assert np.abs(gradient).max() > 1e-4


def test_bad_options_are_refused():
    unbuilt = losses.PaCoLoss(models.ClassCentres(2, 4))
    with pytest.raises(ValueError, match="`centres` must be built, .* without"):
        unbuilt([0], vectors.unit([1, 1, 4]))
    with pytest.raises(ValueError, match="`centres` must be given"):
        losses.BalancedSupConLoss()
    with pytest.raises(ValueError, match="`temperature` must be positive"):
        losses.PaCoLoss(vectors.make_centres(), temperature=0.0)
    with pytest.raises(ValueError, match="`alpha` must be positive"):
        losses.PaCoLoss(vectors.make_centres(), alpha=0.0)
    with pytest.raises(ValueError, match="`class_shares` must be positive"):
        losses.PaCoLoss(vectors.make_centres(), class_shares=[0.0, 1.0])


@pytest.mark.parametrize("label", [4, -1])
@pytest.mark.parametrize(("loss_class", "options"), CASES[:2])
def test_a_label_without_a_centre_is_refused(loss_class, options, label):
    loss = loss_class(vectors.make_centres(), **options)
    z = vectors.unit([3, 2, 4])
    for call in (loss, tf.function(loss, autograph=False)):
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"0 \.\.\. 3"):
            call(tf.constant([0, 1, label]), z)


@pytest.mark.parametrize("count", [3, 5])
def test_shares_are_one_for_each_centre(count):
    loss = losses.PaCoLoss(vectors.make_centres(), class_shares=[0.2] * count)
    with pytest.raises(ValueError, match=f"each of 4 centres, got {count}"):
        loss(LABELS, vectors.unit([6, 2, 4]))
