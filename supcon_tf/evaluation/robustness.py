"""Accuracy and calibration of a run's classifiers on corrupted test images."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

import numpy as np

from supcon_tf import config, data, exceptions, measures
from supcon_tf.evaluation import (
    corrupted_sources,
    corruptions,
    reference_errors,
)

# A function from a split to the probabilities of each classifier, [n, classes]
# float32 by its name, and the labels, [n] integers.
Classify = Callable[[data.Source], tuple[dict[str, np.ndarray], np.ndarray]]


def check_corruptions(
    chosen: config.EvaluateSettings,
    pretrained: config.PretrainSettings,
    test: data.Source,
    classifiers: Collection[str],
) -> None:
    """Finds what would end `evaluate_corruptions`, before any work is lost.

    Args:
      chosen: the settings, with --corruptions other than none.
      pretrained: those of the run, `image_size` a number.
      test: the test split of the run.
      classifiers: names of those that the run has, "linear" or "pretrained".

    Raises:
      ImportError: the extra `corruptions` is not installed and needed.
      RuntimeError: a corrupted set of TFDS could not be prepared.
      ValueError: there is no classifier, the images are too small or too few,
        the reference does not fit, or a corrupted set of TFDS is not there or
        not one of `test`.
    """
    if not classifiers:
        raise exceptions.InvalidValue(
            "--corruptions must be none for a run without a classifier; train "
            f"one with tools/train_linear.py, got {chosen.corruptions}"
        )
    drawn = chosen.corruption_images
    if drawn is not None and drawn > test.num_examples:
        raise exceptions.InvalidValue(
            f"--corruption_images must be at most {test.num_examples}, the "
            f"test images there are, got {drawn}"
        )
    if chosen.corruption_seed >= 2**32:
        raise exceptions.InvalidValue(
            "--corruption_seed must be below 2^32, got "
            f"{chosen.corruption_seed}"
        )
    reference_errors.load_references(chosen, pretrained, test, classifiers)
    if chosen.corruptions != "generated":
        for condition in corrupted_sources.conditions(chosen):
            corrupted_sources.tfds_source(chosen, pretrained, test, *condition)
        return
    corruptions.check_library()
    if pretrained.image_size < corruptions.MIN_SIDE:
        raise exceptions.InvalidValue(
            "--corruptions=generated must have images of at least "
            f"{corruptions.MIN_SIDE} pixels, got {pretrained.image_size}"
        )


def evaluate_corruptions(
    chosen: config.EvaluateSettings,
    pretrained: config.PretrainSettings,
    test: data.Source,
    classify: Classify,
) -> dict[str, object]:
    """Classifies corrupted test images and the same images as they are.

    Images are corrupted as the encoder sees them: generated ones are made of
    the centre crops of the run's size; those of a TFDS set that has this size
    are taken as they are, without a second resize or crop.

    Args:
      chosen: the settings, with --corruptions other than none.
      pretrained: those of the run, `image_size` a number.
      test: the test split of the run.
      classify: from a split to probabilities and labels.

    Returns:
      What evaluation.json holds under "corruptions": which images and
      severities, and per classifier top-1 accuracy and ECE, shares in [0, 1]:
      `clean`, `results` by corruption and severity, and their means;
      `mean_corruption_error_unnormalized` is a share too. With a reference,
      `mce` and `relative_mce` in percent of it. The first is left out where
      the reference makes no error on a corruption, the second where one adds
      nothing to the errors of the reference.

    Raises:
      ImportError: as `check_corruptions`.
      RuntimeError: as `check_corruptions`.
      ValueError: as `check_corruptions`, or the images of a TFDS set are not
        those of the test split, by their labels.
    """
    size = pretrained.image_size
    held = corrupted_sources.held_chunks(chosen, test, size)
    sources = (corrupted_sources.as_source(test, chunk) for chunk in held())
    clean, labels = _classified(sources, classify)
    references = reference_errors.load_references(
        chosen, pretrained, test, clean
    )
    scores = {
        name: {"clean": _score(probabilities, labels, chosen), "results": {}}
        for name, probabilities in clean.items()
    }
    conditions = (
        corrupted_sources.generated(chosen, test, held)
        if chosen.corruptions == "generated"
        else corrupted_sources.of_tfds(chosen, pretrained, test)
    )
    for corruption, severity, sources in conditions:
        corrupted, found = _classified(sources, classify)
        _check_labels(chosen, f"{corruption} {severity}", found, labels)
        for name, probabilities in corrupted.items():
            row = scores[name]["results"].setdefault(corruption, {})
            row[str(severity)] = _score(probabilities, found, chosen)
        if severity == chosen.corruption_severities[-1]:
            _print_progress(corruption, scores)
    for name, score in scores.items():
        score.update(_summary(score, references.get(name)))
    return {
        "source": chosen.corruptions,
        "images": len(labels),
        "severities": list(chosen.corruption_severities),
        "seed": chosen.corruption_seed,
        "reference": chosen.reference_evaluation,
        **scores,
    }


def _classified(
    sources: Iterable[data.Source], classify: Classify
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Probabilities and labels of all parts, one after the other."""
    parts = [classify(source) for source in sources]
    probabilities = {
        name: np.concatenate([found[name] for found, _ in parts])
        for name in parts[0][0]
    }
    return probabilities, np.concatenate([labels for _, labels in parts])


def _check_labels(
    chosen: config.EvaluateSettings,
    condition: str,
    found: np.ndarray,
    labels: np.ndarray,
) -> None:
    """Raises ValueError if a TFDS set must hold other images.

    Of whole sets the order may differ. Of drawn images it must not: they are
    drawn by their positions.
    """
    if chosen.corruption_images is None:
        found, labels = np.sort(found), np.sort(labels)
    if not np.array_equal(found, labels):
        raise exceptions.InvalidValue(
            f"--corruptions={chosen.corruptions} must hold the test images of "
            "the run, and with --corruption_images in the same order, got "
            f"other labels in {condition}"
        )


def _score(
    probabilities: np.ndarray,
    labels: np.ndarray,
    chosen: config.EvaluateSettings,
) -> dict[str, float]:
    """Top-1 accuracy and ECE."""
    return {
        "top_1": measures.top_k_accuracy(probabilities, labels, 1),
        "ece": measures.expected_calibration_error(
            probabilities, labels, chosen.calibration_bins
        ),
    }


def _print_progress(corruption: str, scores: dict[str, dict]) -> None:
    """Prints the mean accuracy over severities of each classifier."""
    means = ", ".join(
        f"{name} {_mean(score['results'][corruption].values(), 'top_1'):.4f}"
        for name, score in scores.items()
    )
    print(f"{corruption:<17} mean top-1: {means}", flush=True)


def _summary(
    score: dict, reference: reference_errors.Reference | None
) -> dict[str, object]:
    """The means of one classifier, plain and against the reference."""
    errors = reference_errors.errors_of(score["results"])
    rows = list(score["results"].values())
    summary = {
        "by_severity": {
            severity: {
                key: _mean([row[severity] for row in rows], key)
                for key in ("top_1", "ece")
            }
            for severity in rows[0]
        },
        "mean_corruption_error_unnormalized": (
            measures.mean_corruption_error_unnormalized(errors)
        ),
        "mean_ece": _mean([c for row in rows for c in row.values()], "ece"),
    }
    if reference is None:
        return summary
    clean_error = 1 - score["clean"]["top_1"]
    ratios = {
        "mce": measures.mean_corruption_error(errors, reference[0]),
        "relative_mce": measures.relative_mean_corruption_error(
            errors, clean_error, *reference
        ),
    }
    return summary | {k: v for k, v in ratios.items() if v is not None}


def _mean(cells: Iterable[dict[str, float]], key: str) -> float:
    """Mean of one figure of several cells."""
    return float(np.mean([cell[key] for cell in cells]))
