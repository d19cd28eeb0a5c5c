"""Which classes are taken for which."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from supcon_tf import exceptions
from supcon_tf.measures import metrics


def confusion_matrix(
    predicted: npt.ArrayLike, labels: npt.ArrayLike, num_classes: int
) -> npt.NDArray[np.int64]:
    """Counts of the examples by true and predicted class.

    Args:
      predicted: [examples] integers in [0, num_classes).
      labels: [examples] integers in [0, num_classes), the true classes.
      num_classes: positive int.

    Returns:
      [num_classes, num_classes] int64, a row per true class and a column per
      predicted one; it sums to the number of examples.

    Raises:
      ValueError: `predicted` or `labels` is no vector of class ids, or they
        differ in length.
    """
    if num_classes < 1:
        raise exceptions.InvalidValue(
            f"`num_classes` must be at least 1, got {num_classes}"
        )
    labels = np.asarray(labels)
    labels = metrics.check_labels(labels, labels.size, num_classes)
    predicted = metrics.check_labels(
        predicted, labels.size, num_classes, "predicted"
    )
    cells = np.bincount(num_classes * labels + predicted, None, num_classes**2)
    return cells.reshape(num_classes, num_classes)


def per_class_recall(
    predicted: npt.ArrayLike, labels: npt.ArrayLike, num_classes: int
) -> list[float | None]:
    """Share of each class's examples that are predicted as that class.

    Args:
      predicted: [examples] integers in [0, num_classes).
      labels: [examples] integers in [0, num_classes), the true classes.
      num_classes: positive int.

    Returns:
      A share in [0, 1] per class; None, JSON's null, for a class without
      examples. The mean weighted by the examples of a class is the accuracy.

    Raises:
      ValueError: as `confusion_matrix`.
    """
    matrix = confusion_matrix(predicted, labels, num_classes)
    return [
        float(row[class_id] / row.sum()) if row.any() else None
        for class_id, row in enumerate(matrix)
    ]
