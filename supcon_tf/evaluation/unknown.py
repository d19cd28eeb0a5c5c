"""Whether the scores of belonging tell test images from unknown images."""

from __future__ import annotations

import numpy as np

from supcon_tf import config, data, exceptions, measures
from supcon_tf.data import folder, subsets
from supcon_tf.evaluation import classifying, splits
from supcon_tf.training import console, input_pipeline, representations, runs

_BINS = 40


def read(
    settings: config.EvaluateSettings, run: runs.Run
) -> data.Source | None:
    """The images of --unknown_data, whose classes do not count.

    By default the test images of the run's --unknown_classes; None where there
    are none.

    Raises:
      ValueError: the images cannot be read, or some are images of the run, or
        the run has texts, several labels, or unseen test classes.
    """
    if not settings.unknown_data:
        if run.is_of_texts or settings.bank_images == 0:
            return None
        return _images_of_unknown_classes(run.data_settings)
    run.check_rgb("--unknown_data")
    run.check_one_label("--unknown_data")
    run.check_seen_classes("--unknown_data")
    with exceptions.argument("unknown_data", "data_dir"):
        images = folder.load_all_images(
            settings.unknown_data, settings.skip_bad_images
        )
    if skipped := images.skipped:
        names = exceptions.listed(skipped)
        console.print_line(
            "unknown", f"bad files skipped: {len(skipped)}: {names}"
        )
    for split in ("train", "test"):
        shared = subsets.duplicates(images, run.source(split))
        exceptions.require(
            not len(shared),
            f"--unknown_data must have no images of the {split} split, which "
            "are known",
            f"{len(shared)} of {images.num_examples} that are",
        )
    return images


def _images_of_unknown_classes(
    settings: config.DataSettings,
) -> data.Source | None:
    """The test images of --unknown_classes; says that there are none."""
    images = input_pipeline.unknown_source(settings)
    if images is None and settings.unknown_classes:
        names = exceptions.listed(settings.unknown_classes)
        console.print_line("unknown", f"not scored: no test images of {names}")
    return images


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
    the distance to the nearest class mean, where some class has different rows,
    `max_softmax` the highest probability of the first classifier, where the run
    has one.
    """
    unknown_rows, _ = represent(unknown)  # [U, dim]
    num_known = len(test.representations)
    rows = np.concatenate([test.representations, unknown_rows])
    k = classifying.neighbors(settings, bank)
    scores = {
        "neighbors": measures.neighbor_scores(rows, bank.representations, k),
        **_distances(rows, bank),
    }
    predictions = measures.predict_in_parts(
        np.zeros(len(rows), int),  # the confidence needs no labels
        len(test.source.class_names),
        lambda part: classify(rows[part]),
    )
    for first in [*predictions.values()][:1]:
        scores["max_softmax"] = first.confidence
    return {
        "images": len(unknown_rows),
        "k": k,
        **{
            name: _summary(score[:num_known], score[num_known:])
            for name, score in scores.items()
        },
    }


def _distances(
    rows: np.ndarray, bank: splits.EncodedSplit
) -> dict[str, np.ndarray]:
    """The score `mahalanobis` of rows; {} where the classes span no distance.

    As those of one image each, or of a collapsed encoder: no reason to lose
    the other numbers of the evaluation.
    """
    try:
        scores = measures.mahalanobis_scores(
            rows, bank.representations, bank.labels
        )
    except exceptions.InvalidValue as error:
        console.print_line("unknown", f"no score by distance: {error}")
        return {}
    return {"mahalanobis": scores}


def _summary(known: np.ndarray, unknown: np.ndarray) -> dict[str, object]:
    """The measures of a score, and its histogram, in which the report shows it.

    `histogram` has `edges` [bins + 1], and the counts of `known` and `unknown`
    images, [bins] each.
    """
    # float64: scores of a collapsed encoder are too close for float32 bins,
    # which NumPy 2 refuses.
    every_score = np.concatenate([known, unknown]).astype(np.float64)
    edges = np.histogram_bin_edges(every_score, _BINS)
    return {
        **measures.unknown_summary(known, unknown),
        "histogram": {
            "edges": edges.tolist(),
            "known": np.histogram(known, edges)[0].tolist(),
            "unknown": np.histogram(unknown, edges)[0].tolist(),
        },
    }
