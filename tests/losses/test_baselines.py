"""SimCLR, N-pairs and triplet losses against NumPy loops and TFA."""

import functools

import numpy as np
import pytest
import tensorflow as tf

from supcon_tf import losses
from tests.losses import vectors

LABELS = np.array([4, 1, 4, 4, 9, 1])
EVERY_LOSS = {
    "simclr": losses.SimCLRLoss,
    "npairs": losses.NPairsLoss,
    "triplet": losses.TripletLoss,
}
SUPCON = {
    "supcon": losses.SupConLoss,
    "capped supcon": functools.partial(losses.SupConLoss, positives_cap=3),
}


def unit(shape, seed=0):
    return vectors.unit(shape, seed, np.float32)


def value_and_gradient(loss, labels, z):
    return vectors.value_and_gradient(lambda z: loss.call(labels, z), z)


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
    triplets = []
    for a, p in np.ndindex(d.shape):
        if a == p or ids[a] != ids[p]:
            continue
        negatives = d[a, ids != ids[a]]
        farther_negatives = negatives[negatives > d[a, p]]
        n = (
            farther_negatives.min()
            if farther_negatives.size
            else negatives.max()
        )
        triplets.append(max(0, d[a, p] - n + margin))
    return np.mean(triplets)


def hard_loops(z, labels, margin):
    """The hardest positive and negative, the mean over anchors."""
    d, ids = squared_distances(z, labels)
    return np.mean(
        [
            max(0, d[a, ids == i].max() - d[a, ids != i].min() + margin)
            for a, i in enumerate(ids)
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
        value, gradient = value_and_gradient(loss, labels, z)
        assert not np.any(value) and not np.any(gradient)


@pytest.mark.parametrize("views", [1, 2, 3])
@pytest.mark.parametrize("margin", [0.2, 1.0])
def test_triplet_is_the_mined_loss_for_every_sample(views, margin):
    z = unit([6, views, 4], seed=views)
    oracles = {"semi_hard": semi_hard_loops, "hard": hard_loops}
    for mining, oracle in oracles.items():
        loss = losses.TripletLoss(margin, mining, reduction="none")
        np.testing.assert_allclose(
            loss(LABELS, z), [oracle(z, LABELS, margin)] * 6, rtol=1e-4
        )


@pytest.mark.parametrize("mining", ["semi_hard", "hard"])
def test_triplet_has_tfas_value_and_gradient(mining):
    tfa = pytest.importorskip("tensorflow_addons", exc_type=ImportError)
    mined = getattr(tfa.losses, f"triplet_{mining.replace('_', '')}_loss")
    z, labels = unit([40, 2, 8]), np.arange(40) % 7
    value, gradient = value_and_gradient(
        losses.TripletLoss(0.5, mining, reduction="none"), labels, z
    )
    rows = tf.constant(z.reshape(80, 8))
    with tf.GradientTape() as tape:
        tape.watch(rows)
        expected = mined(
            np.repeat(labels, 2), rows, 0.5, distance_metric="squared-L2"
        )
    np.testing.assert_allclose(value, [expected] * 40, rtol=1e-5)
    np.testing.assert_allclose(
        tf.reshape(gradient, [80, 8]),
        40 * tape.gradient(expected, rows),  # the mean stands 40 times
        rtol=1e-4,
        atol=1e-5,
    )


@pytest.mark.parametrize("name", EVERY_LOSS)
@pytest.mark.parametrize("labels", [[0] * 4, [0, 1, 2, 3], [0, 1, 0, 1]])
@pytest.mark.parametrize("collapsed", [False, True])
def test_values_and_gradients_are_finite(name, labels, collapsed):
    z = unit([4, 2, 8])
    if collapsed:
        z = np.broadcast_to(z[:1, :1], z.shape)
    value, gradient = value_and_gradient(
        EVERY_LOSS[name](), np.array(labels), z
    )
    assert value.shape == (4,) and value.dtype == np.float32
    assert np.isfinite(value).all() and np.isfinite(gradient).all()
    half = EVERY_LOSS[name]().call(labels, tf.cast(z, tf.bfloat16))
    assert half.dtype == tf.float32


@pytest.mark.parametrize("name", EVERY_LOSS)
def test_in_a_function_with_unknown_batch(name):
    loss = EVERY_LOSS[name]()
    step = tf.function(
        loss.call,
        input_signature=[
            tf.TensorSpec([None], tf.int32),
            tf.TensorSpec([None, 2, 4]),
        ],
    )
    for batch in (3, 6):
        z = unit([batch, 2, 4])
        np.testing.assert_allclose(
            step(LABELS[:batch], z), loss.call(LABELS[:batch], z), rtol=1e-5
        )


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


@pytest.mark.slow(but=["True-supcon", "True-npairs", "True-triplet"])
@pytest.mark.parametrize("name", [*EVERY_LOSS, "supcon", "capped supcon"])
@pytest.mark.parametrize("cross_replica", [True, False])
def test_two_replicas_equal_one_device(mirrored_strategy, name, cross_replica):
    """Or, without cross_replica, the two replicas alone."""
    loss = (EVERY_LOSS | SUPCON)[name](cross_replica=cross_replica)
    z, labels = unit([7, 2, 4], seed=6), np.array([0, 0, 0, 1, 1, 0, 2])
    split = [slice(0, 4), slice(4, 7)]

    results = vectors.on_two_replicas(
        mirrored_strategy,
        lambda z, labels: value_and_gradient(loss, labels, z),
        split,
        z,
        labels,
    )
    batches = [slice(0, 7)] if cross_replica else split
    expected = [
        value_and_gradient(loss, labels[batch], z[batch]) for batch in batches
    ]
    for result, expected_result in zip(
        results, zip(*expected, strict=True), strict=True
    ):
        np.testing.assert_allclose(
            result, np.concatenate(expected_result), rtol=1e-4, atol=1e-6
        )
