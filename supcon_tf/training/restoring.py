"""Trained models of a run directory."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable

import tensorflow as tf

from supcon_tf import config, exceptions, models
from supcon_tf.training import (
    builders,
    checkpoints,
    run_directory,
)


@dataclasses.dataclass(frozen=True)
class RestoredModel:
    """What a run has trained, as far as it is asked for.

    Attributes:
      encoder: built for images of the run's size.
      classifier: from representations [images, dim] float32 to logits
        [images, classes] float32, a `tf.Module`; None for an encoder alone.
      name: "linear", "pretrained", as in evaluation.json, or "none".
    """

    encoder: models.Encoder
    classifier: Callable[[tf.Tensor], tf.Tensor] | None
    name: str


def restored_model(
    run: run_directory.RunDirectory, chosen: config.ClassifierSettings
) -> RestoredModel:
    """The encoder of a run and the chosen classifier on it.

    Raises:
      ValueError: the run has no such classifier, or a checkpoint is missing or
        does not fit.
    """
    name = _classifier_name(run, chosen)
    if name == "linear":
        restored = restored_classifier(run, chosen.linear_stage)
        return RestoredModel(restored.encoder, restored.classifier, name)
    encoder = restored_encoder(run)
    size = run.pretrain_settings().image_size
    encoder.build((None, size, size, 3))
    classifier = None
    if name == "pretrained":
        classifier = restored_pretrained_classifier(run)
    return RestoredModel(encoder, classifier, name)


def _classifier_name(
    run: run_directory.RunDirectory, chosen: config.ClassifierSettings
) -> str:
    """Resolves "auto" to what the run has."""
    has_pretrained = builders.has_classifier(run.pretrain_settings())
    if chosen.classifier == "pretrained" and not has_pretrained:
        raise exceptions.InvalidValue(
            "--classifier must be linear or none, got pretrained: stage 1 of "
            f"{run.path} trained no classifier"
        )
    if chosen.classifier != "auto":
        return chosen.classifier
    if run.stage(chosen.linear_stage).settings_file.exists():
        return "linear"
    return "pretrained" if has_pretrained else "none"


def load_encoder(run_dir: str | os.PathLike[str]) -> models.Encoder:
    """The trained encoder of a run directory.

      encoder = supcon_tf.load_encoder("runs/mine")
      representations = encoder(images)  # [batch, S, S, 3] uint8, or 0..255

    Args:
      run_dir: of a finished pretraining, or of one that has a checkpoint; the
        newest counts.

    Returns:
      The encoder, built for images of the size that it was trained on.

    Raises:
      ValueError: there is no run, or it has no checkpoint.
    """
    return restored_encoder(run_directory.RunDirectory(run_dir))


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
        raise exceptions.InvalidValue(
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
    return _ScaledCosines(classifier, chosen.softmax_scale)


class _ScaledCosines(tf.Module):
    """Logits of max_margin: as its loss has them, without the margin."""

    def __init__(self, classifier: tf.keras.layers.Dense, scale: float):
        super().__init__()
        self.classifier = classifier
        self.scale = scale

    def __call__(self, representations: tf.Tensor) -> tf.Tensor:
        return self.scale * tf.matmul(
            tf.math.l2_normalize(representations, axis=1),
            tf.math.l2_normalize(self.classifier.kernel, axis=0),
        )
