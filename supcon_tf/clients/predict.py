"""The prediction tool: from its settings to a file of answers."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import tqdm
from etils import epath

from supcon_tf import config, exceptions, run_files
from supcon_tf.clients import model, output, paths, requests, rest_model

_TEXT = "text"  # the input of an export that takes texts


def predict(settings: config.PredictSettings) -> int:
    """Sends images or texts to a model, and writes its answers.

    Example:
      >>> import pathlib
      >>> from supcon_tf import clients, config, serving
      >>> _ = serving.export(config.ExportSettings("runs/mine"))
      >>> settings = config.PredictSettings(
      ...     "runs/mine", images=("photos/test",), output="answers.csv",
      ...     top=0, overwrite=True,
      ... )
      >>> clients.predict(settings)
      0
      >>> pathlib.Path("answers.csv").read_text().splitlines()[0]
      'path,predicted_class,probability,error'

    Returns:
      The number of images or texts that have an error instead of an answer.

    Raises:
      ValueError: there are no images or texts, no export, no such signature,
        the export is damaged, or the output file exists or is a directory.
      FileNotFoundError: an image, a folder or a file of texts does not exist.
      RuntimeError: a server is not there, or does not serve the model. Then
        no file is written.
    """
    takes_texts = bool(settings.text or settings.text_files)
    if takes_texts:
        inputs = paths.find_texts(settings.text, settings.text_files)
    else:
        inputs = paths.find_images(settings.images)
    if settings.output:
        output.check(settings.output, settings.overwrite)
    exported_model = _open_model(settings)
    signature = _choose_signature(
        exported_model, takes_texts, settings.signature
    )
    rows = requests.answers(
        lambda contents: exported_model.predict(signature, contents),
        inputs,
        batch_size=settings.batch_size,
    )
    num_errors = 0

    def counted_rows() -> Iterator[model.Row]:
        nonlocal num_errors
        # Rows on the same terminal show the progress, and would break the bar.
        shows_rows = settings.output is None and sys.stdout.isatty()
        # None disables the bar where stderr is no terminal.
        for row in tqdm.tqdm(
            rows, None, len(inputs), disable=shows_rows or None, unit=" answers"
        ):
            num_errors += "error" in row
            yield row

    output.write(counted_rows(), settings.output, settings.top)
    return num_errors


def _choose_signature(
    exported_model: model.Model, takes_texts: bool, asked: str | None
) -> model.Signature:
    """The signature of a name, or that of the classifier, else the encoder."""
    kind = "texts" if takes_texts else "image files"
    signatures = {
        name: signature
        for name, signature in exported_model.signatures().items()
        if (signature.input == _TEXT) == takes_texts
    }
    exceptions.require(
        signatures,
        f"the model must take {kind}; texts are given by --text or "
        "--text_files, and images without a flag",
        "one that takes none",
    )
    names = [asked] if asked else ["serving_default", "represent"]
    name = next(filter(signatures.__contains__, names), None)
    exceptions.require(
        name is not None,
        f"--signature must be one of the model that takes {kind}, "
        f"{', '.join(sorted(signatures))}",
        asked or "none",
    )
    columns = {_TEXT if takes_texts else "path", "error"}
    exceptions.require(
        columns.isdisjoint(signatures[name].outputs),
        f"--signature must have no output called {' or '.join(sorted(columns))}"
        ", the names of the other columns of the answers",
        f"{name} with {', '.join(signatures[name].outputs)}",
    )
    return signatures[name]


def _open_model(settings: config.PredictSettings) -> model.Model:
    """Opens the model of the settings; a server needs no TensorFlow here."""
    if settings.server is None:
        folder = os.path.join(settings.run_dir, "export")
        exceptions.require(
            settings.model_dir or epath.Path(folder).exists(),
            "--run_dir must be a run with an export, or --model_dir an export",
            settings.run_dir,
        )
        export = paths.find_export(
            settings.model_dir or folder, settings.model_version
        )
        paths.check_files(export)
        if settings.model_dir is settings.model_version is None:
            files = run_files.RunDirectory(settings.run_dir)
            paths.print_outdated(files.outdated_export())
            paths.print_outdated(files.outdated_gallery())
        from supcon_tf.clients import saved_model

        return saved_model.SavedModel(export)
    run = os.path.basename(os.path.normpath(settings.run_dir))
    return rest_model.RestModel(
        settings.server,
        settings.model_name or run,
        settings.model_version,
        settings.timeout,
    )
