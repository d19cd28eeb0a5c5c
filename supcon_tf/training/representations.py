"""Representations of a whole split, computed once."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from supcon_tf import data, models


def represent(
    encoder: models.Encoder,
    images: data.Source,
    *,
    batch_size: int = 256,
    image_size: int | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Encodes every example of a split once, in its fixed order.

    Args:
      encoder: run in inference mode.
      images: the split.
      batch_size: images per step; without effect on the result.
      image_size: side in pixels of the evaluation's centre crops; None takes
        that of the images.

    Returns:
      Representations [examples, dim] float32 and labels [examples] int32.

    Raises:
      ValueError: `batch_size` < 1, or no image size is known.
    """
    examples = data.make_examples(images, batch_size, image_size=image_size)

    @tf.function(input_signature=[examples.element_spec[0]])
    def step(batch: tf.Tensor) -> tf.Tensor:
        return encoder(batch, training=False)

    pairs = [(step(batch).numpy(), y.numpy()) for batch, y in examples]
    representations, labels = zip(*pairs, strict=True)
    return np.concatenate(representations), np.concatenate(labels)
