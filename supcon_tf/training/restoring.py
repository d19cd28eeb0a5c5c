"""Trained models of a run directory."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

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
      ValueError: run or stage has no checkpoint, or one that does not fit, or
        the stage is a transfer to other data.
    """
    if run.stage(stage).transfer_file.exists():
        raise ValueError(
            "--linear_stage must be one of tools/train_linear.py, got "
            f"{stage}, a transfer to other data"
        )
    made = models.LinearClassifier(
        restored_encoder(run), len(run.class_names())
    )
    size = run.pretrain_settings().image_size
    made.build((None, size, size, 3))
    checkpoints.restore(
        run.stage(stage).latest_checkpoint(), classifier=made.classifier
    )
    return made


def restored_pretrained_classifier(
    run: run_directory.RunDirectory,
) -> Callable[[tf.Tensor], tf.Tensor] | None:
    """The classifier that stage 1 trained together with the encoder.

    That of the objectives ce and max_margin, of the joint ones, and of an
    online classifier: the classifier of one-stage training.

    Args:
      run: a pretrained run.

    Returns:
      A function of representations [images, dim] float32, as the run's encoder
      makes them, to logits [images, classes] float32, those of max_margin its
      scale times cosines; None where stage 1 trained no classifier.

    Raises:
      ValueError: the run has no checkpoint, or one that does not fit.
    """
    chosen = run.pretrain_settings()
    if not builders.has_classifier(chosen):
        return None
    classifier = builders.classifier(chosen, len(run.class_names()))
    checkpoints.restore(run.latest_checkpoint(), classifier=classifier)
    if not builders.uses_cosines(chosen):
        return classifier

    def scaled_cosines(representations: tf.Tensor) -> tf.Tensor:
        # As models.ClassifierModel and losses.MaxMarginLoss, without margin.
        return chosen.softmax_scale * tf.matmul(
            tf.math.l2_normalize(representations, axis=1),
            tf.math.l2_normalize(classifier.kernel, axis=0),
        )

    return scaled_cosines
