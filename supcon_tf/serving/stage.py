"""From a run directory to a version that TF Serving takes."""

from __future__ import annotations

import numpy as np
from etils import epath

from supcon_tf import config, exceptions, measures
from supcon_tf.serving import metadata, saved_model
from supcon_tf.training import console, representations, runs


def export(chosen: config.ExportSettings) -> epath.Path:
    """Exports encoder and classifier of a run as a SavedModel.

    Args:
      chosen: the settings.

    Returns:
      The directory, export/<version> in the run directory.

    Raises:
      ValueError: run or linear stage has no checkpoint, the run has no such
        classifier, the version exists, or `max_pixels` refuses ordinary
        photographs.
    """
    run = runs.Run.open(chosen.run_dir, chosen.linear_stage)
    size, versions = run.settings.image_size, run.files.export
    directory = versions / str(chosen.version or _next_version(versions))
    if directory.exists():
        raise exceptions.InvalidValue(
            f"--version must not exist in {versions}, got {chosen.version}"
        )
    saved_model.check_max_pixels(chosen.max_pixels, size)
    name = run.choose_classifier(chosen.classifier)
    is_named = name != "none" or chosen.prototypes
    saved_model.export_saved_model(
        run.encoder,
        directory,
        image_size=size,
        class_names=run.class_names if is_named else (),
        classifier=None if name == "none" else run.classifier(name),
        prototypes=_prototypes(run) if chosen.prototypes else None,
        top_k=chosen.top_k,
        max_pixels=chosen.max_pixels,
        max_batch_size=chosen.max_batch_size,
        batch_timeout=chosen.batch_timeout_ms / 1000,
        finish=lambda directory: metadata.write_metadata(
            directory, run, chosen, name
        ),
    )
    console.print_line("classifier", name)
    console.print_line("exported", directory)
    return directory


def _prototypes(run: runs.Run) -> np.ndarray:
    """Mean representations of the classes of the training images."""
    encoded, labels = representations.represent(
        run.encoder, run.images("train"), image_size=run.settings.image_size
    )
    return measures.class_prototypes(
        encoded, labels, num_classes=len(run.class_names)
    )[0]


def _next_version(directory: epath.Path) -> int:
    """One more than the newest version in a directory, from 1."""
    versions = [
        int(child.name)
        for child in directory.glob("*")
        if child.name.isdecimal()
    ]
    return max(versions, default=0) + 1
