"""All numbers of the test examples as they are, without corruptions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from supcon_tf import config, measures
from supcon_tf.data import hierarchy
from supcon_tf.evaluation import classifying, splits
from supcon_tf.measures import truncation
from supcon_tf.training import runs

_LONG_TAIL = 2  # images of the largest class over those of the smallest


def measure_one_label(
    settings: config.EvaluateSettings,
    run: runs.Run,
    test: splits.EncodedSplit,
    bank: splits.EncodedSplit | None,
    predictions: dict[str, measures.Predictions],
    tree: hierarchy.Tree | None,
) -> dict[str, object]:
    """All measures of the clean images, where each has one label."""
    num_classes, bins = len(test.source.class_names), settings.calibration_bins
    measured = {
        name: measures.summarize(prediction, num_classes, bins)
        for name, prediction in predictions.items()
    }
    if bank is not None:
        bank_measures, knn = _measure_by_bank(settings, test, bank)
        measured |= bank_measures
        predictions = {**predictions, "knn": knn}
    counts = _training_counts(run, bank)
    if counts is not None and counts.max() >= _LONG_TAIL * counts.min():
        for name in (*predictions, *(["prototype"] if bank else [])):
            measured[name]["shots"] = measures.shot_summary(
                measured[name]["per_class_recall"], counts, settings.shots
            )
    if tree is not None:
        for name, prediction in predictions.items():
            measured[name]["hierarchy"] = measures.level_summary(
                prediction.predicted, test.labels, *tree
            )
    return measured | measure_space(test)


def measure_space(
    test: splits.EncodedSplit, depths: Sequence[int] = (1, 5, 10)
) -> dict[str, object]:
    """Retrieval among the test images, and how they lie on the sphere.

    `depths` are the k of recall@k.
    """
    if np.bincount(test.labels).max() < 2:  # no image has a positive
        return {}
    rows, labels = test.representations, test.labels
    retrieval = measures.retrieval_summary(rows, labels, depths)
    # The last classes may have no test images.
    for numbers in retrieval["per_class"].values():
        numbers += [None] * (len(test.source.class_names) - len(numbers))
    return {
        "retrieval": retrieval,
        "representations": {
            "alignment": measures.alignment(rows, labels),
            "uniformity": measures.uniformity(rows),
        },
    }


def _training_counts(
    run: runs.Run, bank: splits.EncodedSplit | None
) -> np.ndarray | None:
    """Training images of each class, where they are known."""
    labels = run.source("train").labels
    if labels is None and bank is not None and bank.source_positions is None:
        labels = bank.labels
    if labels is None:
        return None
    return np.bincount(labels, minlength=len(run.class_names))


def measure_several_labels(
    settings: config.EvaluateSettings,
    test: splits.EncodedSplit,
    bank: splits.EncodedSplit | None,
    classify: classifying.Classify,
) -> tuple[dict[str, object], truncation.Probabilities | None]:
    """The classifiers and k-NN, where images have several labels.

    Labels and probabilities are matrices [examples, classes]. The stored
    probabilities of the first classifier come with the measures.
    """
    predictions, measured = classify(test.representations), {}
    first = next(iter(predictions.values()), None)
    stored = None if first is None else truncation.truncate(first, len(first))
    if bank is not None:
        nearest = measures.nearest_neighbors(
            test.representations,
            bank.representations,
            classifying.neighbors(settings, bank),
        )
        predictions["knn"] = measures.share_of_neighbors(
            *nearest, bank.labels, settings.knn_temperature
        )
        measured["knn"] = {"k": nearest[0].shape[1]}
    for name, probabilities in predictions.items():
        measured[name] = measured.get(name, {}) | measures.multi_label_summary(
            probabilities, test.labels, settings.calibration_bins
        )
    return measured, stored


def _measure_by_bank(
    settings: config.EvaluateSettings,
    test: splits.EncodedSplit,
    bank: splits.EncodedSplit,
) -> tuple[dict[str, dict[str, object]], measures.Predictions]:
    """Measures k-NN, weighted and by majority, and prototypes of the bank.

    `leave_one_out` is among the measures if asked for. The predictions of
    weighted k-NN come with them.
    """
    num_classes, bins = len(test.source.class_names), settings.calibration_bins
    predictions = classifying.by_neighbors(settings, test, bank)
    k = classifying.neighbors(settings, bank)
    measured = {
        name: {"k": k} | measures.summarize(prediction, num_classes, bins)
        for name, prediction in predictions.items()
    }
    measured["knn"]["temperature"] = settings.knn_temperature
    predicted, ranks = classifying.by_prototypes(test, bank)
    measured["prototype"] = {
        **{f"top_{k}": float(np.mean(ranks < k)) for k in (1, 5)},
        "per_class_recall": measures.per_class_recall(
            predicted, test.labels, num_classes
        ),
    }
    if settings.knn_leave_one_out:
        measured |= leave_one_out(settings, bank)
    return measured, predictions["knn"]


def leave_one_out(
    settings: config.EvaluateSettings, bank: splits.EncodedSplit
) -> dict[str, dict[str, float]]:
    """Accuracies of k-NN of each training image by the others."""
    predictions = classifying.by_neighbors(
        settings, bank, bank, leave_one_out=True
    )
    return {"knn_leave_one_out": classifying.accuracies(predictions)}
