"""Trained models of a run directory."""

from __future__ import annotations

from supcon_tf import models
from supcon_tf.training import (
    builders,
    checkpoints,
    run_directory,
)


def restored_encoder(run: run_directory.RunDirectory) -> models.Encoder:
    """The encoder of a run with its trained weights.

    Raises:
      ValueError: the run has no checkpoint, or one of another encoder.
    """
    made = builders.encoder(run.pretrain_settings())
    checkpoints.restore(run.latest_checkpoint(), encoder=made)
    return made


def restored_classifier(
    run: run_directory.RunDirectory, stage: str
) -> models.LinearClassifier:
    """The linear classifier of a stage of a run, on the run's encoder.

    Raises:
      ValueError: run or stage has no checkpoint, or one that does not fit.
    """
    made = models.LinearClassifier(
        restored_encoder(run), len(run.class_names())
    )
    size = run.pretrain_settings().image_size
    made.build((None, size, size, 3))
    checkpoints.restore(
        run.stage(stage).latest_checkpoint(), classifier=made.classifier
    )
    return made
