"""metadata.json, the record of an export, and model_card.md for readers.

The record names the run, its checkpoints and settings, and digests of files.
"""

from __future__ import annotations

import dataclasses
import datetime
import pathlib
import subprocess
from collections.abc import Mapping

import tensorflow as tf
from etils import epath

from supcon_tf import config, run_files, scores
from supcon_tf.augment import geometry
from supcon_tf.disk import files
from supcon_tf.serving import model, model_card, requests
from supcon_tf.text import in_graph
from supcon_tf.training import console, runs

FILE = run_files.EXPORT_RECORD
CARD = f"{requests.EXTRAS}/model_card.md"
_PACKAGE = pathlib.Path(__file__).parent.parent
_GIT_SECONDS = 5
_PREPROCESSING = (
    "RGB of 8 bits; short side to {resized} px, antialiased bilinear; centre "
    "{size} x {size} px; an image of that size stays as it is; EXIF rotation "
    "not applied, transparency dropped"
)
_PREPROCESSING_OF_TEXTS = (
    "UTF-8; {algorithm} of the model's vocabulary, cut to max_length tokens, "
    "of two sentences, with a tab between, the longer one first"
)


def write_metadata(
    directory: epath.PathLike,
    run: runs.Run,
    settings: config.ExportSettings,
    classifier: str,
    num_parameters: int,
    signatures: model.Signatures,
    gallery: dict[str, str] | None = None,
) -> None:
    """Writes model_card.md and metadata.json, the last files of an export.

    Both lie in assets.extra/. `git_revision` is null where this code is in no
    checkout, `metrics` where this checkpoint was not evaluated; `files` has
    SHA-256 and bytes of each other file, `card` is that of `model_card`.

    Args:
      directory: a SavedModel of the run, complete but for these files.
      run: the run that was exported.
      settings: those of the export.
      classifier: "linear", "pretrained" or "none": what it resolved to.
      num_parameters: of the exported model.
      signatures: what `ServedModel.save` returned.
      gallery: identity of the gallery in the export; None for no gallery.

    Raises:
      ValueError: the run or the stage has no checkpoint.
    """
    directory = epath.Path(directory)
    is_named = classifier != "none" or settings.prototypes
    classes = run.class_names if is_named else ()
    evaluation = _evaluation(run, classifier)
    record = {
        **_origin(run, settings, classifier),
        "metrics": _metrics(classifier, evaluation),
        "parameters": num_parameters,
        **_preprocessing(run, settings),
        "classes": list(classes),
        "top_k": min(settings.top_k, len(classes)),
        "threshold": settings.threshold if run.is_multi_label else None,
        "gallery": gallery,
        "signatures": {n: _tensors(s) for n, s in signatures.items()},
        "files": _digests(directory),
    }
    card = model_card.describe(run, record, evaluation)
    text = model_card.to_markdown(record["run"], card)
    files.write_atomically(directory / CARD, text)
    digests = {**record["files"], CARD: files.digest(directory / CARD)}
    record["files"] = dict(sorted(digests.items()))
    files.write_json(
        directory / FILE, {**record, "card": card}, ensure_ascii=False
    )


def _preprocessing(
    run: runs.Run, settings: config.ExportSettings
) -> dict[str, object]:
    """The preprocessing of images or texts, as fields of the record."""
    if run.is_of_texts:
        algorithm = in_graph.algorithm_of(run.tokenizer).NAME
        return {
            "max_length": run.settings.max_length,
            "preprocessing": _PREPROCESSING_OF_TEXTS.format(
                algorithm=algorithm
            ),
        }
    size = run.settings.image_size
    resized = round(size / geometry.CENTRAL_FRACTION)
    return {
        "image_size": size,
        "preprocessing": _PREPROCESSING.format(size=size, resized=resized),
        "max_pixels": settings.max_pixels,
    }


def _origin(
    run: runs.Run, settings: config.ExportSettings, classifier: str
) -> dict[str, object]:
    """The run, its checkpoints and settings, and the versions of the code."""
    origins = run.made_of(classifier)
    parts = {"export": settings, "encoder": run.settings}
    if classifier != "none":
        parts["classifier"] = run.settings
    if classifier == "linear":
        stage = run.files.stage(run.linear_stage)
        parts["classifier"] = stage.recorded(config.LinearSettings)
    now = datetime.datetime.now(datetime.timezone.utc)
    return {
        "time": now.isoformat(timespec="seconds"),
        "versions": console.versions(),
        "git_revision": git_revision(),
        "run": run.files.path.name,
        "classifier": classifier,
        "checkpoints": {
            part: {
                "name": origin["checkpoint"],
                "step": int(origin["checkpoint"].rpartition("-")[2]),
                "sha256": origin["sha256"],
            }
            for part, origin in origins.items()
        },
        "settings": {
            part: {
                field.name: getattr(fields, field.name)
                for field in dataclasses.fields(fields)
                if field.metadata["recorded"]
            }
            for part, fields in parts.items()
        },
    }


def git_revision(package: pathlib.Path = _PACKAGE) -> str | None:
    """The commit of a package, with "-dirty" where it was changed since.

    None where the code is in no checkout or git does not answer.
    """
    commands = (
        # An installed package may lie below the checkout of something else.
        "ls-files --error-unmatch __init__.py",
        "describe --always --abbrev=40 --exclude=* --dirty",
    )
    try:
        for command in commands:
            done = subprocess.run(
                ["git", "--no-optional-locks", "-C", package, *command.split()],
                capture_output=True,
                check=True,
                text=True,
                timeout=_GIT_SECONDS,
            )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _evaluation(run: runs.Run, classifier: str) -> dict[str, object]:
    """The evaluation of the exported checkpoints; {} if there is none.

    A line names an evaluation of other checkpoints.
    """
    made_of = run.made_of("linear" if classifier == "linear" else "none")
    outdated_file = None
    for directory in (run.evaluation_owner, run.files):
        results = directory.evaluation()
        measured = results.get("made_of", {})
        # Test classes that training never saw measure the encoder alone.
        parts = ["encoder"] if "test_classes" in results else made_of
        if all(measured.get(part) == made_of[part] for part in parts):
            return results
        if results:
            outdated_file = directory.evaluation_file
    if outdated_file:
        text = f"none: {outdated_file} is of other checkpoints; evaluate again"
        console.print_line("metrics", text)
    return {}


def _metrics(
    classifier: str, results: Mapping[str, object]
) -> dict[str, object] | None:
    """The scores of the exported classifier and of its prototypes."""
    if not results:
        return None
    paths = {score.path for score in scores.SCORES}
    return {key: results[key] for key in ("dataset", "test_examples")} | {
        part: {k: v for k, v in results[part].items() if f"{part}.{k}" in paths}
        for part in (classifier, "prototype")
        if part in results
    }


def _tensors(
    signature: dict[str, dict[str, tf.TensorSpec]],
) -> dict[str, object]:
    """Types and shapes of inputs and outputs; null is any number."""
    return {
        side: {
            name: {"dtype": spec.dtype.name, "shape": spec.shape.as_list()}
            for name, spec in sorted(tensors.items())
        }
        for side, tensors in signature.items()
    }


def _digests(directory: epath.Path) -> dict[str, dict[str, object]]:
    """Digests of all files but metadata.json, by relative path."""
    names = (
        str((epath.Path(folder) / file).relative_to(directory))
        for folder, _, file_names in tf.io.gfile.walk(str(directory))
        for file in file_names
    )
    return {n: files.digest(directory / n) for n in sorted(names) if n != FILE}
