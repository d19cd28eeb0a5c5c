"""Measures of scores against loops, closed forms and scikit-learn."""

import math

import numpy as np
import pytest
from sklearn import metrics as sklearn_metrics

from supcon_tf.measures import metrics, predictions


def _distributions(examples=500, num_classes=6, seed=0):
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
    for k in (1, 2, 5):
        expected = sklearn_metrics.top_k_accuracy_score(
            labels, scores, k=k, labels=np.arange(6)
        )
        accuracy = metrics.top_k_accuracy(scores, labels, k)
        assert accuracy == pytest.approx(expected)
    for k in (6, 100):  # all classes, and more than there are
        assert metrics.top_k_accuracy(scores, labels, k) == 1.0


def test_of_equal_scores_the_lower_class_id_comes_first():
    scores = np.array([[0.4, 0.4, 0.2], [0.4, 0.4, 0.2], [0.1, 0.3, 0.6]])
    assert metrics.label_ranks(scores, [0, 1, 1]).tolist() == [0, 1, 1]
    for k, expected in ((1, 0.5), (2, 0.75), (3, 1.0)):
        equal_scores = np.ones((4, 3))
        assert metrics.top_k_accuracy(equal_scores, [0, 1, 2, 0], k) == expected
    masked_logits = np.array([[-np.inf, 2.0], [np.inf, 2.0]])
    assert metrics.top_k_accuracy(masked_logits, [1, 1], 1) == 0.5


@pytest.mark.parametrize(
    ("scores", "labels", "k", "message"),
    [
        (np.ones(3), [0], 1, r"`scores` must have shape .* got shape \(3,\)"),
        (np.ones((0, 3)), [], 1, "not be empty"),
        (np.ones((2, 3)), np.eye(3)[:2], 1, r"shape \(2,\).*got \(2, 3\)"),
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


@pytest.mark.parametrize("num_bins", [1, 15, 40])
def test_ece_equals_the_loop(num_bins):
    probabilities, labels = _distributions(200, seed=num_bins)
    expected = _ece_loop(probabilities, labels, num_bins)
    for dtype, tolerance in ((np.float64, 1e-12), (np.float32, 1e-6)):
        ece = metrics.expected_calibration_error(
            probabilities.astype(dtype), labels, num_bins
        )
        assert ece == pytest.approx(expected, abs=tolerance)


def test_edges_belong_to_the_bin_below():
    # Float32 0.6 exceeds float64 3/5, and linspace's 3/5 exceeds 0.6.
    for dtype in (np.float32, np.float64):
        for num_bins in (5, 10, 15, 20):
            for index in range(-(-num_bins // 2), num_bins):
                rows = _two_class([(index + 1) / num_bins], dtype)
                bins = metrics.calibration_bins(rows, [0], num_bins)
                assert np.flatnonzero(bins.count).tolist() == [index]
    # A rounded-up float32 softmax opens no bin, nor do certain integers.
    for rows in (np.float32([[1.0000001, 0.0]]), np.eye(2, dtype=int)[:1]):
        bins = metrics.calibration_bins(rows, [0])
        assert bins.count.tolist() == [0] * 14 + [1]


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
    with pytest.raises(ValueError, match="`num_bins` must be at least 1, g"):
        metrics.calibration_bins(probabilities, [0, 1, 0, 0], 0)


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


def test_likelihood_and_brier_score_by_hand():
    # Not infinite: probability 0 counts as the smallest normal float32.
    for rows, labels, nll, brier in (
        (np.eye(3), [0, 1, 2], 0.0, 0.0),
        (np.eye(3, dtype=int), [1, 2, 0], 126 * math.log(2), 2.0),
        (np.full((5, 4), 0.25), [0, 1, 2, 3, 0], math.log(4), 0.75),
        (np.float32([[1.0000001, 0.0]]), [0], 0.0, 0.0),  # rounded up
    ):
        assert metrics.brier_score(rows, labels) == pytest.approx(brier)
        likelihood = metrics.negative_log_likelihood(rows, labels)
        assert likelihood == pytest.approx(nll) and likelihood >= 0


def test_rows_of_the_confusion_matrix_are_true_classes():
    predicted, labels = [1, 1, 2, 0], [0, 0, 2, 0]
    matrix = metrics.confusion_matrix(predicted, labels, 4)
    assert matrix.dtype == np.int64
    assert matrix.tolist() == [[1, 2, 0, 0], [0] * 4, [0, 0, 1, 0], [0] * 4]
    recall = metrics.per_class_recall(predicted, labels, 4)
    assert recall == [pytest.approx(1 / 3), None, 1.0, None]
    # A class with examples, none of them predicted, is 0 and not absent.
    assert metrics.per_class_recall([1], [0], 2) == [0.0, None]
    for classes, message in (
        (([0], [0, 1], 2), r"`predicted` must have shape \(2,\)"),
        (([0, 2], [0, 1], 2), r"`predicted` must lie in \[0, 2\), got 2"),
        (([], [], 0), "`num_classes` must be at least 1, got 0"),
    ):
        with pytest.raises(ValueError, match=message):
            metrics.confusion_matrix(*classes)


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
def test_rows_that_are_no_distributions_are_refused(
    probabilities, labels, message
):
    for measure in (
        metrics.expected_calibration_error,
        metrics.negative_log_likelihood,
        metrics.brier_score,
        predictions.classification_summary,
    ):
        with pytest.raises(ValueError, match=message):
            measure(probabilities, labels)


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
    # Poodle and pug are dogs, cat and owl are animals, and a stone has no kind.
    tree = [[0, 0, 0], [0, 0, 1], [0, 1, 2], [0, 2, 3], [1, 3, 4]]
    labels, predicted = [0, 0, 2, 2, 4], [1, 2, 3, 0, 3]
    uneven = metrics.level_summary(predicted, labels, tree, [2, 2, 1, 1, 0])
    assert uneven["mistakes_inside_parent"] == uneven["parent_top_1"] == 3 / 5
    with pytest.raises(ValueError, match="`depths` must be 5 numbers below 3"):
        metrics.level_summary([0], [0], tree, [3, 2, 1, 1, 0])
    for one_level in ([[0], [1]], [0, 1]):
        with pytest.raises(
            ValueError, match=r"must be \[classes, levels\], of"
        ):
            metrics.level_summary([0], [0], one_level)


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
