"""Measures of scores against loops, closed forms and scikit-learn."""

import math

import numpy as np
import pytest
from sklearn import metrics as sklearn_metrics

from supcon_tf.measures import metrics, predictions


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


def test_top_k_equals_scikit_learn_without_ties():
    scores, labels = _distributions()
    for k in (1, 2, 3, 5):
        expected = sklearn_metrics.top_k_accuracy_score(
            labels, scores, k=k, labels=np.arange(6)
        )
        value = metrics.top_k_accuracy(scores, labels, k)
        assert value == pytest.approx(expected)


def test_of_equal_scores_the_lower_class_id_comes_first():
    scores = np.array([[0.4, 0.4, 0.2], [0.4, 0.4, 0.2], [0.1, 0.3, 0.6]])
    labels = [0, 1, 1]
    assert metrics.label_ranks(scores, labels).tolist() == [0, 1, 1]
    assert metrics.top_k_accuracy(scores, labels, 1) == pytest.approx(1 / 3)
    assert metrics.top_k_accuracy(scores, labels, 2) == 1.0

    scores, labels = _distributions()
    for k in (6, 100):  # all classes, and more than there are
        assert metrics.top_k_accuracy(scores, labels, k) == 1.0
    for k, expected in ((1, 0.5), (2, 0.75), (3, 1.0)):
        equal_scores = np.ones((4, 3))
        assert metrics.top_k_accuracy(equal_scores, [0, 1, 2, 0], k) == expected
    # Masked logits are scores.
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
    for index in range(num_bins):
        confidences, hits = [], []
        for row, label in zip(probabilities, labels, strict=True):
            confidence = max(row)
            is_in_bin = index / num_bins < confidence <= (index + 1) / num_bins
            if is_in_bin or (index == 0 and confidence == 0):
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


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
def test_confidence_one_is_in_the_last_bin(dtype):
    bins = metrics.calibration_bins(np.eye(3, dtype=dtype), [0, 1, 0])
    assert bins.count.tolist() == [0] * 14 + [3]
    assert bins.confidence[-1] == 1.0
    assert bins.accuracy[-1] == pytest.approx(2 / 3)
    # A rounded-up float32 softmax opens no bin of its own either.
    above_one = np.array([[1.0000001, 0.0]], np.float32)
    bins = metrics.calibration_bins(above_one, [0])
    assert bins.count.tolist() == [0] * 14 + [1]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("num_bins", [5, 10, 15, 20])
def test_edges_belong_to_the_bin_below(num_bins, dtype):
    # Float32 0.6 exceeds float64 3/5, and linspace's 3/5 exceeds 0.6.
    for index in range(-(-num_bins // 2), num_bins):
        probabilities = _two_class([(index + 1) / num_bins], dtype)
        bins = metrics.calibration_bins(probabilities, [0], num_bins)
        assert np.flatnonzero(bins.count).tolist() == [index]


def test_calibration_by_hand():
    # Five bins: 0.55 and 0.6 in (0.4, 0.6], 0.9 and 1.0 in (0.8, 1].
    probabilities = _two_class([0.55, 0.6, 0.9, 1.0])
    bins = metrics.calibration_bins(probabilities, [0, 1, 0, 0], num_bins=5)
    assert bins.count.tolist() == [0, 0, 2, 0, 2]
    np.testing.assert_allclose(bins.confidence, [0, 0, 0.575, 0, 0.95])
    np.testing.assert_allclose(bins.accuracy, [0, 0, 0.5, 0, 1.0])
    for rows, labels, expected in (
        (probabilities, [0, 1, 0, 0], 0.5 * 0.075 + 0.5 * 0.05),
        # Perfect: at confidence 0.75 3 of 4 are right, at 0.5 1 of 2.
        (_two_class([0.75] * 4 + [0.5] * 2), [0, 0, 0, 1, 0, 1], 0.0),
        (np.eye(3)[[0, 1, 2, 0]], [1, 2, 0, 2], 1.0),  # sure, always wrong
    ):
        ece = metrics.expected_calibration_error(rows, labels, 5)
        assert ece == pytest.approx(expected)


def test_likelihood_and_brier_score_equal_the_loops():
    probabilities, labels = _distributions(60, 4)
    nll = brier = 0.0
    for row, label in zip(probabilities, labels, strict=True):
        nll -= math.log(row[label]) / len(labels)
        for class_id, p in enumerate(row):
            brier += (p - float(class_id == label)) ** 2 / len(labels)
    for dtype, tolerance in ((np.float64, 1e-12), (np.float32, 1e-6)):
        arguments = probabilities.astype(dtype), labels
        assert metrics.negative_log_likelihood(*arguments) == pytest.approx(
            nll, abs=tolerance
        )
        assert metrics.brier_score(*arguments) == pytest.approx(
            brier, abs=tolerance
        )
    assert nll == pytest.approx(sklearn_metrics.log_loss(labels, probabilities))
    assert brier == pytest.approx(
        sklearn_metrics.brier_score_loss(
            labels, probabilities, scale_by_half=False
        )
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
def test_likelihood_and_brier_score_by_hand(dtype):
    certain = np.eye(3, dtype=dtype)
    flat = np.full((5, 4), 0.25, np.float32)
    above_one = np.array([[1.0000001, 0.0]], np.float32)  # rounded up
    # Not infinite: probability 0 counts as the smallest normal float32.
    for rows, labels, nll, brier in (
        (certain, [0, 1, 2], 0.0, 0.0),
        (certain, [1, 2, 0], 126 * math.log(2), 2.0),
        (flat, [0, 1, 2, 3, 0], math.log(4), 0.75),
        (above_one, [0], 0.0, 0.0),
    ):
        assert metrics.brier_score(rows, labels) == pytest.approx(brier)
        likelihood = metrics.negative_log_likelihood(rows, labels)
        assert likelihood == pytest.approx(nll) and likelihood >= 0


def test_rows_of_the_confusion_matrix_are_true_classes():
    matrix = metrics.confusion_matrix([1, 1, 2, 0], [0, 0, 2, 0], 4)
    assert matrix.dtype == np.int64
    assert matrix.tolist() == [
        [1, 2, 0, 0],
        [0, 0, 0, 0],
        [0, 0, 1, 0],
        [0, 0, 0, 0],
    ]
    recall = metrics.per_class_recall([1, 1, 2, 0], [0, 0, 2, 0], 4)
    assert recall == [pytest.approx(1 / 3), None, 1.0, None]
    # A class with examples, none of them found, is 0 and not absent.
    assert metrics.per_class_recall([1], [0], 2) == [0.0, None]


@pytest.mark.parametrize(
    ("predicted", "labels", "num_classes", "message"),
    [
        ([0], [0, 1], 2, r"`predicted` must have shape \(2,\)"),
        ([0, 2], [0, 1], 2, r"`predicted` must lie in \[0, 2\), got 2"),
        ([0, 1], [[0, 1]], 2, "`labels` must have shape"),
        ([], [], 0, "`num_classes` must be at least 1, got 0"),
    ],
)
def test_confusion_errors(predicted, labels, num_classes, message):
    with pytest.raises(ValueError, match=message):
        metrics.confusion_matrix(predicted, labels, num_classes)


@pytest.mark.parametrize(
    "measure",
    [
        metrics.calibration_bins,
        metrics.expected_calibration_error,
        metrics.negative_log_likelihood,
        metrics.brier_score,
        predictions.classification_summary,
    ],
)
@pytest.mark.parametrize(
    ("probabilities", "labels", "message"),
    [
        (np.ones(3), [0], "`probabilities` must have shape"),
        (np.ones((1, 3)), [0], "sum to 1 in each row, got a sum of 3.0; apply"),
        ([[np.nan, 1.0]], [0], "sum to 1 in each row, got a sum of nan"),
        ([[-1.0, 2.0]], [0], "must not be negative, got -1.0"),
        ([[0.5, 0.5]], [2], r"`labels` must lie in \[0, 2\), got 2"),
        ([[0.5, 0.5]], [[1, 0]], r"`labels` must have shape \(1,\)"),
    ],
)
def test_what_is_no_distribution_is_refused(
    measure, probabilities, labels, message
):
    with pytest.raises(ValueError, match=message):
        measure(probabilities, labels)


def test_bins_are_at_least_one_and_the_input_is_left_as_it_is():
    with pytest.raises(ValueError, match="`num_bins` must be at least 1, g"):
        metrics.calibration_bins([[0.5, 0.5]], [0], 0)
    probabilities, labels = _distributions()
    copy = probabilities.copy()
    predictions.classification_summary(probabilities, labels)
    np.testing.assert_array_equal(probabilities, copy)


def test_levels_of_a_hierarchy_by_hand():
    """Two animals and two plants: one mistake inside, two outside, of six."""
    ancestors = [[0, 0], [0, 1], [1, 2], [1, 3]]
    labels, predicted = [0, 1, 2, 3, 0, 1], [0, 0, 2, 3, 2, 3]
    summary = metrics.level_summary(predicted, labels, ancestors)
    assert summary == {
        "top_1_by_level": [4 / 6, 3 / 6],
        "parent_top_1": 4 / 6,
        "mistakes_inside_parent": 1 / 3,
    }
    perfect_summary = metrics.level_summary(labels, labels, ancestors)
    assert perfect_summary["mistakes_inside_parent"] is None


def test_shots_by_hand():
    recalls, counts = [0.9, 0.7, None, 0.5, 0.1], [500, 101, 90, 20, 19]
    assert metrics.shot_summary(recalls, counts) == {
        "many": pytest.approx(0.8),
        "medium": 0.5,
        "few": 0.1,
        "mean": pytest.approx(0.55),
    }
    assert metrics.shot_summary([0.5], [50])["few"] is None
    with pytest.raises(ValueError, match="as many as `recalls`"):
        metrics.shot_summary([0.5], [50, 1])
