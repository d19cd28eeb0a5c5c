"""Dispatch: each image of a batch gets the operation that it drew."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import tensorflow as tf

from supcon_tf import exceptions
from supcon_tf.defaults import MOST_CHANNELS


def check_images(images: tf.Tensor) -> tf.Tensor:
    """The images as a tensor, if they are [batch, height, width, channels].

    1 to 16 channels, uint8 or float32. Only the batch may be unknown while a
    graph is traced.
    """
    images = tf.convert_to_tensor(images)
    shape = images.shape
    valid = shape.rank == 4 and shape[1:].is_fully_defined()
    exceptions.require(
        images.dtype in (tf.uint8, tf.float32)
        and valid
        and 1 <= shape[3] <= MOST_CHANNELS,
        "`images` must be [batch, height, width, channels] uint8 or float32 of "
        f"known height and width and 1 to {MOST_CHANNELS} channels",
        f"{shape} {images.dtype.name}",
    )
    return images


def check_colors(images: tf.Tensor) -> tf.Tensor:
    """Checks images as `check_images`, for operations on colours: RGB uint8."""
    images = tf.convert_to_tensor(images)
    shape = images.shape
    valid = shape.rank == 4 and shape[1:3].is_fully_defined() and shape[3] == 3
    exceptions.require(
        images.dtype == tf.uint8 and valid,
        "`images` must be [batch, height, width, 3] uint8 of known height and "
        "width for operations on colours",
        f"{shape} {images.dtype.name}",
    )
    return images


def keep(images: tf.Tensor, *_: tf.Tensor) -> tf.Tensor:
    """The identity, for images that drew no operation."""
    return images


def dispatch(
    choice: tf.Tensor,
    operations: Sequence[Callable[..., tf.Tensor]],
    images: tf.Tensor,
    *per_image: tf.Tensor,
) -> tf.Tensor:
    """Applies to each image the operation that it chose.

    Every operation runs once, on the sub-batch of the images that chose it,
    which may be empty. Splitting and joining copy whole images, at a fraction
    of the cost of a choice per pixel.

    Args:
      choice: [batch] int32, indices of `operations`.
      operations: callables `operation(images, *per_image)` on a batch, which
        return images of unchanged shape.
      images: [batch, height, width, channels].
      *per_image: tensors with a leading batch axis, such as seeds or factors,
        which each operation receives for its own images.
    """
    count = len(operations)
    positions, *arguments = (
        tf.dynamic_partition(tensor, choice, count)
        for tensor in (tf.range(tf.size(choice)), images, *per_image)
    )
    results = [
        operation(*inputs)
        for operation, *inputs in zip(operations, *arguments, strict=True)
    ]
    return tf.ensure_shape(tf.dynamic_stitch(positions, results), images.shape)
