"""Decoding of image files, shared by training, evaluation and serving."""

from __future__ import annotations

import tensorflow as tf

from supcon_tf.augment import geometry


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


def decode_and_crop(
    contents: tf.Tensor,
    seed: tf.Tensor,
    size: int,
    area: tuple[float, float] = (0.08, 1.0),
    aspect: tuple[float, float] = (3 / 4, 4 / 3),
) -> tf.Tensor:
    """Cuts random resized crops out of an image file.

    The same pixels as `geometry.random_resized_crop` of `decode_image`, but of
    a JPEG file only the window that holds all crops is decoded, once.

    Args:
      contents: [] string, the bytes of one file; see `decode_image`.
      seed: [2] int32 for one view, [views, 2] for several. `views` is static.
      size: side of the result, pixels.
      area: smallest and largest share of the image's area.
      aspect: smallest and largest width / height of the box.

    Returns:
      [size, size, 3] uint8, or [views, size, size, 3].

    Raises:
      ValueError: as `geometry.random_resized_crop`.
      tf.errors.InvalidArgumentError: `contents` is not an image, or is
        truncated. A JPEG file that lacks only what no view needs is not
        noticed.
    """
    draw = {"seed": seed, "size": size, "area": area, "aspect": aspect}
    return tf.cond(
        tf.io.is_jpeg(contents),
        lambda: geometry.random_resized_crop_jpeg(contents, **draw),
        lambda: geometry.random_resized_crop(decode_image(contents), **draw),
    )
