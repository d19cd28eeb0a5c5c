"""Scores of belonging and their measures, against loops and scikit-learn."""

import numpy as np
import pytest
from sklearn import metrics as sklearn_metrics

from supcon_tf import measures


@pytest.fixture
def bank():
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(3), 20)
    return rng.normal(3 * np.eye(3, 5)[labels], 0.5), labels


@pytest.fixture
def queries():
    return np.random.default_rng(1).normal(size=[30, 5])


def unit(rows):
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@pytest.mark.parametrize("k", [1, 7, 1000])
def test_neighbor_scores_are_the_kth_largest_cosine(bank, queries, k):
    rows, _ = bank
    scores = measures.neighbor_scores(queries, rows, k)
    for query, score in zip(unit(queries), scores, strict=True):
        cosines = sorted((unit(rows) @ query).tolist(), reverse=True)
        assert score == pytest.approx(cosines[min(k, 60) - 1], abs=1e-5)
    left_out = measures.neighbor_scores(rows, rows, 1, leave_one_out=True)
    assert left_out.max() < 1 - 1e-6 < measures.neighbor_scores(rows, rows)[0]


def test_mahalanobis_scores_by_loops(bank, queries):
    rows, labels = unit(bank[0]), bank[1]
    means = [rows[labels == c].mean(axis=0) for c in range(3)]
    covariance = np.zeros([5, 5])
    for row, label in zip(rows, labels, strict=True):
        difference = row - means[label]
        covariance += np.outer(difference, difference) / len(rows)
    covariance += 1e-3 * np.trace(covariance) / 5 * np.eye(5)
    inverse = np.linalg.inv(covariance)
    expected = [
        -min(
            np.sqrt((query - mean) @ inverse @ (query - mean)) for mean in means
        )
        for query in unit(queries)
    ]
    scores = measures.mahalanobis_scores(7 * queries, bank[0], 10 * labels)
    np.testing.assert_allclose(scores, expected, rtol=1e-4)


def test_mahalanobis_scores_of_few_examples_in_many_dimensions():
    rng = np.random.default_rng(0)
    centers = rng.normal(size=[2, 64])
    labels = np.array([0, 0, 1, 1])
    rows = centers[labels] + rng.normal(scale=0.1, size=[4, 64])
    queries = np.concatenate([centers, rng.normal(size=[1, 64])])
    scores = measures.mahalanobis_scores(queries, rows, labels)
    assert np.isfinite(scores).all() and scores[2] < scores[:2].min()


@pytest.mark.parametrize("dim", [4, 40])  # of 20 rows
def test_a_row_that_is_left_out_has_the_score_of_a_new_row(dim):
    rng = np.random.default_rng(0)
    labels = np.append(np.arange(19) % 3, 7)  # the last class has one row
    rows = 2 * rng.normal(size=[8, dim])[labels] + rng.normal(size=[20, dim])
    scores = measures.mahalanobis_scores(rows, rows, labels, leave_one_out=True)
    for index, score in enumerate(scores):
        (expected,) = measures.mahalanobis_scores(
            rows[index : index + 1],
            np.delete(rows, index, axis=0),
            np.delete(labels, index),
        )
        assert score == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("rate", [0.05, 0.95, 1.0])
def test_the_threshold_lets_the_share_pass(rate):
    for count in (1, 20, 33):
        scores = np.random.default_rng(count).permutation(count) / 7
        threshold = measures.known_threshold(scores, rate)
        assert (scores >= threshold).mean() >= rate
        assert (scores > threshold).mean() < rate


@pytest.mark.parametrize("levels", [3, 10_000])  # many ties, and none
def test_the_summary_equals_scikit_learn(levels):
    rng = np.random.default_rng(0)
    known = np.rint(rng.normal(1, 1, 80) * levels)
    unknown = np.rint(rng.normal(0, 1, 50) * levels)
    summary = measures.unknown_summary(known, unknown)
    is_unknown = np.repeat([0, 1], [80, 50])
    scores = -np.concatenate([known, unknown])
    auroc = sklearn_metrics.roc_auc_score(is_unknown, scores)
    assert summary["auroc"] == pytest.approx(auroc)
    aupr = sklearn_metrics.average_precision_score(is_unknown, scores)
    assert summary["aupr"] == pytest.approx(aupr)
    threshold = measures.known_threshold(known)
    assert summary["fpr95"] == np.mean([u >= threshold for u in unknown])
    assert measures.unknown_summary([1, 2], [0]) == {
        "auroc": 1.0,
        "fpr95": 0.0,
        "aupr": 1.0,
    }


def test_the_smallest_rate_has_the_threshold_of_the_highest_score():
    assert measures.known_threshold([0.1, 0.2], 1e-12) == 0.2


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: measures.known_threshold([]), "of 1 example or more, got"),
        (lambda: measures.known_threshold([1], 0), r"in \(0, 1\], got 0"),
        (lambda: measures.unknown_summary([1], [np.nan]), "`unknown` must be"),
        (
            lambda: measures.mahalanobis_scores([[1, 0]], [[1, 0]] * 2, [0, 0]),
            "different rows, got equal rows",
        ),
        (
            lambda: measures.mahalanobis_scores([[1, 0]], [[1, 0]] * 2, [0]),
            "`bank_labels` must",
        ),
        (
            lambda: measures.mahalanobis_scores(
                [[1, 0]], np.eye(2), [0, 0], leave_one_out=True
            ),
            "`leave_one_out` must have the bank",
        ),
        (
            lambda: measures.mahalanobis_scores(
                np.eye(2), np.eye(2), [0, 0], leave_one_out=True
            ),
            "different rows, got equal rows",
        ),
    ],
)
def test_wrong_scores_and_rates_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
