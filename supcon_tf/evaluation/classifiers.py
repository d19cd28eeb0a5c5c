"""k-NN and prototypes: classifiers that need no training."""

from __future__ import annotations

import numpy as np

from supcon_tf import config, measures
from supcon_tf.evaluation import splits


def without_training(
    settings: config.EvaluateSettings,
    test: splits.EncodedSplit,
    bank: splits.EncodedSplit,
) -> dict[str, dict[str, object]]:
    """Measures of k-NN and prototypes among the training images.

    Args:
      settings: k, temperature, leave-one-out.
      test: what is classified.
      bank: the training split.

    Returns:
      `knn` with weighted votes, `knn_majority`, `prototype`, and
      `knn_leave_one_out`, of the training images, if it is asked for.
    """
    num_classes = len(test.source.class_names)

    weighted, majority = (
        measures.classification_summary(
            probabilities, test.labels, settings.calibration_bins
        )
        for probabilities in _votes(settings, test, bank)
    )
    similarities = measures.prototype_predict(
        test.representations,
        bank.representations,
        bank.labels,
        num_classes=num_classes,
    )
    k = min(settings.knn_neighbors, len(bank.labels))
    results = {
        "knn": {"k": k, "temperature": settings.knn_temperature, **weighted},
        "knn_majority": {"k": k, **majority},
        "prototype": {
            **_accuracies(similarities, test.labels),
            "per_class_recall": measures.per_class_recall(
                similarities.argmax(axis=1), test.labels, num_classes
            ),
        },
    }
    if settings.knn_leave_one_out:
        weighted, majority = _votes(settings, bank, bank, True)
        results["knn_leave_one_out"] = {
            **_accuracies(weighted, bank.labels),
            "majority_top_1": measures.top_k_accuracy(majority, bank.labels, 1),
        }
    return results


def _votes(
    settings: config.EvaluateSettings,
    queries: splits.EncodedSplit,
    bank: splits.EncodedSplit,
    leave_one_out: bool = False,
) -> list[np.ndarray]:
    """Probabilities [Q, classes] of weighted votes, and of the majority."""
    nearest = measures.nearest_neighbors(
        queries.representations,
        bank.representations,
        settings.knn_neighbors,
        leave_one_out=leave_one_out,
    )
    return [
        measures.vote(
            *nearest,
            bank.labels,
            num_classes=len(bank.source.class_names),
            temperature=settings.knn_temperature,
            weighted=weighted,
        )
        for weighted in (True, False)
    ]


def _accuracies(scores: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    return {
        f"top_{k}": measures.top_k_accuracy(scores, labels, k) for k in (1, 5)
    }
