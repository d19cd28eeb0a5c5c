"""The errors on corrupted images that those of a run are divided by."""

from __future__ import annotations

import contextlib
import json
import pathlib
from collections.abc import Collection, Mapping

from supcon_tf import config, data, exceptions, measures

# Errors by corruption and severity, and the error on the same clean images.
Reference = tuple[measures.Errors, float]

_ALEXNET_CLASSES = 1000


def load_references(
    chosen: config.EvaluateSettings,
    pretrained: config.PretrainSettings,
    test: data.Source,
    classifiers: Collection[str],
) -> dict[str, Reference]:
    """Loads --reference_evaluation: AlexNet, or another run.

    Args:
      chosen: the settings.
      pretrained: those of the run.
      test: the test split of the run.
      classifiers: names of those that the run has.

    Returns:
      A reference for each classifier; none without --reference_evaluation.

    Raises:
      ValueError: the reference is no evaluation of corruptions, is of other
        images, or lacks a classifier, corruption or severity.
    """
    if chosen.reference_evaluation is None:
        return {}
    if chosen.reference_evaluation == "alexnet":
        return dict.fromkeys(classifiers, _alexnet(test))
    evaluation = _read(pathlib.Path(chosen.reference_evaluation))
    found = evaluation["corruptions"]
    faults = _other_images(chosen, pretrained, test, {**evaluation, **found})
    references = {}
    for name in classifiers:
        if name not in found:
            faults.append(f"no {name}")
            continue
        errors = errors_of(found[name]["results"])
        faults += [f"no {name} {cell}" for cell in _missing(chosen, errors)]
        references[name] = (errors, 1 - found[name]["clean"]["top_1"])
    if faults:
        raise exceptions.InvalidValue(
            "--reference_evaluation must be of the same classifiers on the "
            f"same corrupted images, got {chosen.reference_evaluation} with "
            f"{', '.join(faults)}"
        )
    return references


def errors_of(
    results: Mapping[str, Mapping[str, Mapping[str, float]]],
) -> measures.Errors:
    """Errors by corruption and severity, of results that have `top_1`."""
    return {
        corruption: {s: 1 - cell["top_1"] for s, cell in row.items()}
        for corruption, row in results.items()
    }


def _alexnet(test: data.Source) -> Reference:
    """The published errors, if the data can be ImageNet."""
    if len(test.class_names) != _ALEXNET_CLASSES:
        raise exceptions.InvalidValue(
            "--reference_evaluation=alexnet must have the 1000 classes of "
            f"ImageNet, got the {len(test.class_names)} of {test.name}"
        )
    return measures.ALEXNET_ERRORS, measures.ALEXNET_CLEAN_ERROR


def _read(path: pathlib.Path) -> dict:
    """The contents of an evaluation.json that has corruptions."""
    contents = {}
    with contextlib.suppress(OSError, ValueError):
        contents = json.loads(path.read_text())
    if "corruptions" not in contents:
        raise exceptions.InvalidValue(
            "--reference_evaluation must be alexnet or an evaluation.json made "
            f"with --corruptions, got {path}"
        )
    return contents


def _other_images(
    chosen: config.EvaluateSettings,
    pretrained: config.PretrainSettings,
    test: data.Source,
    theirs: dict[str, object],
) -> list[str]:
    """What tells that the reference saw other images."""
    ours = {
        "dataset": test.name,
        "image_size": pretrained.image_size,
        "source": chosen.corruptions,
        "images": chosen.corruption_images or test.num_examples,
        "seed": chosen.corruption_seed,
    }
    return [
        f"{key} {theirs.get(key)} (here {value})"
        for key, value in ours.items()
        if theirs.get(key) != value
    ]


def _missing(
    chosen: config.EvaluateSettings, errors: measures.Errors
) -> list[str]:
    """The asked corruptions and severities that the reference lacks."""
    severities = [str(severity) for severity in chosen.corruption_severities]
    asked = {
        name: dict.fromkeys(severities, 0.0) for name in chosen.corruption_names
    }
    return measures.missing_errors(asked, errors)
