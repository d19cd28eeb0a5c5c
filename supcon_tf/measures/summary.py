"""All measures of a classifier's probabilities, as evaluation.json has them."""

from __future__ import annotations

import numpy.typing as npt

from supcon_tf.measures import confusion, metrics, scoring


def classification_summary(
    probabilities: npt.ArrayLike, labels: npt.ArrayLike, num_bins: int = 15
) -> dict[str, object]:
    """Accuracy, calibration, proper scores and confusions, ready for JSON.

    Args:
      probabilities: [examples, num_classes] real, each row sums to 1.
      labels: [examples] integers in [0, num_classes).
      num_bins: positive int, bins of the calibration error.

    Returns:
      Numbers and lists of Python:
      `top_1`, `top_5`: shares; equal probabilities count against the label.
      `ece`: expected calibration error; `nll`: nats; `brier`: in [0, 2].
      `per_class_recall`: a share per class, None for one without examples.
      `confusion_matrix`: counts, a row per true class. It and the recall take
        the lower class id of equal probabilities.
      `calibration_bins`: `count`, `confidence` and `accuracy`, a list each.

    Raises:
      ValueError: `probabilities` is not a non-empty matrix of distributions,
        `labels` does not fit it, or `num_bins` is not positive.
    """
    probabilities, labels = metrics.check_predictions(probabilities, labels)
    predicted = probabilities.argmax(axis=1)
    num_classes = probabilities.shape[1]
    bins = metrics.calibration_bins(probabilities, labels, num_bins)
    return {
        "top_1": metrics.top_k_accuracy(probabilities, labels, 1),
        "top_5": metrics.top_k_accuracy(probabilities, labels, 5),
        "ece": metrics.expected_calibration_error(
            probabilities, labels, num_bins
        ),
        "nll": scoring.negative_log_likelihood(probabilities, labels),
        "brier": scoring.brier_score(probabilities, labels),
        "per_class_recall": confusion.per_class_recall(
            predicted, labels, num_classes
        ),
        "confusion_matrix": confusion.confusion_matrix(
            predicted, labels, num_classes
        ).tolist(),
        "calibration_bins": {
            name: values.tolist() for name, values in bins._asdict().items()
        },
    }
