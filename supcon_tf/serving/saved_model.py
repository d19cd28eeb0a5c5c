"""SavedModels that take image files and need nothing else to run."""

from __future__ import annotations

import os

import tensorflow as tf
from etils import epath

from supcon_tf import config, data, models
from supcon_tf.augment import geometry
from supcon_tf.training import (
    report,
    restoring,
    run_directory,
)


class _Server(tf.Module):
    """The graph of a SavedModel: bytes to images to probabilities."""

    def __init__(
        self,
        encoder: models.Encoder,
        classifier: models.LinearClassifier,
        class_names: tuple[str, ...],
        image_size: int,
    ):
        super().__init__()
        self.encoder = encoder
        self.classifier = classifier.classifier
        self.class_names = class_names
        self.image_size = image_size

    @tf.function(
        input_signature=[tf.TensorSpec([None], tf.string, "image_bytes")]
    )
    def classify(self, image_bytes: tf.Tensor) -> dict[str, tf.Tensor]:
        """Class probabilities of image files."""
        logits = self.classifier(self._represent(image_bytes))
        names = tf.constant(self.class_names)
        rows = tf.shape(logits)[0]
        return {
            "probabilities": tf.nn.softmax(logits),
            "logits": logits,
            "class_names": tf.tile(names[tf.newaxis], [rows, 1]),
            "predicted_class": tf.gather(names, tf.argmax(logits, axis=1)),
        }

    @tf.function(
        input_signature=[tf.TensorSpec([None], tf.string, "image_bytes")]
    )
    def represent(self, image_bytes: tf.Tensor) -> dict[str, tf.Tensor]:
        """Representations of image files."""
        return {"representation": self._represent(image_bytes)}

    def _represent(self, image_bytes: tf.Tensor) -> tf.Tensor:
        """Decodes, crops as evaluation does, and encodes: [N, dim]."""
        size = self.image_size
        images = tf.map_fn(
            lambda file: geometry.central_view(data.decode_image(file), size),
            image_bytes,
            fn_output_signature=tf.TensorSpec([size, size, 3], tf.uint8),
        )
        return self.encoder(images, training=False)


def export_saved_model(
    encoder: models.Encoder,
    classifier: models.LinearClassifier,
    directory: str | os.PathLike[str],
    class_names: tuple[str, ...],
    *,
    image_size: int,
) -> None:
    """Writes a SavedModel; the directory appears only when it is complete.

    `serving_default` takes `image_bytes` [N] string (JPEG, PNG, BMP or GIF
    files, not base64) and returns `probabilities` and `logits` [N, classes]
    float32, `class_names` [N, classes] string in the same order, and
    `predicted_class` [N] string. `represent` takes the same and returns
    `representation` [N, dim] float32. Decoding, crop and normalisation are
    inside, and are those of evaluation; bytes that are no image fail the
    request with INVALID_ARGUMENT.

    Args:
      encoder: built encoder.
      classifier: built linear classifier on it.
      directory: must not exist; TF Serving wants a number as its name.
      class_names: one per logit.
      image_size: side of the encoder's images in pixels.

    Raises:
      ValueError: `directory` exists, or a class has no name.
    """
    directory = epath.Path(directory)
    if directory.exists():
        raise ValueError(f"`directory` must not exist, got {directory}")
    if len(class_names) != classifier.num_classes:
        raise ValueError(
            f"`class_names` must be {classifier.num_classes} names, got "
            f"{len(class_names)}"
        )
    server = _Server(encoder, classifier, tuple(class_names), image_size)
    # TF Serving polls for numbers, so that it does not see this name.
    partial = directory.with_name(f".{directory.name}.partial")
    partial.rmtree(missing_ok=True)
    tf.saved_model.save(
        server,
        str(partial),
        signatures={
            "serving_default": server.classify,
            "represent": server.represent,
        },
    )
    partial.rename(directory)


def export(chosen: config.ExportSettings) -> epath.Path:
    """Exports encoder and linear classifier of a run as a SavedModel.

    Args:
      chosen: the settings.

    Returns:
      The directory, export/<version> in the run directory.

    Raises:
      ValueError: run or linear stage has no checkpoint, or the version
        exists.
    """
    run = run_directory.RunDirectory(chosen.run_dir)
    size = run.pretrain_settings().image_size
    classifier = restoring.restored_classifier(run, chosen.linear_stage)
    directory = run.export / str(chosen.version or _next_version(run.export))
    export_saved_model(
        classifier.encoder,
        classifier,
        directory,
        run.class_names(),
        image_size=size,
    )
    report.print_done("exported", directory)
    return directory


def _next_version(directory: epath.Path) -> int:
    """One more than the newest version in a directory, from 1."""
    versions = [
        int(child.name)
        for child in directory.glob("*")
        if child.name.isdecimal()
    ]
    return max(versions, default=0) + 1
