"""Measures of several labels against scikit-learn, loops and closed forms."""

import numpy as np
import pytest
from sklearn import metrics

from supcon_tf import measures


@pytest.mark.parametrize("ties", [False, True])
def test_precision_and_recall_are_those_of_scikit_learn_and_voc(ties):
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, [50, 4])
    scores = np.clip(rng.normal(0.4 + 0.2 * labels, 0.2), 0, 1)
    scores = np.round(scores, 1) if ties else scores
    summary = measures.multi_label_summary(scores, labels)
    expected = metrics.average_precision_score(labels, scores, average=None)
    np.testing.assert_allclose(summary["average_precision"], expected)
    assert summary["map"] == pytest.approx(expected.mean())
    predicted = scores >= 0.5
    for name in ("micro", "macro"):
        f1 = metrics.f1_score(labels, predicted, average=name)
        assert summary[f"{name}_f1"] == pytest.approx(f1)
    recall = metrics.recall_score(labels, predicted, average=None)
    np.testing.assert_allclose(summary["per_class_recall"], recall)
    exact = metrics.accuracy_score(labels, predicted)
    assert summary["exact_match"] == pytest.approx(exact)
    means = []  # of 11 points, label by label
    for label_scores, truth in zip(scores.T, labels.T, strict=True):
        precision, recall, _ = metrics.precision_recall_curve(
            truth, label_scores
        )
        precision, recall = precision[:-1], recall[:-1]  # without (1, 0)
        points = [
            max(p for p, r in zip(precision, recall, strict=True) if r >= t)
            for t in np.linspace(0, 1, 11) - 1e-9
        ]
        means.append(np.mean(points))
    assert summary["map_11_point"] == pytest.approx(np.mean(means))


def test_calibration_by_hand():
    """Bins of 0.5: means of 0.2 and 0.9, shares of 1/2 and 1/2."""
    scores, labels = [[0.1, 0.9], [0.3, 0.9]], [[0, 1], [1, 0]]
    summary = measures.multi_label_summary(scores, labels, num_bins=2)
    assert summary["ece"] == pytest.approx((0.3 + 0.4) / 2)
    likelihoods = [0.9 * 0.9, 0.3 * 0.1]
    assert summary["nll"] == pytest.approx(-np.log(likelihoods).mean())
    certain = measures.multi_label_summary([[0.0]], [[1]])
    assert certain["nll"] == pytest.approx(-np.log(1e-12))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_bounds_are_in_the_precision_of_the_probabilities(dtype):
    """float32 0.7 is below 0.7 in float64, and 0.2 is above 1/5."""
    scores, labels = np.array([[0.7], [0.2], [0.1]], dtype), [[1], [1], [0]]
    summary = measures.multi_label_summary(scores, labels, 5, threshold=0.7)
    assert summary["per_class_recall"] == [0.5]
    # The two lower ones share the first bin.
    ece = (abs(0.15 - 0.5) * 2 + (1 - 0.7)) / 3
    assert summary["ece"] == pytest.approx(ece)


def test_a_label_without_examples():
    scores, labels = [[0.9, 0.2], [0.1, 0.1]], [[1, 0], [0, 0]]
    summary = measures.multi_label_summary(scores, labels)
    assert summary["average_precision"] == [1.0, None]
    assert summary["per_class_recall"] == [1.0, None]
    assert summary["map"] == summary["map_11_point"] == 1.0


def test_shares_of_neighbours():
    labels = np.array([[1, 0], [1, 1], [0, 0]])
    similarities = np.array([[0.9, 0.8], [0.5, 0.5]], np.float32)
    shares = measures.share_of_neighbors(
        similarities, np.array([[0, 1], [1, 2]]), labels, temperature=0.1
    )
    weight = 1 / (1 + np.exp(-1))
    expected = [[1, 1 - weight], [0.5, 0.5]]
    np.testing.assert_allclose(shares, expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("probabilities", "labels", "message"),
    [
        ([[0.5]], [1], r"\[examples, classes\], not empty, got \(1, 1\) and"),
        ([[np.nan]], [[1]], r"in \[0, 1\], got nan"),
        ([[0.5]], [[2]], "`labels` must be 0 or 1"),
        ([[0.5]], [[0]], "an example of some label, got none"),
    ],
)
def test_wrong_probabilities_and_labels_are_named(
    probabilities, labels, message
):
    with pytest.raises(ValueError, match=message):
        measures.multi_label_summary(probabilities, labels)
