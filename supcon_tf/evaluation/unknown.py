"""Whether the scores of belonging tell test images from unknown images."""

from __future__ import annotations

import numpy as np

from supcon_tf import config, data, measures
from supcon_tf.data import folder
from supcon_tf.evaluation import classifying, splits
from supcon_tf.training import representations, runs


def read(settings: config.EvaluateSettings, run: runs.Run) -> data.Source:
    """The images of --unknown_data, whose classes do not count.

    Raises:
      ValueError: the images cannot be read, or the run has texts, several
        labels, unseen test classes or no bank.
    """
    run.check_rgb("--unknown_data")
    run.check_one_label("--unknown_data")
    run.check_seen_classes("--unknown_data")
    return folder.load_all_images(settings.unknown_data)


def measure(
    settings: config.EvaluateSettings,
    test: splits.EncodedSplit,
    bank: splits.EncodedSplit,
    unknown: data.Source,
    represent: representations.Represent,
    classify: classifying.Classify,
) -> dict[str, object]:
    """Measures of each score of belonging: known test images, unknown images.

    `neighbors` is the cosine to the k-th nearest training image, `mahalanobis`
    the distance to the nearest class mean, `max_softmax` the highest
    probability of the first classifier, where the run has one.
    """
    unknown_rows, _ = represent(unknown)  # [U, dim]
    num_known = len(test.representations)
    rows = np.concatenate([test.representations, unknown_rows])
    k = min(classifying.neighbors(settings, bank), len(bank.labels))
    scores = {
        "neighbors": measures.neighbor_scores(rows, bank.representations, k),
        "mahalanobis": measures.mahalanobis_scores(
            rows, bank.representations, bank.labels
        ),
    }
    confidences = _confidences(rows, classify, len(test.source.class_names))
    if confidences is not None:
        scores["max_softmax"] = confidences
    return {
        "images": len(unknown_rows),
        "k": k,
        **{
            name: measures.unknown_summary(score[:num_known], score[num_known:])
            for name, score in scores.items()
        },
    }


def _confidences(
    rows: np.ndarray, classify: classifying.Classify, num_classes: int
) -> np.ndarray | None:
    """The highest probability of each of the rows [n, dim]; None for none."""
    parts = []
    for part in measures.parts(len(rows), num_classes):
        for probabilities in [*classify(rows[part]).values()][:1]:
            parts.append(probabilities.max(axis=1))
    return np.concatenate(parts) if parts else None
