"""JPEG files: within bounds of size and time."""

from __future__ import annotations

import tensorflow as tf

from supcon_tf.data import image_bytes

# Encoders write about 10. Each scan passes over the whole image: without a
# bound, a small file takes hours.
_MAX_SCANS = 100


def decode(contents: tf.Tensor, max_pixels: int | None) -> tf.Tensor:
    """Decodes a JPEG file of any colour type, baseline or progressive.

    Args:
      contents: [] string, a file that begins as JPEG does.
      max_pixels: most that height * width may be; None for no bound.

    Returns:
      [height, width, 3] uint8.

    Raises:
      tf.errors.InvalidArgumentError: the file is too large, has more than 100
        scans, or is truncated.
    """
    height, width, _ = tf.unstack(tf.io.extract_jpeg_shape(contents))
    contents = image_bytes.require_pixels(
        contents, height, width, max_pixels, "JPEG"
    )
    contents = image_bytes.require_few(
        contents, _count_scans(contents), _MAX_SCANS, "JPEG", "scans"
    )
    return tf.io.decode_jpeg(contents, channels=3)


def _count_scans(contents: tf.Tensor) -> tf.Tensor:
    """Counts the headers of scans.

    In other bytes, such as a video behind the image, what looks like one is
    as rare as one in 10^11.
    """

    def is_scan(
        prefix: tf.Tensor, high: tf.Tensor, low: tf.Tensor, parts: tf.Tensor
    ) -> tf.Tensor:
        return (prefix == 0xFF) & (high == 0) & (low == 6 + 2 * parts)

    # FF, DA, length of the header in two bytes, components of the scan.
    return image_bytes.count_places(contents, 0xDA, [-1, 1, 2, 3], is_scan)
