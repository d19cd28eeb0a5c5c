"""From a run directory to a version that TF Serving takes."""

from __future__ import annotations

import numpy as np
from etils import epath

from supcon_tf import config, exceptions, measures
from supcon_tf.serving import metadata, saved_model
from supcon_tf.training import (
    input_pipeline,
    report,
    representations,
    restoring,
    run_directory,
)


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
    run = run_directory.RunDirectory(chosen.run_dir)
    size = run.pretrain_settings().image_size
    directory = run.export / str(chosen.version or _next_version(run.export))
    if directory.exists():
        raise exceptions.InvalidValue(
            f"--version must not exist in {run.export}, got {chosen.version}"
        )
    saved_model.check_max_pixels(chosen.max_pixels, size)
    restored = restoring.restored_model(run, chosen)
    prototypes = _prototypes(run, restored) if chosen.prototypes else None
    is_named = restored.classifier is not None or chosen.prototypes
    saved_model.export_saved_model(
        restored.encoder,
        directory,
        image_size=size,
        class_names=run.class_names() if is_named else (),
        classifier=restored.classifier,
        prototypes=prototypes,
        top_k=chosen.top_k,
        max_pixels=chosen.max_pixels,
        max_batch_size=chosen.max_batch_size,
        batch_timeout=chosen.batch_timeout_ms / 1000,
        finish=lambda directory: metadata.write_metadata(
            directory, run, chosen, restored.name
        ),
    )
    report.print_done("classifier", restored.name)
    report.print_done("exported", directory)
    return directory


def _prototypes(
    run: run_directory.RunDirectory, restored: restoring.RestoredModel
) -> np.ndarray:
    """Mean representations of the classes of the training images."""
    pretrained = run.pretrain_settings()
    images = input_pipeline.source(pretrained, "train")
    run.check_classes(images.class_names)
    encoded, labels = representations.represent(
        restored.encoder, images, image_size=pretrained.image_size
    )
    return measures.class_prototypes(
        encoded, labels, num_classes=len(images.class_names)
    )[0]


def _next_version(directory: epath.Path) -> int:
    """One more than the newest version in a directory, from 1."""
    versions = [
        int(child.name)
        for child in directory.glob("*")
        if child.name.isdecimal()
    ]
    return max(versions, default=0) + 1
