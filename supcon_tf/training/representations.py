"""Representations of a whole split, computed once."""

from __future__ import annotations

from collections.abc import Callable

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
    return encode(inference_step(encoder, examples), examples)


def inference_step(
    encoder: models.Encoder, examples: tf.data.Dataset
) -> tf.types.experimental.GenericFunction:
    """Makes the function from a batch of images to their representations.

    Args:
      encoder: run in inference mode.
      examples: of `data.make_examples`; tells the shape of the images.

    Returns:
      A function that is traced once, however many batches it gets.
    """

    @tf.function(input_signature=[examples.element_spec[0]])
    def step(batch: tf.Tensor) -> tf.Tensor:
        return encoder(batch, training=False)

    return step


def encode(
    step: Callable[[tf.Tensor], tf.Tensor], examples: tf.data.Dataset
) -> tuple[np.ndarray, np.ndarray]:
    """Runs the batches of `data.make_examples` through `inference_step`.

    Args:
      step: from images to representations.
      examples: finite batches of images and labels.

    Returns:
      As `represent`.
    """
    pairs = [(step(batch).numpy(), y.numpy()) for batch, y in examples]
    representations, labels = zip(*pairs, strict=True)
    return np.concatenate(representations), np.concatenate(labels)
