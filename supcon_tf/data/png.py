"""PNG files: within bounds of size and time."""

from __future__ import annotations

import tensorflow as tf

from supcon_tf.data import image_bytes

_HEADER = b"\0\0\0\x0dIHDR"  # length and type of the first chunk
# Each takes libpng up to 20 ms to unpack, and a thousand fit in 8 MB.
_MAX_TEXTS = 64


def decode(contents: tf.Tensor, max_pixels: int | None) -> tf.Tensor:
    """Decodes a PNG file of any colour type and depth.

    Args:
      contents: [] string, a file that begins as PNG does.
      max_pixels: most that height * width may be; None for no bound. A side
        of more than 10^6 is an error to libpng.

    Returns:
      [height, width, 3] uint8; of an animation the image that is shown
      without it.

    Raises:
      tf.errors.InvalidArgumentError: the file is too large, has more than 64
        texts that may be compressed, or is truncated or damaged.
    """
    # Here libpng checks the rest of the header.
    head = image_bytes.head(contents, 24)
    contents = image_bytes.require(
        tf.strings.substr(head, 8, 8) == _HEADER,
        contents,
        "PNG file must begin with its header, got another chunk",
    )
    sides = tf.io.decode_raw(
        tf.strings.substr(head, 16, 8), tf.int32, little_endian=False
    )
    contents = image_bytes.require_pixels(
        contents, sides[1], sides[0], max_pixels, "PNG"
    )
    contents = image_bytes.require_few(
        contents, _count_texts(contents), _MAX_TEXTS, "PNG", "compressed texts"
    )
    return tf.io.decode_png(contents, channels=3)


def _count_texts(contents: tf.Tensor) -> tf.Tensor:
    """Counts the chunks of type zTXt or iTXt, which may be compressed."""

    def is_text(
        first: tf.Tensor, second: tf.Tensor, last: tf.Tensor
    ) -> tf.Tensor:
        is_any = (second == ord("T")) & (last == ord("t"))
        return is_any & ((first == ord("z")) | (first == ord("i")))

    return image_bytes.count_places(contents, ord("X"), [-2, -1, 1], is_text)
