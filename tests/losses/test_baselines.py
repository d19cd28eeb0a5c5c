"""SimCLR, N-pairs and triplet losses against NumPy loops and TFA."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from supcon_tf import losses
from tests.losses import vectors

LABELS = np.array([4, 1, 4, 4, 9, 1])


def unit(shape, seed=0):
    return vectors.unit(shape, seed, np.float32)


def simclr_loops(z, temperature):
    """Suppl. Eq. 20, the mean over the other views where there are more."""
    samples, views, _ = z.shape
    rows = [(s, v) for s in range(samples) for v in range(views)]
    total = np.zeros(samples)
    for i in rows:
        e = {a: np.exp(z[i] @ z[a] / temperature) for a in rows if a != i}
        other_views = [(i[0], v) for v in range(views) if v != i[1]]
        total[i[0]] -= np.mean(
            [np.log(e[j] / sum(e.values())) for j in other_views]
        )
    return total / views


def n_pairs_loops(z, labels):
    """Suppl. Eq. 21."""
    samples, views, _ = z.shape
    rows = [(s, v) for s in range(samples) for v in range(views)]
    total = np.zeros(samples)
    for s, v in rows:
        e = {a: np.exp(z[s, v] @ z[a]) for a in rows if a != (s, v)}
        next_samples = [(s + step) % samples for step in range(1, samples)]
        next_positives = [k for k in next_samples if labels[k] == labels[s]]
        if next_positives:
            total[s] -= np.log(e[next_positives[0], v] / sum(e.values()))
    return total / views


def squared_distances(z, labels):
    """Between all rows, and the labels of the rows."""
    rows, ids = z.reshape(-1, z.shape[-1]), np.repeat(labels, z.shape[1])
    return np.sum((rows[:, None] - rows) ** 2, axis=-1), ids


def semi_hard_loops(z, labels, margin):
    """FaceNet's semi-hard triplets, the mean over pairs a, p."""
    d, ids = squared_distances(z, labels)
    pair_losses = []
    for a, p in np.ndindex(d.shape):
        if a == p or ids[a] != ids[p]:
            continue
        negatives = d[a, ids != ids[a]]
        farther_negatives = negatives[negatives > d[a, p]]
        n = min(farther_negatives, default=negatives.max())
        pair_losses.append(max(0, d[a, p] - n + margin))
    return np.mean(pair_losses)


def hard_loops(z, labels, margin):
    """The hardest positive and negative, the mean over anchors."""
    d, ids = squared_distances(z, labels)
    return np.mean(
        [
            max(0, d[a, ids == i].max() - d[a, ids != i].min() + margin)
            for a, i in enumerate(ids)
            if np.sum(ids == i) > 1
        ]
    )


@pytest.mark.parametrize("views", [2, 3])
def test_simclr_is_eq_1_whatever_the_labels(views):
    z = unit([6, views, 4])
    for temperature in (0.1, 1.0):
        loss = losses.SimCLRLoss(temperature, reduction="none")
        expected = temperature * simclr_loops(z, temperature)
        for labels in (LABELS, np.zeros(6), np.eye(6)):
            np.testing.assert_allclose(loss(labels, z), expected, rtol=1e-4)
    unscaled = losses.SimCLRLoss(
        0.5, scale_by_temperature=False, reduction="none"
    )
    np.testing.assert_allclose(
        unscaled(LABELS, 7 * z), simclr_loops(z, 0.5), rtol=1e-4
    )


@pytest.mark.parametrize("views", [1, 2, 3])
def test_n_pairs_is_supplement_eq_21(views):
    z = unit([6, views, 4])
    value = losses.NPairsLoss(reduction="none")(LABELS, z)
    np.testing.assert_allclose(value, n_pairs_loops(z, LABELS), rtol=1e-5)
    assert value[4] == 0  # alone in its class
    np.testing.assert_array_equal(
        losses.NPairsLoss(reduction="none")(LABELS[:, None], z), value
    )


def test_n_pairs_is_tfas_softmax_over_the_right_matrix():
    """TFA's targets are on the diagonal: the positive changes places with i."""
    tfa = pytest.importorskip("tensorflow_addons", exc_type=ImportError)
    z, labels = unit([6, 1, 4]), np.array([0, 1, 1, 0, 2, 2])
    positives = np.array([3, 2, 1, 0, 5, 4])
    similarities = z[:, 0] @ z[:, 0].T
    anchors = np.arange(6)
    similarities[anchors, anchors] = similarities[anchors, positives]
    similarities[anchors, positives] = -1e30
    np.testing.assert_allclose(
        losses.NPairsLoss()(labels, z),
        tfa.losses.npairs_loss(anchors, similarities),
        rtol=1e-5,
    )


@pytest.mark.parametrize(
    ("loss", "views"),
    [
        (losses.NPairsLoss(), 2),
        (losses.TripletLoss(), 1),
        (losses.TripletLoss(mining="hard"), 1),
    ],
)
def test_without_any_pair_value_and_gradient_are_zero(loss, views):
    for labels in (np.arange(4), np.zeros(1, int)):
        z = unit([len(labels), views, 3])
        value, gradient = vectors.value_and_gradient(
            lambda z, y=labels: loss.call(y, z), z
        )
        assert not np.any(value) and not np.any(gradient)


@pytest.mark.parametrize("views", [1, 2, 3])
@pytest.mark.parametrize("margin", [0.2, 1.0])
def test_triplet_is_the_mined_loss_for_every_sample(views, margin):
    z = unit([6, views, 4], seed=views)
    oracles = {"semi_hard": semi_hard_loops, "hard": hard_loops}
    one_alone = np.array([0, 1, 0, 1, 0, 2])  # a class of one sample
    for mining, labels in itertools.product(oracles, (LABELS, one_alone)):
        loss = losses.TripletLoss(margin, mining, reduction="none")
        expected = oracles[mining](z, labels, margin)
        np.testing.assert_allclose(loss(labels, z), [expected] * 6, rtol=1e-4)


@pytest.mark.parametrize("mining", ["semi_hard", "hard"])
def test_triplet_has_tfas_value_and_gradient(mining):
    tfa = pytest.importorskip("tensorflow_addons", exc_type=ImportError)
    mined_loss = getattr(tfa.losses, f"triplet_{mining.replace('_', '')}_loss")
    z, labels = unit([20, 2, 8]), np.arange(20) % 7
    loss = losses.TripletLoss(0.5, mining)  # the mean of equal values
    results = vectors.value_and_gradient(lambda z: loss(labels, z), z)
    expected = vectors.value_and_gradient(
        lambda z: mined_loss(
            np.repeat(labels, 2),
            tf.reshape(z, [40, 8]),
            0.5,
            distance_metric="squared-L2",
        ),
        z,
    )
    vectors.assert_close(results, expected)


def test_bad_options_are_named():
    for kind, options, message in (
        (losses.TripletLoss, {"margin": 0}, "`margin` must be positive, got 0"),
        (losses.TripletLoss, {"mining": "soft"}, "one of semi_hard, hard, got"),
        (losses.SimCLRLoss, {"temperature": 0}, "`temperature` must be posi"),
    ):
        with pytest.raises(ValueError, match=message):
            kind(**options)
    with pytest.raises(ValueError, match="must have at least 2 views, the pos"):
        losses.SimCLRLoss()(LABELS, unit([6, 1, 4]))
