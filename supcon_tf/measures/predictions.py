"""Measures of class probabilities, from a few numbers of each example.

[examples, classes] probabilities of many classes are larger than memory. So
classifiers make them part by part, each part is reduced to `Predictions`, and
the predictions of all parts are joined. No array here has examples * classes or
classes^2 entries, but for the confusion matrix of few classes.

Letters in the shapes: N examples.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from supcon_tf.measures import (
    classifiers,
    metrics,
    multi_label,
    neighbors,
)

_PART_SCORES = 2**22  # probabilities in memory at once: 16 MB
_MATRIX_CLASSES = 200  # at most, in a confusion matrix: 40,000 counts
_MOST_CONFUSIONS = 1000  # listed in place of a larger matrix


class Predictions(NamedTuple):
    """The predictions of a classifier for N examples, in a few numbers each.

    Attributes:
      labels: [N] int64, class ids.
      predicted: [N] int64, the class of the highest probability, of equal ones
        the lower class id.
      ranks: [N] int64, how many classes come before the label: 0 where the
        label is predicted.
      confidence: [N] float, the highest probability.
      lowest: [N] float, the lowest probability: of two classes, that of the one
        that is not predicted.
      likelihood: [N] float, the probability of the label.
      brier: [N] float64, squared distance of the distribution from the label.

    Example:
      >>> from supcon_tf import measures
      >>> probabilities = [[0.75, 0.25], [0.5, 0.5]]
      >>> answers = measures.Predictions.of(probabilities, labels=[0, 1])
      >>> answers.predicted.tolist(), answers.ranks.tolist(), answers.top_k(1)
      ([0, 0], [0, 1], 0.5)
    """

    labels: npt.NDArray[np.int64]
    predicted: npt.NDArray[np.int64]
    ranks: npt.NDArray[np.int64]
    confidence: npt.NDArray[np.floating]
    lowest: npt.NDArray[np.floating]
    likelihood: npt.NDArray[np.floating]
    brier: npt.NDArray[np.float64]

    @classmethod
    def of(
        cls, probabilities: npt.ArrayLike, labels: npt.ArrayLike
    ) -> Predictions:
        """Reduces probabilities [N, classes], whose rows sum to 1."""
        probabilities, labels = metrics.check_predictions(probabilities, labels)
        return cls(
            labels=labels,
            predicted=probabilities.argmax(axis=1),
            ranks=metrics.label_ranks(probabilities, labels),
            confidence=probabilities.max(axis=1),
            lowest=probabilities.min(axis=1),
            likelihood=probabilities[np.arange(len(labels)), labels],
            brier=metrics.squared_errors(probabilities, labels),
        )

    @classmethod
    def join(cls, parts: Sequence[Predictions]) -> Predictions:
        """Joins the predictions of the parts of a split, at least one part."""
        return cls(*map(np.concatenate, zip(*parts, strict=True)))

    def top_k(self, k: int) -> float:
        """Share of the examples whose label is among the k most probable."""
        return float(np.mean(self.ranks < k))

    def bins(self, num_bins: int) -> metrics.CalibrationBins:
        """`metrics.calibration_bins` of these predictions."""
        return metrics.count_bins(self.confidence, self.ranks == 0, num_bins)

    def calibration_error(self, num_bins: int) -> float:
        """`metrics.expected_calibration_error` of these predictions."""
        return metrics.calibration_gap(self.bins(num_bins))


def parts(num_examples: int, num_classes: int) -> Iterator[slice]:
    """Divides examples so that the probabilities of a part take 16 MB.

    Example:
      >>> from supcon_tf import measures
      >>> [part.stop - part.start for part in measures.parts(1000, 10_000)]
      [419, 419, 162]
    """
    return neighbors.chunks(num_examples, max(_PART_SCORES // num_classes, 1))


def predict_in_parts(
    labels: npt.NDArray[np.integer],
    num_classes: int,
    classify: Callable[[slice], Mapping[str, npt.ArrayLike]],
) -> dict[str, Predictions]:
    """Returns the predictions of several classifiers, by name.

    Args:
      labels: [N] integers in [0, num_classes), N >= 1.
      num_classes: number of classes.
      classify: from a part of the examples to the probabilities of each
        classifier, [part, num_classes] by name.

    Example:
      >>> import numpy as np
      >>> from supcon_tf import measures
      >>> probabilities, labels = np.eye(4)[[3, 1, 2]], np.array([3, 1, 0])
      >>> predictions = measures.predict_in_parts(
      ...     labels, 4, lambda part: {"mine": probabilities[part]}
      ... )
      >>> predictions["mine"].predicted.tolist()
      [3, 1, 2]
    """
    parts_by_name = collections.defaultdict(list)
    for part in parts(len(labels), num_classes):
        for name, probabilities in classify(part).items():
            predictions = Predictions.of(probabilities, labels[part])
            parts_by_name[name].append(predictions)
    return {
        name: Predictions.join(predictions)
        for name, predictions in parts_by_name.items()
    }


def knn_predictions(
    queries: neighbors.Matrix,
    labels: npt.NDArray[np.integer],
    bank: neighbors.Matrix,
    bank_labels: npt.NDArray[np.integer],
    *,
    num_classes: int,
    k: int | None = None,
    temperature: float = 0.07,
    leave_one_out: bool = False,
) -> dict[str, Predictions]:
    """Predictions of Q queries by weighted votes, `knn`, and by `knn_majority`.

    The arguments are those of `knn_predict`, and the labels of the queries, [Q]
    integers in [0, num_classes).

    Example:
      >>> import numpy as np
      >>> from supcon_tf import measures
      >>> bank, labels = np.eye(3), np.array([0, 1, 1])
      >>> votes = measures.knn_predictions(
      ...     bank[:2], labels[:2], bank, labels, num_classes=2, k=1
      ... )
      >>> votes["knn"].predicted.tolist(), votes["knn_majority"].top_k(1)
      ([0, 1], 1.0)
    """
    k = classifiers.default_neighbors(bank_labels) if k is None else k
    nearest = neighbors.nearest_neighbors(
        queries, bank, k, leave_one_out=leave_one_out
    )

    def vote(part: slice) -> dict[str, npt.NDArray[np.float32]]:
        return {
            name: classifiers.vote(
                *(array[part] for array in nearest),  # [part, k] each
                bank_labels,
                num_classes=num_classes,
                temperature=temperature,
                weighted=name == "knn",
            )
            for name in ("knn", "knn_majority")
        }

    return predict_in_parts(labels, num_classes, vote)


def classification_summary(
    probabilities: npt.ArrayLike, labels: npt.ArrayLike, num_bins: int = 15
) -> dict[str, object]:
    """Accuracy, calibration, proper scores and confusions, ready for JSON.

    `macro_f1` is the mean of F1 over the classes that are labels or predicted,
    `mcc` Matthews' correlation coefficient, both as scikit-learn has them, as
    is `average_precision`, which two classes have: that of the rarer one. Of
    equal probabilities the lower class id comes first, in every measure.
    `confusions` says what replaces the confusion matrix of more than 200
    classes.

    Args:
      probabilities: [N, classes] float, rows that sum to 1.
      labels: [N] integers in [0, classes).
      num_bins: equal bins of confidence for the ECE, at least 1.

    Example:
      >>> from supcon_tf import measures
      >>> probabilities = [[0.75, 0.25]] * 2 + [[0.25, 0.75]] * 2
      >>> summary = measures.classification_summary(probabilities, [0, 0, 0, 1])
      >>> summary["top_1"], summary["ece"], summary["confusion_matrix"]
      (0.75, 0.0, [[2, 1], [0, 1]])

    Raises:
      ValueError: a shape, a label or a row breaks these rules.
    """
    probabilities, labels = metrics.check_predictions(probabilities, labels)
    num_classes = probabilities.shape[1]
    predictions = predict_in_parts(
        labels, num_classes, lambda part: {"all": probabilities[part]}
    )
    return summarize(predictions["all"], num_classes, num_bins)


def summarize(
    predictions: Predictions, num_classes: int, num_bins: int = 15
) -> dict[str, object]:
    """`classification_summary` of predictions.

    Example:
      >>> from supcon_tf import measures
      >>> answers = measures.Predictions.of([[0.75, 0.25]] * 4, [0, 0, 0, 1])
      >>> measures.summarize(answers, num_classes=2)["per_class_recall"]
      [1.0, 0.0]
    """
    labels, predicted = predictions.labels, predictions.predicted
    return {
        "top_1": predictions.top_k(1),
        "top_5": predictions.top_k(5),
        "ece": predictions.calibration_error(num_bins),
        "nll": metrics.mean_surprise(predictions.likelihood),
        "brier": float(np.mean(predictions.brier)),
        **_f1_and_mcc(predicted, labels, num_classes),
        **(_rarer_class_precision(predictions) if num_classes == 2 else {}),
        "per_class_recall": metrics.per_class_recall(
            predicted, labels, num_classes
        ),
        **confusions(predicted, labels, num_classes),
        "calibration_bins": {
            name: values.tolist()
            for name, values in predictions.bins(num_bins)._asdict().items()
        },
    }


def confusions(
    predicted: npt.ArrayLike, labels: npt.ArrayLike, num_classes: int
) -> dict[str, list]:
    """Counts of the classes that are confused, ready for JSON.

    Example:
      >>> from supcon_tf import measures
      >>> measures.confusions([0, 1, 1], [0, 0, 1], num_classes=2)
      {'confusion_matrix': [[1, 1], [0, 1]]}
      >>> many = measures.confusions([3, 3, 9], [3, 9, 9], num_classes=300)
      >>> many["confusions"], many["class_counts"][9]
      ([[9, 3, 1]], 2)

    Returns:
      `confusion_matrix`, of `metrics.confusion_matrix`. For more than 200
      classes `confusions` instead, the 1,000 most frequent pairs, each as
      [label, predicted class, count]; and `class_counts`, the number of
      examples of each class.
    """
    if num_classes <= _MATRIX_CLASSES:
        matrix = metrics.confusion_matrix(predicted, labels, num_classes)
        return {"confusion_matrix": matrix.tolist()}
    predicted, labels = np.asarray(predicted), np.asarray(labels)
    is_confused = predicted != labels
    pairs, counts = np.unique(  # [pairs, 2] and [pairs]
        np.stack([labels[is_confused], predicted[is_confused]], axis=1),
        axis=0,
        return_counts=True,
    )
    order = np.argsort(-counts, kind="stable")[:_MOST_CONFUSIONS]
    confusion_rows = np.column_stack([pairs[order], counts[order]])
    class_counts = np.bincount(labels, minlength=num_classes)
    return {
        "confusions": confusion_rows.tolist(),
        "class_counts": class_counts.tolist(),
    }


def _f1_and_mcc(
    predicted: npt.NDArray[np.integer],
    labels: npt.NDArray[np.integer],
    num_classes: int,
) -> dict[str, float]:
    """Returns `macro_f1` and `mcc`, from the counts of each class."""
    hits, label_counts, predicted_counts = metrics.class_counts(
        predicted, labels, num_classes
    )
    occurs = label_counts + predicted_counts > 0
    f1 = 2 * hits[occurs] / (label_counts + predicted_counts)[occurs]
    # Gorodkin 2004, Eq. 8, with t and p the counts of labels and predictions.
    # scikit-learn would make the whole confusion matrix.
    t, p = label_counts.astype(np.float64), predicted_counts.astype(np.float64)
    n = t.sum()
    covariance = hits.sum() * n - t @ p
    variances = (n**2 - t @ t) * (n**2 - p @ p)
    return {
        "macro_f1": float(f1.mean()),
        "mcc": float(covariance / variances**0.5) if variances else 0.0,
    }


def _rarer_class_precision(predictions: Predictions) -> dict[str, float]:
    """Returns the `average_precision` of the class with fewer examples."""
    rarer = np.bincount(predictions.labels, minlength=2).argmin()
    # Not 1 - confidence, which is 0 for all probabilities below 3e-8.
    scores = np.where(
        predictions.predicted == rarer,
        predictions.confidence,
        predictions.lowest,
    )
    precisions = multi_label.average_precisions(
        scores, predictions.labels == rarer
    )
    return {"average_precision": float(precisions[0])} if precisions else {}
