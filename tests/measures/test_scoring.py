"""Likelihood and Brier score against loops, closed forms and scikit-learn."""

from __future__ import annotations

import math

import numpy as np
import pytest
from sklearn import metrics as sklearn_metrics

from supcon_tf.measures import scoring


def _predictions(examples=60, num_classes=4):
    generator = np.random.default_rng(0)
    probabilities = generator.dirichlet(np.ones(num_classes), examples)
    return probabilities, generator.integers(num_classes, size=examples)


def test_both_equal_the_loops():
    probabilities, labels = _predictions()
    nll = brier = 0.0
    for row, label in zip(probabilities, labels, strict=True):
        nll -= math.log(row[label]) / len(labels)
        for class_id, p in enumerate(row):
            brier += (p - float(class_id == label)) ** 2 / len(labels)
    for dtype, tolerance in ((np.float64, 1e-12), (np.float32, 1e-6)):
        given = probabilities.astype(dtype), labels
        assert scoring.negative_log_likelihood(*given) == pytest.approx(
            nll, abs=tolerance
        )
        assert scoring.brier_score(*given) == pytest.approx(
            brier, abs=tolerance
        )
    assert nll == pytest.approx(sklearn_metrics.log_loss(labels, probabilities))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
def test_certain_and_right_or_wrong(dtype):
    certain = np.eye(3, dtype=dtype)
    assert scoring.negative_log_likelihood(certain, [0, 1, 2]) == 0.0
    assert scoring.brier_score(certain, [0, 1, 2]) == 0.0
    assert scoring.brier_score(certain, [1, 2, 0]) == 2.0
    # Not infinite: probability 0 counts as the smallest normal float32.
    assert scoring.negative_log_likelihood(certain, [1, 2, 0]) == pytest.approx(
        126 * math.log(2)
    )


def test_equal_probabilities():
    flat = np.full((5, 4), 0.25, np.float32)
    labels = [0, 1, 2, 3, 0]
    assert scoring.negative_log_likelihood(flat, labels) == pytest.approx(
        math.log(4)
    )
    assert scoring.brier_score(flat, labels) == pytest.approx(0.75)


def test_a_rounded_row_above_one_is_no_negative_score():
    above = np.array([[1.0000001, 0.0]], np.float32)
    assert scoring.negative_log_likelihood(above, [0]) == 0.0


def test_the_input_is_left_as_it_is():
    probabilities, labels = _predictions()
    before = probabilities.copy()
    scoring.brier_score(probabilities, labels)
    np.testing.assert_array_equal(probabilities, before)


@pytest.mark.parametrize(
    ("probabilities", "labels", "message"),
    [
        ([[1.0, 2.0]], [0], "sum to 1 in each row"),
        ([[np.nan, 1.0]], [0], "got a sum of nan"),
        ([[0.5, 0.5]], [2], r"`labels` must lie in \[0, 2\)"),
    ],
)
def test_errors_name_the_rule(probabilities, labels, message):
    for score in (scoring.negative_log_likelihood, scoring.brier_score):
        with pytest.raises(ValueError, match=message):
            score(probabilities, labels)
