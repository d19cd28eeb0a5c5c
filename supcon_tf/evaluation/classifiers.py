"""The classifiers of a run, all on its frozen representations."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tensorflow as tf

from supcon_tf import config, data, measures
from supcon_tf.evaluation import splits
from supcon_tf.training import runs

# From a split to its representations and labels.
Represent = Callable[[data.Source], tuple[np.ndarray, np.ndarray]]
# From representations [n, dim] to probabilities [n, classes], by name.
Classifiers = dict[str, Callable[[np.ndarray], np.ndarray]]


def probabilities_of(run: runs.Run) -> Classifiers:
    """The trained classifiers of a run, by their names in evaluation.json.

    Returns:
      Functions from representations [n, dim] to probabilities [n, classes]
      float32.

    Raises:
      ValueError: a checkpoint is missing or does not fit.
    """
    logits = {name: run.classifier(name) for name in run.classifiers}
    return {
        name: lambda representations, of=of: tf.nn.softmax(
            of(tf.convert_to_tensor(representations))
        ).numpy()
        for name, of in logits.items()
    }


def on_images(
    represent: Represent, trained: Classifiers
) -> Callable[[data.Source], tuple[dict[str, np.ndarray], np.ndarray]]:
    """Makes the function from a split to probabilities by name, and labels.

    Args:
      represent: of `representations.representer`.
      trained: of `probabilities_of`.
    """

    def classified(
        images: data.Source,
    ) -> tuple[dict[str, np.ndarray], np.ndarray]:
        encoded, labels = represent(images)
        return {name: of(encoded) for name, of in trained.items()}, labels

    return classified


def without_training(
    chosen: config.EvaluateSettings,
    test: splits.EncodedSplit,
    bank: splits.EncodedSplit,
) -> dict[str, dict[str, object]]:
    """Measures of k-NN and prototypes among the training images.

    Args:
      chosen: the settings: k, temperature, leave-one-out.
      test: what is classified.
      bank: the training split.

    Returns:
      `knn` with weighted votes, `knn_majority`, `prototype`, and
      `knn_leave_one_out`, of the training images, if it is asked for.
    """
    num_classes = len(test.source.class_names)
    weighted, majority = _votes(chosen, test, bank)
    similarities = measures.prototype_predict(
        test.representations,
        bank.representations,
        bank.labels,
        num_classes=num_classes,
    )
    recall = measures.per_class_recall(
        similarities.argmax(axis=1), test.labels, num_classes
    )
    shared = {"k": min(chosen.knn_neighbors, len(bank.labels))}
    of_votes = {**shared, "temperature": chosen.knn_temperature}
    found = {
        "knn": {**of_votes, **_summary(chosen, weighted, test)},
        "knn_majority": {**shared, **_summary(chosen, majority, test)},
        "prototype": {
            **_accuracies(similarities, test.labels),
            "per_class_recall": recall,
        },
    }
    if chosen.knn_leave_one_out:
        weighted, majority = _votes(chosen, bank, bank, leave_one_out=True)
        found["knn_leave_one_out"] = {
            **_accuracies(weighted, bank.labels),
            "majority_top_1": measures.top_k_accuracy(majority, bank.labels, 1),
        }
    return found


def _votes(
    chosen: config.EvaluateSettings,
    queries: splits.EncodedSplit,
    bank: splits.EncodedSplit,
    leave_one_out: bool = False,
) -> list[np.ndarray]:
    """Probabilities [Q, classes] of weighted votes, and of the majority."""
    nearest = measures.nearest_neighbors(
        queries.representations,
        bank.representations,
        chosen.knn_neighbors,
        leave_one_out=leave_one_out,
    )
    return [
        measures.vote(
            *nearest,
            bank.labels,
            num_classes=len(bank.source.class_names),
            temperature=chosen.knn_temperature,
            weighted=weighted,
        )
        for weighted in (True, False)
    ]


def _summary(
    chosen: config.EvaluateSettings,
    probabilities: np.ndarray,
    test: splits.EncodedSplit,
) -> dict[str, object]:
    """All measures of probabilities."""
    return measures.classification_summary(
        probabilities, test.labels, chosen.calibration_bins
    )


def _accuracies(scores: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """Top-1 and top-5 accuracy."""
    return {
        f"top_{k}": measures.top_k_accuracy(scores, labels, k) for k in (1, 5)
    }
