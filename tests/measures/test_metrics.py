"""Top-k accuracy and calibration against loops, closed forms, scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn import metrics as sklearn_metrics

from supcon_tf.measures import metrics


def _distributions(examples: int = 500, num_classes: int = 6, seed: int = 0):
    generator = np.random.default_rng(seed)
    logits = 2 * generator.normal(size=(examples, num_classes))
    probabilities = np.exp(logits)
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    labels = generator.integers(num_classes, size=examples)
    # About half of the labels follow the prediction.
    follow = generator.random(examples) < 0.5
    labels[follow] = probabilities.argmax(axis=1)[follow]
    return probabilities, labels


def _two_class(confidences, dtype=np.float64):
    """Rows that predict class 0 with the given confidences."""
    confidences = np.array(confidences, dtype)
    return np.stack([confidences, 1 - confidences], axis=1)


@pytest.mark.parametrize("k", [1, 2, 3, 5])
def test_top_k_equals_scikit_learn_without_ties(k):
    scores, labels = _distributions()
    expected = sklearn_metrics.top_k_accuracy_score(
        labels, scores, k=k, labels=np.arange(6)
    )
    assert metrics.top_k_accuracy(scores, labels, k) == pytest.approx(expected)


@pytest.mark.parametrize(("k", "expected"), [(1, 0.0), (2, 0.0), (3, 1.0)])
def test_constant_scores_never_hit(k, expected):
    assert metrics.top_k_accuracy(np.ones((4, 3)), [0, 1, 2, 0], k) == expected


def test_ties_count_against_the_label():
    scores = np.array([[0.4, 0.4, 0.2], [0.5, 0.3, 0.2], [0.1, 0.3, 0.6]])
    labels = [0, 0, 1]
    assert metrics.top_k_accuracy(scores, labels, 1) == pytest.approx(1 / 3)
    assert metrics.top_k_accuracy(scores, labels, 2) == 1.0


def test_k_beyond_the_classes_gives_one():
    scores, labels = _distributions()
    assert metrics.top_k_accuracy(scores, labels, 6) == 1.0
    assert metrics.top_k_accuracy(scores, labels, 100) == 1.0


def test_masked_logits_are_scores():
    scores = np.array([[-np.inf, 2.0], [np.inf, 2.0]])
    assert metrics.top_k_accuracy(scores, [1, 1], 1) == 0.5


@pytest.mark.parametrize(
    ("scores", "labels", "k", "message"),
    [
        (np.ones(3), [0], 1, r"`scores` must have shape .* got shape \(3,\)"),
        (np.ones((0, 3)), [], 1, "not be empty"),
        (np.ones((2, 3)), [0], 1, r"`labels` must have shape \(2,\)"),
        (np.ones((2, 3)), np.eye(3)[:2], 1, r"got \(2, 3\)"),
        (np.ones((2, 3)), [0.0, 1.0], 1, "`labels` must be integers"),
        (np.ones((2, 3)), [0, 3], 1, r"must lie in \[0, 3\), got 3"),
        (np.ones((2, 3)), [0, -1], 1, "got -1; drop unlabelled examples"),
        (np.ones((2, 3)), [0, 1], 0, "`k` must be at least 1, got 0"),
        (np.full((2, 3), np.nan), [0, 1], 1, "must be numbers, got NaN"),
    ],
)
def test_top_k_errors(scores, labels, k, message):
    with pytest.raises(ValueError, match=message):
        metrics.top_k_accuracy(scores, labels, k)


def _ece_loop(probabilities, labels, num_bins):
    """Guo et al. Eq. 3, bin by bin and example by example."""
    total = 0.0
    for b in range(num_bins):
        confidences, hits = [], []
        for row, label in zip(probabilities, labels, strict=True):
            confidence = max(row)
            inside = b / num_bins < confidence <= (b + 1) / num_bins
            if inside or (b == 0 and confidence == 0):
                confidences.append(confidence)
                hits.append(float(list(row).index(confidence) == label))
        if confidences:
            gap = abs(sum(hits) - sum(confidences)) / len(hits)
            total += len(hits) / len(labels) * gap
    return total


@pytest.mark.parametrize("num_bins", [1, 7, 15, 40])
def test_ece_equals_the_loop(num_bins):
    probabilities, labels = _distributions(seed=num_bins)
    result = metrics.expected_calibration_error(probabilities, labels, num_bins)
    expected = _ece_loop(probabilities, labels, num_bins)
    assert result == pytest.approx(expected, abs=1e-12)
    single = metrics.expected_calibration_error(
        probabilities.astype(np.float32), labels, num_bins
    )
    assert single == pytest.approx(expected, abs=1e-6)


def test_perfectly_calibrated_gives_zero():
    # 4 examples at confidence 0.75 with 3 right, 2 at 0.5 with 1 right.
    probabilities = _two_class([0.75] * 4 + [0.5] * 2)
    labels = [0, 0, 0, 1, 0, 1]
    assert metrics.expected_calibration_error(probabilities, labels) == 0.0


def test_sure_and_always_wrong_gives_one():
    probabilities = np.eye(3)[[0, 1, 2, 0]]
    labels = [1, 2, 0, 2]
    assert metrics.expected_calibration_error(probabilities, labels) == 1.0


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
def test_confidence_one_is_in_the_last_bin(dtype):
    bins = metrics.calibration_bins(np.eye(3, dtype=dtype), [0, 1, 0])
    assert bins.count.tolist() == [0] * 14 + [3]
    assert bins.confidence[-1] == 1.0
    assert bins.accuracy[-1] == pytest.approx(2 / 3)
    # A rounded-up float32 softmax opens no bin of its own either.
    above = np.array([[1.0000001, 0.0]], np.float32)
    assert metrics.calibration_bins(above, [0]).count.tolist() == [0] * 14 + [1]


def test_four_samples_by_hand():
    # Five bins: 0.55 and 0.6 in (0.4, 0.6], 0.9 and 1.0 in (0.8, 1].
    probabilities = _two_class([0.55, 0.6, 0.9, 1.0])
    labels = [0, 1, 0, 0]
    bins = metrics.calibration_bins(probabilities, labels, num_bins=5)
    assert bins.count.tolist() == [0, 0, 2, 0, 2]
    np.testing.assert_allclose(bins.confidence, [0, 0, 0.575, 0, 0.95])
    np.testing.assert_allclose(bins.accuracy, [0, 0, 0.5, 0, 1.0])
    ece = metrics.expected_calibration_error(probabilities, labels, 5)
    assert ece == pytest.approx(0.5 * 0.075 + 0.5 * 0.05)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("num_bins", [5, 10, 15, 20])
def test_edges_belong_to_the_bin_below(num_bins, dtype):
    # Float32 0.6 exceeds float64 3/5, and linspace's 3/5 exceeds 0.6.
    for b in range(-(-num_bins // 2), num_bins):
        probabilities = _two_class([(b + 1) / num_bins], dtype)
        bins = metrics.calibration_bins(probabilities, [0], num_bins)
        assert np.flatnonzero(bins.count).tolist() == [b]


def test_bins_hold_every_example():
    probabilities, labels = _distributions()
    bins = metrics.calibration_bins(probabilities, labels)
    assert len(bins.count) == len(bins.confidence) == len(bins.accuracy) == 15
    assert bins.count.sum() == len(labels)
    hits = np.sum(bins.count * bins.accuracy)
    assert hits == pytest.approx(np.sum(probabilities.argmax(1) == labels))
    assert np.isfinite(bins.confidence).all()


@pytest.mark.parametrize(
    ("probabilities", "labels", "num_bins", "message"),
    [
        (np.ones(3), [0], 15, "`probabilities` must have shape"),
        (np.ones((1, 3)), [0], 15, "sum to 1 in each row, got a sum of 3.0"),
        ([[np.nan, 1.0]], [0], 15, "sum to 1 in each row, got a sum of nan"),
        ([[-1.0, 2.0]], [0], 15, "must not be negative, got -1.0"),
        ([[0.5, 0.5]], [2], 15, r"`labels` must lie in \[0, 2\), got 2"),
        ([[0.5, 0.5]], [[1, 0]], 15, r"`labels` must have shape \(1,\)"),
        ([[0.5, 0.5]], [0], 0, "`num_bins` must be at least 1, got 0"),
    ],
)
def test_calibration_errors(probabilities, labels, num_bins, message):
    for measure in (
        metrics.calibration_bins,
        metrics.expected_calibration_error,
    ):
        with pytest.raises(ValueError, match=message):
            measure(probabilities, labels, num_bins)
