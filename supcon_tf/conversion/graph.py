"""What is converted: from images to probabilities, or to representations."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from supcon_tf import models


class ImageModel:
    """Encoder and classifier in inference, for images of one size.

    The normalisation of pixels is inside, decoding and crop are not.

    Args:
      encoder: built encoder.
      image_size: S, in pixels.
      classifier: from representations [N, dim] to logits [N, classes]
        float32, built too; or None.

    Attributes:
      image_size: as given.
      output: name of what it puts out: `probabilities` [N, classes] float32,
        or without a classifier `representation` [N, dim] float32, unit length.
    """

    def __init__(
        self,
        encoder: models.Encoder,
        image_size: int,
        classifier: Callable[[tf.Tensor], tf.Tensor] | None = None,
    ):
        self.encoder = encoder
        self.classifier = classifier
        self.image_size = image_size
        self.output = (
            "representation" if classifier is None else "probabilities"
        )

    def function(
        self, dtype: tf.DType = tf.uint8
    ) -> tf.types.experimental.GenericFunction:
        """The function of `images` [N, S, S, 3] of a type, N unknown."""
        side = self.image_size
        spec = tf.TensorSpec([None, side, side, 3], dtype, "images")
        return tf.function(self._answer, input_signature=[spec])

    def _answer(self, images: tf.Tensor) -> dict[str, tf.Tensor]:
        """Images to the one output, under its name."""
        representations = self.encoder(images, training=False)
        if self.classifier is not None:
            logits = self.classifier(representations)
            return {self.output: tf.nn.softmax(logits)}
        if not self.encoder.normalize:
            representations = tf.math.l2_normalize(representations, axis=1)
        return {self.output: representations}
