"""Accuracy and calibration of a run's classifiers on corrupted test images."""

from __future__ import annotations

import contextlib
import json
import pathlib
from collections.abc import Collection

import numpy as np

from supcon_tf import config, data, exceptions, measures
from supcon_tf.robustness import corruptions
from supcon_tf.training import materials, runs

# What those of a run are divided by: errors by corruption and severity, and
# the error on the same clean images.
Reference = tuple[measures.Errors, float]


class Robustness:
    """The classifiers of a run on its corrupted test images.

    What would end `measure` is found at once, before any work is lost.

    Args:
      settings: with --corruptions other than none.
      run: with one classifier or more.

    Raises:
      ImportError, RuntimeError: as `corruptions.CorruptedImages`.
      ValueError: there is no classifier, the reference does not fit, or as
        `corruptions.CorruptedImages`.
    """

    def __init__(self, settings: config.EvaluateSettings, run: runs.Run):
        exceptions.require(
            run.classifiers,
            "--corruptions must be none for a run without a classifier; train "
            "one with tools/train_linear.py",
            settings.corruptions,
        )
        self._settings = settings
        self._test = run.source("test")
        self._references = load_references(settings, run)
        self._images = corruptions.CorruptedImages(settings, run)

    def measure(self, classify: corruptions.Classify) -> dict[str, object]:
        """Classifies corrupted test images and the same images as they are.

        Returns:
          What evaluation.json holds under "corruptions": which images and
          severities, digests of the test split before corruption, and per
          classifier top-1 accuracy and ECE: `clean`, `results` by corruption
          and severity, and their means, all shares in [0, 1]. With a reference,
          `mce` and `relative_mce` in percent of it, unless it makes no error on
          a corruption, or a corruption adds none.

        Raises:
          ValueError: the images of a TFDS set are not those of the test split,
            by their labels.
        """
        settings = self._settings
        scores, expected = {}, None
        for condition, predictions in self._images.classified(classify):
            labels = next(iter(predictions.values())).labels
            expected = labels if expected is None else expected
            # Of whole sets the order may differ. Drawn images are drawn by
            # their positions.
            in_order = np.asarray if settings.corruption_images else np.sort
            exceptions.require(
                np.array_equal(in_order(labels), in_order(expected)),
                f"--corruptions={settings.corruptions} must hold the test "
                "images of the run, and with --corruption_images in the same "
                "order",
                f"other labels in {' '.join(map(str, condition or ()))}",
            )
            for name, answers in predictions.items():
                cell = {
                    "top_1": answers.top_k(1),
                    "ece": answers.calibration_error(settings.calibration_bins),
                }
                if condition is None:
                    scores[name] = {"clean": cell, "results": {}}
                    continue
                corruption, severity = condition
                row = scores[name]["results"].setdefault(corruption, {})
                row[str(severity)] = cell
            if condition and severity == settings.corruption_severities[-1]:
                _print_progress(corruption, scores)
        for name, score in scores.items():
            score |= _summary(score, self._references.get(name))
        return {
            "source": settings.corruptions,
            "images": len(expected),
            "severities": list(settings.corruption_severities),
            "seed": corruptions.SEED,
            "reference": settings.reference_evaluation,
            "test_split": _content(self._test),
            **scores,
        }


def load_references(
    settings: config.EvaluateSettings, run: runs.Run
) -> dict[str, Reference]:
    """Loads --reference_evaluation, AlexNet or another run, per classifier.

    Raises:
      ValueError: the reference is no evaluation of corruptions, is of other
        images, or lacks a classifier, corruption or severity.
    """
    path, test = settings.reference_evaluation, run.source("test")
    if path is None:
        return {}
    if path == "alexnet":
        classes = len(test.class_names)
        exceptions.require(
            classes == 1000,
            "--reference_evaluation=alexnet must have the 1000 classes of "
            "ImageNet",
            f"the {classes} of {test.name}",
        )
        alexnet = measures.ALEXNET_ERRORS, measures.ALEXNET_CLEAN_ERROR
        return dict.fromkeys(run.classifiers, alexnet)
    contents = {}
    with contextlib.suppress(OSError, ValueError, RecursionError):
        contents = json.loads(pathlib.Path(path).read_text("utf-8"))
    exceptions.require(
        "corruptions" in contents,
        "--reference_evaluation must be alexnet or an evaluation.json made "
        "with --corruptions",
        path,
    )
    return _compared(settings, run, contents)


def _compared(
    settings: config.EvaluateSettings, run: runs.Run, contents: dict
) -> dict[str, Reference]:
    """The references in an evaluation.json, once they fit the run."""
    test, evaluated = run.source("test"), contents["corruptions"]
    expected = {
        "dataset": test.name,
        "image_size": run.settings.image_size,
        "source": settings.corruptions,
        "images": settings.corruption_images or test.num_examples,
        "seed": corruptions.SEED,
    }
    recorded = contents | evaluated
    faults = [
        f"{key} {recorded.get(key)} (here {value})"
        for key, value in expected.items()
        if recorded.get(key) != value
    ]
    content, recorded_content = _content(test), evaluated.get("test_split", {})
    faults += [
        f"other test {part}"
        for part in sorted(content.keys() & recorded_content.keys())
        if content[part] != recorded_content[part]
    ]
    row = dict.fromkeys(map(str, settings.corruption_severities), 0.0)
    needed = dict.fromkeys(settings.corruption_names, row)
    references = {}
    for name in run.classifiers:
        if name not in evaluated:
            faults.append(f"no {name}")
            continue
        errors = _errors(evaluated[name]["results"])
        missing = measures.missing_errors(needed, errors)
        faults += [f"no {name} {cell}" for cell in missing]
        references[name] = errors, 1 - evaluated[name]["clean"]["top_1"]
    exceptions.require(
        not faults,
        "--reference_evaluation must be of the same classifiers on the same "
        "corrupted images",
        f"{settings.reference_evaluation} with {', '.join(faults)}",
    )
    return references


def _content(test: data.Source) -> dict[str, object]:
    """Digests of `classes` and, if they were read, of `images` with labels.

    Folders of different images may have the same name and number.
    """
    made_of = materials.fingerprints(test)
    return {
        part: made_of[part] for part in ("classes", "images") if part in made_of
    }


def _errors(results: dict[str, dict[str, dict]]) -> measures.Errors:
    """Errors by corruption and severity, of results that have `top_1`."""
    return {
        corruption: {s: 1 - cell["top_1"] for s, cell in row.items()}
        for corruption, row in results.items()
    }


def _print_progress(corruption: str, scores: dict[str, dict]) -> None:
    """Prints the mean accuracy over severities of each classifier."""
    means = []
    for name, score in scores.items():
        mean = _means(score["results"][corruption].values())["top_1"]
        title = "stage 1" if name == runs.STAGE_1 else name
        means.append(f"{title} {mean:.4f}")
    print(f"{corruption:<17} mean top-1: {', '.join(means)}", flush=True)


def _summary(score: dict, reference: Reference | None) -> dict[str, object]:
    """The means of one classifier, plain and against the reference."""
    errors = _errors(score["results"])
    rows = list(score["results"].values())
    cells = [cell for row in rows for cell in row.values()]
    plain = measures.mean_corruption_error_unnormalized(errors)
    summary = {
        "by_severity": {s: _means([row[s] for row in rows]) for s in rows[0]},
        "mean_corruption_error_unnormalized": plain,
        "mean_ece": _means(cells)["ece"],
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


def _means(cells: Collection[dict[str, float]]) -> dict[str, float]:
    return {
        name: float(np.mean([cell[name] for cell in cells]))
        for name in ("top_1", "ece")
    }
