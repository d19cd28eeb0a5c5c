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
    k = min(classifying.neighbors(settings, bank), len(bank.labels))

    def score(rows: np.ndarray) -> dict[str, np.ndarray]:
        """The scores of representations [n, dim], [n] each."""
        scores = {
            "neighbors": measures.neighbor_scores(
                rows, bank.representations, k
            ),
            "mahalanobis": measures.mahalanobis_scores(
                rows, bank.representations, bank.labels
            ),
        }
        for probabilities in [*classify(rows).values()][:1]:
            scores["max_softmax"] = probabilities.max(axis=1)
        return scores

    known_scores = score(test.representations)
    unknown_scores = score(unknown_rows)
    return {
        "images": len(unknown_rows),
        "k": k,
        **{
            name: measures.unknown_summary(
                known_scores[name], unknown_scores[name]
            )
            for name in known_scores
        },
    }
