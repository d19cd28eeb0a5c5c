"""Predictions of classifiers for a split, made part by part.

The probabilities of many classes, [examples, classes], may be larger than
memory: `measures.Predictions` and predictions.npz hold a part of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import tensorflow as tf

from supcon_tf import config, measures
from supcon_tf.evaluation import splits
from supcon_tf.measures import truncation
from supcon_tf.training import runs

# From representations [n, dim] to the probabilities [n, classes] of each
# classifier, by its name.
Classify = Callable[[np.ndarray], dict[str, np.ndarray]]


def make_classify(
    classifiers: Mapping[str, runs.Classifier], is_multi_label: bool
) -> Classify:
    """The function that applies the trained classifiers of a run."""
    activation = tf.sigmoid if is_multi_label else tf.nn.softmax
    return lambda rows: {
        name: activation(logits(rows)).numpy()
        for name, logits in classifiers.items()
    }


def by_classifiers(
    split: splits.EncodedSplit, classify: Classify
) -> tuple[dict[str, measures.Predictions], truncation.Probabilities | None]:
    """Predictions of all classifiers, and stored probabilities of the first.

    {} and None where there is no classifier.
    """
    num_examples, parts = len(split.labels), []

    def classify_part(part: slice) -> dict[str, np.ndarray]:
        probabilities = classify(split.representations[part])
        for first in [*probabilities.values()][:1]:
            parts.append(truncation.truncate(first, num_examples))
        return probabilities

    predictions = measures.predict_in_parts(
        split.labels, len(split.source.class_names), classify_part
    )
    if not parts:
        return predictions, None
    fields = (
        None if arrays[0] is None else np.concatenate(arrays)
        for arrays in zip(*parts, strict=True)
    )
    return predictions, truncation.Probabilities(*fields)


def by_prototypes(
    queries: splits.EncodedSplit, bank: splits.EncodedSplit
) -> tuple[np.ndarray, np.ndarray]:
    """The nearest class means: predicted classes, and ranks of the labels.

    Both are [queries], as in `measures.Predictions`.
    """
    num_classes = len(bank.source.class_names)
    prototypes = measures.class_prototypes(
        bank.representations, bank.labels, num_classes=num_classes
    )
    predicted, ranks = [], []
    for part in measures.parts(len(queries.labels), num_classes):
        similarities = measures.prototype_similarities(  # [n, classes]
            queries.representations[part], *prototypes
        )
        predicted.append(similarities.argmax(axis=1))
        ranks.append(measures.label_ranks(similarities, queries.labels[part]))
    return np.concatenate(predicted), np.concatenate(ranks)


def neighbors(
    settings: config.EvaluateSettings, bank: splits.EncodedSplit
) -> int:
    """How many neighbours vote; by default the labels of the bank decide."""
    k = settings.knn_neighbors or measures.default_neighbors(bank.labels)
    return min(k, len(bank.labels))


def by_neighbors(
    settings: config.EvaluateSettings,
    queries: splits.EncodedSplit,
    bank: splits.EncodedSplit,
    leave_one_out: bool = False,
) -> dict[str, measures.Predictions]:
    """k-NN predictions, `knn` and `knn_majority`."""
    return measures.knn_predictions(
        queries.representations,
        queries.labels,
        bank.representations,
        bank.labels,
        num_classes=len(bank.source.class_names),
        k=neighbors(settings, bank),
        temperature=settings.knn_temperature,
        leave_one_out=leave_one_out,
    )


def accuracies(
    predictions: Mapping[str, measures.Predictions],
) -> dict[str, float]:
    """Accuracies of the predictions of `by_neighbors`."""
    return {
        "top_1": predictions["knn"].top_k(1),
        "top_5": predictions["knn"].top_k(5),
        "majority_top_1": predictions["knn_majority"].top_k(1),
    }
