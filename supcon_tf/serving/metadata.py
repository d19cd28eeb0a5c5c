"""metadata.json: where an export comes from, and what its files must be."""

from __future__ import annotations

import dataclasses
import datetime
import json
import pathlib
import subprocess
from collections.abc import Iterator, Mapping

import tensorflow as tf
from etils import epath
from google.protobuf import message
from tensorflow.core.protobuf import meta_graph_pb2, saved_model_pb2

from supcon_tf import config, exceptions, files, settings
from supcon_tf.augment import geometry
from supcon_tf.training import console, runs

EXTRAS = "assets.extra"  # the directory that SavedModels have for such files
FILE = f"{EXTRAS}/metadata.json"
_PACKAGE = pathlib.Path(__file__).parent.parent
_GIT_SECONDS = 5
_MEASURES = ("top_1", "top_5", "ece", "nll", "brier")


def write_metadata(
    directory: epath.PathLike,
    run: runs.Run,
    chosen: config.ExportSettings,
    classifier: str,
) -> None:
    """Writes assets.extra/metadata.json, the last file of an export.

    Its keys: `time` (UTC), `versions`, `git_revision` of this code (null where
    it is in no checkout), `run` (its name), `classifier`, `checkpoints` and
    `settings` of export, encoder and classifier, `metrics` (null where this
    checkpoint was not evaluated), `image_size`, `preprocessing`, `max_pixels`,
    `classes`, `top_k`, `signatures`, and `files`: SHA-256 and bytes of each
    other file.

    Args:
      directory: a SavedModel of the run, complete but for this file.
      run: the run that was exported.
      chosen: the settings of the export.
      classifier: "linear", "pretrained" or "none": what it resolved to.

    Raises:
      ValueError: `directory` is no SavedModel, or the run or the stage has no
        checkpoint.
    """
    directory = epath.Path(directory)
    now = datetime.datetime.now(datetime.timezone.utc)
    signatures = read_signatures(directory)
    record = {
        "time": now.isoformat(timespec="seconds"),
        "versions": console.versions(),
        "git_revision": git_revision(),
        **_of_run(run, chosen, classifier),
        **_of_answers(run, chosen, classifier),
        "signatures": {n: _described(s) for n, s in signatures.items()},
        "files": {n: files.digest(directory / n) for n in _files_in(directory)},
    }
    text = json.dumps(record, indent=1, ensure_ascii=False)
    (directory / EXTRAS).mkdir(parents=True, exist_ok=True)
    files.write_atomically(directory / FILE, text + "\n")


def read_signatures(
    directory: epath.PathLike,
) -> dict[str, meta_graph_pb2.SignatureDef]:
    """The signatures of a SavedModel that take something, by name.

    Raises:
      ValueError: `directory` is no SavedModel.
    """
    file = epath.Path(directory) / "saved_model.pb"
    try:
        model = saved_model_pb2.SavedModel.FromString(file.read_bytes())
        found = model.meta_graphs[0].signature_def
    except (OSError, message.DecodeError, IndexError) as error:
        raise exceptions.InvalidValue(
            f"`directory` must be a SavedModel, got {directory}: {error}"
        ) from error
    return {name: found[name] for name in sorted(found) if found[name].inputs}


def git_revision(package: pathlib.Path = _PACKAGE) -> str | None:
    """The commit of this code, with "-dirty" where it was changed since.

    Args:
      package: the directory of the code, which holds __init__.py.

    Returns:
      40 hex digits; None where the code is in no checkout or git does not
      answer.
    """
    describe = "describe --always --abbrev=40 --exclude=* --dirty"
    try:
        # An installed package may lie below the checkout of something else.
        _git(package, "ls-files", "--error-unmatch", "__init__.py")
        return _git(package, *describe.split())
    except (OSError, subprocess.SubprocessError):
        return None


def _git(directory: pathlib.Path, *arguments: str) -> str:
    """What a git command prints, which changes nothing."""
    done = subprocess.run(
        ["git", "--no-optional-locks", "-C", str(directory), *arguments],
        capture_output=True,
        check=True,
        text=True,
        timeout=_GIT_SECONDS,
    )
    return done.stdout.strip()


def _of_run(
    run: runs.Run,
    export: config.ExportSettings,
    classifier: str,
) -> dict[str, object]:
    """Where the weights come from, and how good they are."""
    paths = {"encoder": run.checkpoint}
    chosen = {"export": export, "encoder": run.settings}
    if classifier != "none":
        paths["classifier"] = run.classifier_checkpoint(classifier)
        chosen["classifier"] = run.settings
    if classifier == "linear":
        stage = run.files.stage(run.linear_stage)
        chosen["classifier"] = stage.recorded(config.LinearSettings)
    return {
        # The working directory is ".", which has no name.
        "run": run.files.path.name or run.files.path.resolve().name,
        "classifier": classifier,
        "checkpoints": {n: _checkpoint(path) for n, path in paths.items()},
        "settings": {n: _typed(one) for n, one in chosen.items()},
        "metrics": _metrics(run, classifier),
    }


def _of_answers(
    run: runs.Run,
    chosen: config.ExportSettings,
    classifier: str,
) -> dict[str, object]:
    """What becomes of a request."""
    size = run.settings.image_size
    is_named = classifier != "none" or chosen.prototypes
    classes = run.class_names if is_named else ()
    return {
        "image_size": size,
        "preprocessing": _preprocessing(size),
        "max_pixels": chosen.max_pixels,
        "classes": list(classes),
        "top_k": min(chosen.top_k, len(classes)),
    }


def _checkpoint(path: str) -> dict[str, object]:
    """Name and step of a checkpoint."""
    name = epath.Path(path).name
    return {"name": name, "step": int(name.rpartition("-")[2])}


def _typed(chosen: settings.Settings) -> dict[str, object]:
    """The recorded settings by flag."""
    return {
        field.name: getattr(chosen, field.name)
        for field in dataclasses.fields(chosen)
        if field.metadata["recorded"]
    }


def _metrics(run: runs.Run, classifier: str) -> dict[str, object] | None:
    """What evaluation.json says of the exported checkpoints."""
    found = run.files.evaluation()
    exported = {"encoder": run.checkpoint}
    if classifier == "linear":
        exported["linear_checkpoint"] = run.classifier_checkpoint("linear")
    for name, path in exported.items():
        if not _is_same_checkpoint(found.get(name), path, run):
            return None
    wanted = {classifier: _MEASURES, "prototype": ("top_1",)}
    return {name: found[name] for name in ("dataset", "test_images")} | {
        name: {measure: found[name][measure] for measure in measures}
        for name, measures in wanted.items()
        if name in found
    }


def _is_same_checkpoint(recorded: str | None, path: str, run: runs.Run) -> bool:
    """Whether two paths are of one checkpoint; the run may have moved since."""
    below_run = epath.Path(path).relative_to(run.files.path)
    return recorded is not None and recorded.endswith(f"/{below_run}")


def _preprocessing(image_size: int) -> str:
    """What becomes of an image before the encoder, in words."""
    resized = round(image_size / geometry.CENTRAL_FRACTION)
    return (
        f"RGB of 8 bits; short side to {resized} px, antialiased bilinear; "
        f"centre {image_size} x {image_size} px; an image of that size stays "
        "as it is; EXIF rotation not applied, transparency dropped"
    )


def _described(signature: meta_graph_pb2.SignatureDef) -> dict[str, object]:
    """Types and shapes of a signature; null is any number."""
    return {
        "inputs": _tensors(signature.inputs),
        "outputs": _tensors(signature.outputs),
    }


def _tensors(
    tensors: Mapping[str, meta_graph_pb2.TensorInfo],
) -> dict[str, dict[str, object]]:
    """Type and shape by name."""
    return {
        name: {
            "dtype": tf.as_dtype(tensors[name].dtype).name,
            "shape": tf.TensorShape(tensors[name].tensor_shape).as_list(),
        }
        for name in sorted(tensors)
    }


def _files_in(directory: epath.Path) -> list[str]:
    """The files below a directory but metadata.json, by relative path."""
    names = [str(path.relative_to(directory)) for path in _walk(directory)]
    return sorted(name for name in names if name != FILE)


def _walk(directory: epath.Path) -> Iterator[epath.Path]:
    """All files below a directory."""
    for path in directory.iterdir():
        if path.is_dir():
            yield from _walk(path)
        else:
            yield path
