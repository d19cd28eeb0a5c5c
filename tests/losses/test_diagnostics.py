"""The diagnostics against loops over pairs, and against closed forms."""

import math

import numpy as np
import pytest
import tensorflow as tf

from supcon_tf import losses
from supcon_tf.keras_2 import keras
from tests.losses import vectors

NAMES = [
    "contrastive_accuracy",
    "alignment",
    "uniformity",
    "mean_cosine",
    "positives_per_anchor",
    "share_without_positives",
]
LABELS = np.array([4, 4, -2, 4, -2, 9])


def oracle(z, labels):
    """Loops over anchors and over the other rows, float64."""
    z, views = np.asarray(z, np.float64), z.shape[1]
    labels, z = np.repeat(labels, views), z.reshape(-1, z.shape[2])
    correct, distances, potentials, cosines, counts = [], [], [], [], []
    for i in range(len(z)):
        contrasts = [j for j in range(len(z)) if j != i]
        positives = [p for p in contrasts if labels[p] == labels[i]]
        squares = {j: np.sum((z[i] - z[j]) ** 2) for j in contrasts}
        potentials += [math.exp(-2 * s) for s in squares.values()]
        cosines += [np.dot(z[i], z[j]) for j in contrasts]
        counts.append(len(positives))
        if positives:
            correct.append(min(squares, key=squares.get) in positives)
            distances.append(np.mean([squares[p] for p in positives]))
    return {
        "contrastive_accuracy": np.mean(correct) if correct else 0.0,
        "alignment": np.mean(distances) if distances else 0.0,
        "uniformity": math.log(np.mean(potentials)),
        "mean_cosine": np.mean(cosines),
        "positives_per_anchor": np.mean(counts),
        "share_without_positives": np.mean(np.equal(counts, 0)),
    }


def measure(z, labels, metrics=None):
    metrics = metrics or losses.diagnostics()
    for metric in metrics:
        metric.update_state(labels, z)
    return {metric.name: float(metric.result()) for metric in metrics}


def assert_figures(figures, expected, atol=1e-5):
    assert figures.keys() == expected.keys()
    for name, value in expected.items():
        assert figures[name] == pytest.approx(value, abs=atol, rel=1e-5), name


@pytest.mark.parametrize("views", [1, 2, 3])
@pytest.mark.parametrize("seed", range(3))
def test_equal_the_loops_over_pairs(views, seed):
    z = vectors.unit([6, views, 5], seed)
    figures = measure(z, LABELS)
    assert list(figures) == NAMES
    assert_figures(figures, oracle(z, LABELS))
    # Of any length, and two-dimensional where there is one view.
    lengths = np.random.default_rng(seed).uniform(0.1, 30, [6, views, 1])
    assert_figures(measure(z * lengths, LABELS), figures)
    if views == 1:
        assert_figures(measure(z[:, 0], LABELS), figures)


def test_without_labels_the_positives_are_the_other_views():
    """As in SimCLRLoss; one label of all images would be a perfect score."""
    z = vectors.unit([6, 2, 5])
    for labels in (np.zeros(6, int), LABELS, np.eye(6)[[0] * 6] + np.eye(6)):
        metrics = losses.diagnostics(multi_label=True, ignore_labels=True)
        assert_figures(measure(z, labels, metrics), oracle(z, np.arange(6)))
    accuracy = losses.ContrastiveAccuracy(multi_label=True, ignore_labels=True)
    figures = measure(z, np.eye(6), [accuracy])
    expected = oracle(z, np.arange(6))[accuracy.name]
    assert figures[accuracy.name] == pytest.approx(expected, abs=1e-5)
    copies = [
        type(metric).from_config(metric.get_config()) for metric in metrics
    ]
    assert_figures(measure(z, LABELS, copies), oracle(z, np.arange(6)))


def test_unsupervised_classes_have_their_own_views_alone():
    """As in SupConLoss, on which the figures are to tell of."""
    z = vectors.unit([6, 2, 5])
    metrics = losses.diagnostics(unsupervised_classes=[4, 9])
    expected = oracle(z, np.array([-10, -11, -2, -12, -2, -13]))
    for labels in (LABELS, LABELS[:, None]):
        for metric in metrics:
            metric.reset_state()
        assert_figures(measure(z, labels, metrics), expected)
    copies = [
        type(metric).from_config(metric.get_config()) for metric in metrics
    ]
    assert_figures(measure(z, LABELS, copies), expected)
    assert expected != oracle(z, LABELS)
    with pytest.raises(ValueError, match="`unsupervised_classes` must be a s"):
        losses.Alignment(unsupervised_classes="4")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_low_precision_is_computed_in_float32(dtype, float32_policy):
    z = tf.cast(vectors.unit([32, 2, 16]), dtype)
    labels = np.arange(32) % 7
    rounded = tf.math.l2_normalize(tf.cast(z, tf.float32), axis=2).numpy()
    keras.mixed_precision.set_global_policy(f"mixed_{dtype}")
    assert_figures(measure(z, labels), oracle(rounded, labels))


def test_every_form_of_labels():
    z = vectors.unit([6, 2, 5])
    expected = measure(z, LABELS)
    ids = np.unique(LABELS, return_inverse=True)[1]
    for labels in (LABELS[:, None], LABELS.astype(np.int8), np.eye(3)[ids]):
        assert measure(z, labels) == expected
    with pytest.raises(tf.errors.InvalidArgumentError, match="one-hot"):
        measure(z, np.ones([6, 3]))


@pytest.mark.parametrize("samples", [6, 4096])
def test_collapsed_projections(samples):
    """Also in a batch where float32 sums of equal rows have lost digits."""
    z = np.tile(vectors.unit([1, 1, 128]), [samples, 2, 1]).astype(np.float32)
    figures = measure(z, np.arange(samples) % 3)
    assert figures["contrastive_accuracy"] == 0  # every row is a tie
    assert figures["alignment"] == pytest.approx(0, abs=1e-6)
    assert figures["uniformity"] == pytest.approx(0, abs=1e-5)
    assert figures["mean_cosine"] == pytest.approx(1, abs=1e-4)


def test_classes_at_the_corners_of_a_simplex():
    corners = np.eye(4) - 0.25
    z = np.repeat((corners / np.linalg.norm(corners[0]))[:, None], 4, axis=1)
    pairs, cosine = 3 / 15, -1 / 3  # share of positives; of two corners
    assert_figures(
        measure(z.reshape(8, 2, 4), np.repeat(np.arange(4), 2)),
        {
            "contrastive_accuracy": 1.0,
            "alignment": 0.0,
            "uniformity": math.log(
                pairs + (1 - pairs) * math.exp(4 * (cosine - 1))
            ),
            "mean_cosine": pairs + (1 - pairs) * cosine,
            "positives_per_anchor": 3.0,
            "share_without_positives": 0.0,
        },
    )


def test_uniform_projections_of_128_dimensions():
    figures = measure(vectors.unit([2048, 1, 128]), np.arange(2048) % 10)
    assert figures["uniformity"] == pytest.approx(-3.94, abs=0.01)
    assert figures["alignment"] == pytest.approx(2, abs=0.01)
    assert figures["mean_cosine"] == pytest.approx(0, abs=1e-3)


def test_tight_classes_lose_no_digits():
    """Distances of 1e-3, where |sum z|^2 - sum |z|^2 would be noise."""
    noise = np.random.default_rng(0).normal(size=[8, 2, 16])
    z = np.repeat(vectors.unit([2, 1, 16]), 4, axis=0) + 2e-4 * noise
    z = (z / np.linalg.norm(z, axis=2, keepdims=True)).astype(np.float32)
    labels = np.repeat([0, 1], 4)
    expected = oracle(z, labels)["alignment"]
    assert expected < 2e-6
    alignment = measure(z, labels)["alignment"]
    assert alignment == pytest.approx(expected, rel=1e-3)


def test_nothing_to_measure_is_zero():
    zero_figures = dict.fromkeys(NAMES, 0.0)
    single_row = zero_figures | {"share_without_positives": 1.0}
    assert measure(vectors.unit([1, 1, 4]), [3]) == single_row
    no_positives = measure(vectors.unit([5, 1, 4]), np.arange(5))
    for name in set(NAMES) - {"uniformity", "mean_cosine"}:
        assert no_positives[name] == single_row[name]
    assert measure(np.zeros([0, 2, 4]), np.zeros([0], int)) == zero_figures
    initial = {
        metric.name: float(metric.result()) for metric in losses.diagnostics()
    }
    assert initial == zero_figures
    one_class = measure(vectors.unit([4, 2, 4]), [7] * 4)
    assert one_class["contrastive_accuracy"] == 1  # no neighbour is wrong
    zeros = measure(np.zeros([6, 2, 4]), LABELS)
    assert all(math.isfinite(value) for value in zeros.values())


def test_a_subsample_measures_its_own_anchors():
    z = vectors.unit([9, 1, 4], seed=3)
    labels = np.array([0, 1, 0, 1, 1, 0, 0, 1, 0])
    rows = [0, 2, 4, 6]  # k * 9 // 4
    cosines = z[:, 0] @ z[:, 0].T - 9 * np.eye(9)
    correct = labels[np.argmax(cosines, axis=1)] == labels
    subsample = z[rows]
    expected = oracle(subsample, labels[rows])["uniformity"]
    figures = measure(
        z, labels, [losses.ContrastiveAccuracy(4), losses.Uniformity(4)]
    )
    assert figures["contrastive_accuracy"] == np.mean(correct[rows])
    assert figures["uniformity"] == pytest.approx(expected, rel=1e-5)


def test_batches_weigh_by_their_anchors():
    """Uniformity is the log of the mean, not the mean of logs."""
    first_z, second_z = (
        vectors.unit([4, 1, 4]),
        np.tile(vectors.unit([1, 1, 4]), [2, 1, 1]),
    )
    metrics = losses.diagnostics()
    measure(first_z, [0, 0, 1, 2], metrics)
    figures = measure(second_z, [0, 0], metrics)
    first, second = oracle(first_z, [0, 0, 1, 2]), oracle(second_z, [0, 0])
    assert figures["alignment"] == pytest.approx(
        first["alignment"] / 2, rel=1e-5
    )
    assert figures["share_without_positives"] == pytest.approx(2 / 6)
    assert figures["uniformity"] == pytest.approx(
        math.log(
            (4 * math.exp(first["uniformity"]) + 2)
            / (4 + 2 * math.exp(second["uniformity"]))
        ),
        rel=1e-5,
    )
    for metric in metrics:
        metric.reset_state()
        assert metric.result() == 0


def test_soft_labels_have_what_needs_no_labels():
    """They are the same as of classes; the others refuse them."""
    z = vectors.unit([4, 2, 5]).astype(np.float32)
    soft = np.array([[0.5, 0.5], [1, 0], [0.25, 0.75], [0, 1]])
    expected = oracle(z, LABELS[:4])
    metrics = losses.diagnostics(soft_labels=True)
    for metric in metrics:
        value = float(metric(soft, z))
        assert value == pytest.approx(expected[metric.name], abs=1e-5)
    assert [metric.name for metric in metrics] == ["uniformity", "mean_cosine"]
    for metric in losses.diagnostics():
        if metric.name not in ("uniformity", "mean_cosine"):
            with pytest.raises(
                tf.errors.InvalidArgumentError, match="soft labels need"
            ):
                metric(soft, z)


def test_in_a_function_with_unknown_batch():
    metrics = losses.diagnostics()

    @tf.function(
        input_signature=[
            tf.TensorSpec([None, 2, 4]),
            tf.TensorSpec([None], tf.int32),
        ]
    )
    def step(z, labels):
        for metric in metrics:
            metric.reset_state()
            metric.update_state(labels, z)
        return {metric.name: metric.result() for metric in metrics}

    for batch in (6, 3):
        z = vectors.unit([batch, 2, 4]).astype(np.float32)
        figures = step(z, LABELS[:batch].astype(np.int32))
        assert_figures(
            {name: float(value) for name, value in figures.items()},
            oracle(z, LABELS[:batch]),
        )


@pytest.mark.parametrize("cross_replica", [True, False])
def test_two_replicas(mirrored_strategy, cross_replica):
    """Rows are compared within a replica; positives are counted on both."""
    strategy = mirrored_strategy
    z = vectors.unit([6, 2, 5]).astype(np.float32)
    parts = [slice(0, 4), slice(4, 6)]
    with strategy.scope():
        metrics = losses.diagnostics(cross_replica)

    def replica_step(z, labels):
        for metric in metrics:
            metric.update_state(labels, z)
        return [labels]

    vectors.on_two_replicas(strategy, replica_step, parts, z, LABELS)
    figures = {metric.name: float(metric.result()) for metric in metrics}
    local = [oracle(z[part], LABELS[part]) for part in parts]
    expected = {
        name: (4 * local[0][name] + 2 * local[1][name]) / 6 for name in NAMES
    }
    expected["uniformity"] = math.log(
        sum(
            share * math.exp(figures["uniformity"])
            for share, figures in zip((4 / 6, 2 / 6), local, strict=True)
        )
    )
    if cross_replica:
        global_figures = oracle(z, LABELS)
        for name in ("positives_per_anchor", "share_without_positives"):
            expected[name] = global_figures[name]
    assert_figures(figures, expected)


def test_bad_arguments_are_named():
    with pytest.raises(ValueError, match="`anchors` must be positive, got 0"):
        losses.ContrastiveAccuracy(0)
    with pytest.raises(ValueError, match="`anchors` must be at least 2, got 1"):
        losses.Uniformity(1)
    for metric in losses.diagnostics():
        with pytest.raises(ValueError, match="`sample_weight` must be None"):
            metric.update_state([0, 1], vectors.unit([2, 1, 4]), tf.ones([2]))
        with pytest.raises(ValueError, match="the view axis is second"):
            metric.update_state([0, 1], np.ones([2, 1, 4, 1]))
