"""From settings to answers."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping

import tqdm
from etils import epath

from supcon_tf import config, exceptions, files
from supcon_tf.clients import (
    asking,
    integrity,
    model,
    output,
    paths,
    rest_model,
)


def predict(chosen: config.PredictSettings) -> int:
    """Asks a model about images, and writes what it answers.

    Args:
      chosen: the settings.

    Returns:
      How many of the images have an error in the place of an answer.

    Raises:
      ValueError: there are no images, no export, no such signature, the
        export is damaged, or the output file exists or is a directory.
      FileNotFoundError: an image or a folder does not exist.
      RuntimeError: a server is not there, or does not serve the model. Then
        no file is written.
    """
    images = paths.find_images(chosen.images)
    if chosen.output:
        _check_output(chosen)
    asked = open_model(chosen)
    signature = _choose(
        asking.patiently(asked.signatures, chosen.retries), chosen.signature
    )
    rows = asking.answers(
        asked,
        signature,
        images,
        batch_size=chosen.batch_size,
        requests_in_flight=chosen.requests_in_flight,
        retries=chosen.retries,
    )
    failed = []
    shown = _shown(rows, len(images), failed, chosen.output is None)
    output.write(shown, chosen.output, chosen.top)
    return len(failed)


def open_model(chosen: config.PredictSettings) -> model.Model:
    """The model that the settings name; TensorFlow only where it is needed."""
    if chosen.server is None:
        directory = chosen.model_dir or os.path.join(chosen.run_dir, "export")
        export = paths.find_export(directory, chosen.model_version)
        integrity.check_files(export)
        from supcon_tf.clients import saved_model

        return saved_model.SavedModel(export)
    name = chosen.model_name or os.path.basename(
        os.path.normpath(chosen.run_dir)
    )
    if not chosen.server.startswith("grpc://"):
        return rest_model.RestModel(
            chosen.server, name, chosen.model_version, chosen.timeout
        )
    from supcon_tf.clients import grpc_model

    return grpc_model.GrpcModel(
        chosen.server.removeprefix("grpc://"),
        name,
        chosen.model_version,
        chosen.timeout,
    )


def _check_output(chosen: config.PredictSettings) -> None:
    """Raises ValueError for an output file that could not be written."""
    path = epath.Path(chosen.output)
    if path.is_dir():
        raise exceptions.InvalidValue(
            f"--output must be a file, got {chosen.output}, a directory"
        )
    if path.exists() and not chosen.overwrite:
        raise exceptions.InvalidValue(
            f"{chosen.output} exists already; choose another --output, or "
            "replace it with --overwrite"
        )
    files.check_writable("output", path.parent)


def _choose(
    signatures: Mapping[str, model.Signature], name: str | None
) -> model.Signature:
    """The named signature, or the first of the usual ones."""
    for known in (name,) if name else ("serving_default", "represent"):
        if known in signatures:
            return signatures[known]
    raise exceptions.InvalidValue(
        "--signature must be one of the model that takes image files, "
        f"{', '.join(sorted(signatures)) or 'which has none'}, got "
        f"{name or 'none'}"
    )


def _shown(
    rows: Iterator[model.Row], total: int, failed: list[str], to_stdout: bool
) -> Iterator[model.Row]:
    """The rows, with a progress bar on a terminal; notes those that failed."""
    # Lines on the same terminal show the progress, and would break the bar.
    hidden = not sys.stderr.isatty() or (to_stdout and sys.stdout.isatty())
    for row in tqdm.tqdm(rows, total=total, unit=" images", disable=hidden):
        if "error" in row:
            failed.append(row["path"])
        yield row
