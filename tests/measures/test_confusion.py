"""Confusion matrix and recall against scikit-learn and a hand-made case."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn import metrics as sklearn_metrics

from supcon_tf.measures import confusion


def test_rows_are_true_classes():
    matrix = confusion.confusion_matrix([1, 1, 2, 0], [0, 0, 2, 0], 4)
    assert matrix.dtype == np.int64
    assert matrix.tolist() == [
        [1, 2, 0, 0],
        [0, 0, 0, 0],
        [0, 0, 1, 0],
        [0, 0, 0, 0],
    ]
    recall = confusion.per_class_recall([1, 1, 2, 0], [0, 0, 2, 0], 4)
    assert recall == [pytest.approx(1 / 3), None, 1.0, None]
    # A class with examples, none of them found, is 0 and not absent.
    assert confusion.per_class_recall([1], [0], 2) == [0.0, None]


def test_both_equal_scikit_learn():
    generator = np.random.default_rng(0)
    predicted, labels = generator.integers(6, size=(2, 200))
    np.testing.assert_array_equal(
        confusion.confusion_matrix(predicted, labels, 6),
        sklearn_metrics.confusion_matrix(labels, predicted),
    )
    np.testing.assert_allclose(
        confusion.per_class_recall(predicted, labels, 6),
        sklearn_metrics.recall_score(labels, predicted, average=None),
    )


@pytest.mark.parametrize(
    ("predicted", "labels", "num_classes", "message"),
    [
        ([0], [0, 1], 2, r"`predicted` must have shape \(2,\)"),
        ([0, 2], [0, 1], 2, r"`predicted` must lie in \[0, 2\), got 2"),
        ([0, 1], [0, -1], 2, r"`labels` must lie in \[0, 2\), got -1"),
        ([0, 1], [[0, 1]], 2, "`labels` must have shape"),
        ([], [], 0, "`num_classes` must be at least 1, got 0"),
    ],
)
def test_errors_name_the_rule(predicted, labels, num_classes, message):
    with pytest.raises(ValueError, match=message):
        confusion.confusion_matrix(predicted, labels, num_classes)
