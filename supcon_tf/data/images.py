"""Decoding of image files, shared by training, evaluation and serving."""

from __future__ import annotations

import tensorflow as tf


def decode_image(contents: tf.Tensor) -> tf.Tensor:
    """Decodes one JPEG or PNG file into an RGB image.

    Every colour type becomes three channels of 8 bits: gray is repeated, a
    palette is looked up, CMYK (JPEG) is converted, 16-bit PNG keeps its high
    byte. Transparency is dropped, not blended: a transparent pixel shows the
    colour stored under it. An EXIF rotation is not applied. TensorFlow also
    takes BMP, and of a GIF the first frame.

    Args:
      contents: [] string, the bytes of one file.

    Returns:
      [height, width, 3] uint8, sides in pixels.

    Raises:
      tf.errors.InvalidArgumentError: `contents` is not an image, or is
        truncated.
    """
    image = tf.io.decode_image(contents, channels=3, expand_animations=False)
    # decode_image leaves even the rank unknown.
    return tf.ensure_shape(image, [None, None, 3])
