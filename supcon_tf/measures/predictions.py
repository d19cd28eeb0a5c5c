"""What measures need of class probabilities: a few numbers of each example.

[examples, classes] probabilities of many classes are larger than memory. So
they are made part by part, each part is reduced to `Predictions`, and these are
put together. Nothing here grows with examples * classes or classes^2, but the
confusion matrix of few classes.

Letters in the shapes: N examples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from supcon_tf.measures import classifiers, metrics, neighbors

_PART_SCORES = 2**22  # that are held at once: 16 MB
_MATRIX_CLASSES = 200  # of a whole confusion matrix: 40,000 counts
_MOST_CONFUSIONS = 1000  # that are listed where there is none


class Predictions(NamedTuple):
    """What a classifier says of N examples, in a few numbers each.

    Attributes:
      labels: [N] int64, class ids.
      predicted: [N] int64, the class of the highest probability, of equal ones
        the lower class id.
      ranks: [N] int64, how many classes come before the label: 0 where that is
        predicted.
      confidence: [N] float, the highest probability.
      likelihood: [N] float, the probability of the label.
      brier: [N] float64, squared distance of the distribution from the label.

    Example:
      >>> from supcon_tf import measures
      >>> found = measures.Predictions.of([[0.75, 0.25], [0.5, 0.5]], [0, 1])
      >>> found.predicted.tolist(), found.ranks.tolist(), found.top_k(1)
      ([0, 0], [0, 1], 0.5)
    """

    labels: npt.NDArray[np.int64]
    predicted: npt.NDArray[np.int64]
    ranks: npt.NDArray[np.int64]
    confidence: npt.NDArray[np.floating]
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
            likelihood=probabilities[np.arange(len(labels)), labels],
            brier=metrics.squared_errors(probabilities, labels),
        )

    @classmethod
    def join(cls, found: Sequence[Predictions]) -> Predictions:
        """Puts those of the parts of a split together, one or more."""
        return cls(*map(np.concatenate, zip(*found, strict=True)))

    def top_k(self, k: int) -> float:
        """Share of the examples whose label is among the k most probable."""
        return float(np.mean(self.ranks < k))

    def bins(self, num_bins: int) -> metrics.CalibrationBins:
        """`metrics.calibration_bins` of them."""
        return metrics.count_bins(self.confidence, self.ranks == 0, num_bins)

    def calibration_error(self, num_bins: int) -> float:
        """`metrics.expected_calibration_error` of them."""
        return metrics.calibration_gap(self.bins(num_bins))


def parts(num_examples: int, num_classes: int) -> Iterator[slice]:
    """Divides examples so that the probabilities of a part take 16 MB.

    Example:
      >>> from supcon_tf import measures
      >>> [x.stop - x.start for x in measures.parts(1000, 10_000)]
      [419, 419, 162]
    """
    rows = max(_PART_SCORES // num_classes, 1)
    for first in range(0, num_examples, rows):
        yield slice(first, min(first + rows, num_examples))


def predict_in_parts(
    labels: npt.NDArray[np.integer],
    num_classes: int,
    classify: Callable[[slice], Mapping[str, npt.ArrayLike]],
) -> dict[str, Predictions]:
    """The predictions of several classifiers, by name.

    Args:
      labels: [N] integers in [0, num_classes), N >= 1.
      num_classes: number of classes.
      classify: from a part of the examples to the probabilities of each
        classifier, [part, num_classes] by name.

    Example:
      >>> import numpy as np
      >>> from supcon_tf import measures
      >>> certain, labels = np.eye(4)[[3, 1, 2]], np.array([3, 1, 0])
      >>> found = measures.predict_in_parts(
      ...     labels, 4, lambda part: {"mine": certain[part]}
      ... )
      >>> found["mine"].predicted.tolist()
      [3, 1, 2]
    """
    found = [
        {
            name: Predictions.of(probabilities, labels[part])
            for name, probabilities in classify(part).items()
        }
        for part in parts(len(labels), num_classes)
    ]
    return {
        name: Predictions.join([part[name] for part in found])
        for name in found[0]
    }


def knn_predictions(
    queries: neighbors.Given,
    labels: npt.NDArray[np.integer],
    bank: neighbors.Given,
    bank_labels: npt.NDArray[np.integer],
    *,
    num_classes: int,
    k: int | None = None,
    temperature: float = 0.07,
    leave_one_out: bool = False,
) -> dict[str, Predictions]:
    """Predictions of queries by weighted votes, `knn`, and by `knn_majority`.

    The arguments are those of `knn_predict`, with the labels of the queries,
    [Q] integers in [0, num_classes).

    Example:
      >>> import numpy as np
      >>> from supcon_tf import measures
      >>> bank, labels = np.eye(3), np.array([0, 1, 1])
      >>> found = measures.knn_predictions(
      ...     bank[:2], labels[:2], bank, labels, num_classes=2, k=1
      ... )
      >>> found["knn"].predicted.tolist(), found["knn_majority"].top_k(1)
      ([0, 1], 1.0)
    """
    k = classifiers.default_neighbors(bank_labels) if k is None else k
    nearest = neighbors.nearest_neighbors(
        queries, bank, k, leave_one_out=leave_one_out
    )

    def vote(part: slice) -> dict[str, npt.NDArray[np.float32]]:
        return {
            name: classifiers.vote(
                *(array[part] for array in nearest),
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
    `mcc` Matthews' correlation coefficient, both as scikit-learn has them. Of
    equal probabilities that of the lower class id comes first, in all of them.
    What stands for the confusion matrix of more than 200 classes, see
    `confusions`.

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
    found = predict_in_parts(
        labels, num_classes, lambda part: {"all": probabilities[part]}
    )
    return summarize(found["all"], num_classes, num_bins)


def summarize(
    found: Predictions, num_classes: int, num_bins: int = 15
) -> dict[str, object]:
    """`classification_summary` of predictions.

    Example:
      >>> from supcon_tf import measures
      >>> found = measures.Predictions.of([[0.75, 0.25]] * 4, [0, 0, 0, 1])
      >>> measures.summarize(found, num_classes=2)["per_class_recall"]
      [1.0, 0.0]
    """
    labels, predicted = found.labels, found.predicted
    return {
        "top_1": found.top_k(1),
        "top_5": found.top_k(5),
        "ece": found.calibration_error(num_bins),
        "nll": metrics.mean_surprise(found.likelihood),
        "brier": float(np.mean(found.brier)),
        **_of_counts(predicted, labels, num_classes),
        "per_class_recall": metrics.per_class_recall(
            predicted, labels, num_classes
        ),
        **confusions(predicted, labels, num_classes),
        "calibration_bins": {
            name: values.tolist()
            for name, values in found.bins(num_bins)._asdict().items()
        },
    }


def confusions(
    predicted: npt.ArrayLike, labels: npt.ArrayLike, num_classes: int
) -> dict[str, list]:
    """Which class is taken for which, ready for JSON.

    Example:
      >>> from supcon_tf import measures
      >>> measures.confusions([0, 1, 1], [0, 0, 1], num_classes=2)
      {'confusion_matrix': [[1, 1], [0, 1]]}
      >>> many = measures.confusions([3, 3, 9], [3, 9, 9], num_classes=300)
      >>> many["confusions"], many["class_counts"][9]
      ([[9, 3, 1]], 2)

    Returns:
      `confusion_matrix`, of `metrics.confusion_matrix`. Of more than 200
      classes `confusions` instead, the 1,000 most frequent ones, each as
      [label, predicted class, count]; and `class_counts`, the examples of each
      class.
    """
    if num_classes <= _MATRIX_CLASSES:
        matrix = metrics.confusion_matrix(predicted, labels, num_classes)
        return {"confusion_matrix": matrix.tolist()}
    predicted, labels = np.asarray(predicted), np.asarray(labels)
    wrong = predicted != labels
    pairs, counts = np.unique(
        np.stack([labels[wrong], predicted[wrong]], axis=1),
        axis=0,
        return_counts=True,
    )
    order = np.argsort(-counts, kind="stable")[:_MOST_CONFUSIONS]
    listed = np.column_stack([pairs[order], counts[order]])
    class_counts = np.bincount(labels, minlength=num_classes)
    return {
        "confusions": listed.tolist(),
        "class_counts": class_counts.tolist(),
    }


def _of_counts(
    predicted: npt.NDArray[np.integer],
    labels: npt.NDArray[np.integer],
    num_classes: int,
) -> dict[str, float]:
    """`macro_f1` and `mcc`, from the counts of each class."""
    hits, has, guessed = metrics.class_counts(predicted, labels, num_classes)
    there = has + guessed > 0
    f1 = 2 * hits[there] / (has + guessed)[there]
    # Gorodkin 2004, Eq. 8; not by scikit-learn, which makes the whole matrix.
    has, guessed = has.astype(np.float64), guessed.astype(np.float64)
    n = has.sum()
    covariance = hits.sum() * n - has @ guessed
    variances = (n**2 - has @ has) * (n**2 - guessed @ guessed)
    return {
        "macro_f1": float(f1.mean()),
        "mcc": float(covariance / variances**0.5) if variances else 0.0,
    }
