"""BMP files: palettes are looked up, what would be misread is refused."""

from __future__ import annotations

import tensorflow as tf

from supcon_tf.data import image_bytes

_FILE_HEADER = 14  # bytes before the image header
_HEADERS = (40, 52, 56, 108, 124)  # bytes; versions 3 to 5 of Windows
_BITS = (8, 24, 32)  # per pixel
_PLAIN, _BIT_FIELDS = 0, 3  # compression
_MASKS = (0xFF0000, 0xFF00, 0xFF)  # of red, green, blue in plain 32 bits
_PALETTE = 4 * 256  # bytes


def decode(contents: tf.Tensor, max_pixels: int | None) -> tf.Tensor:
    """Decodes a BMP file of 8, 24 or 32 bits per pixel, without compression.

    TensorFlow reads the indices of a palette as gray, ignores compression,
    and refuses files with bytes after the last pixel, as Photoshop writes
    them.

    Args:
      contents: [] string, a file that begins as BMP does.
      max_pixels: most that height * width may be; None for no bound.

    Returns:
      [height, width, 3] uint8. Of a pixel of 32 bits the fourth byte, alpha
      or nothing, is dropped. A colour that the palette lacks is black.

    Raises:
      tf.errors.InvalidArgumentError: the file is of another kind, too large,
        or truncated.
    """
    # Integers of 4 bytes, the lowest byte first; from where the pixels begin.
    head = tf.strings.substr(image_bytes.head(contents, 66), 10, 56)
    fields = tf.unstack(tf.io.decode_raw(head, tf.int32), 14)
    contents, bits = _require_plain(contents, fields)
    begin, header_size, width, height = tf.unstack(
        tf.cast(fields[:4], tf.int64)
    )
    height = tf.abs(height)  # negative where the first row is the top one
    contents = image_bytes.require_pixels(
        contents, height, width, max_pixels, "BMP"
    )
    row = (tf.cast(bits, tf.int64) // 8 * width + 3) // 4 * 4  # bytes
    end = begin + row * height
    size = tf.cast(tf.strings.length(contents), tf.int64)
    palette_begin = _FILE_HEADER + header_size
    contents = image_bytes.require(
        (palette_begin <= begin) & (end <= size),
        contents,
        "BMP file must be whole, got ",
        size,
        " bytes whose header asks for bytes ",
        begin,
        " to ",
        end,
    )
    # Bytes behind the pixels are an error to TensorFlow.
    whole = tf.strings.substr(contents, tf.constant(0, tf.int64), end)
    image = tf.image.decode_bmp(whole, channels=3)
    palette = tf.strings.substr(
        contents, palette_begin, tf.minimum(begin - palette_begin, _PALETTE)
    )
    return tf.cond(
        bits == 8, lambda: _look_up(image, palette), lambda: tf.identity(image)
    )


def _require_plain(
    contents: tf.Tensor, fields: list[tf.Tensor]
) -> tuple[tf.Tensor, tf.Tensor]:
    """Refuses what TensorFlow would misread; returns the bits per pixel too."""
    _, header_size, _, _, planes_and_bits, compression = fields[:6]
    bits = planes_and_bits // 2**16
    contents = image_bytes.require(
        tf.reduce_any(header_size == _HEADERS),
        contents,
        "BMP file must have a Windows header of 40, 52, 56, 108 or 124 bytes, "
        "got ",
        header_size,
        " bytes",
    )
    contents = image_bytes.require(
        tf.reduce_any(bits == _BITS),
        contents,
        "BMP file must have 8, 24 or 32 bits per pixel, got ",
        bits,
    )
    # Any file has one of two kinds of pixels.
    kind = tf.stack([compression, *fields[11:14], bits])
    is_plain = (compression == _PLAIN) | tf.reduce_all(
        kind == [_BIT_FIELDS, *_MASKS, 32]
    )
    contents = image_bytes.require(
        is_plain,
        contents,
        "BMP file must be uncompressed, got compression ",
        compression,
    )
    return contents, bits


def _look_up(image: tf.Tensor, palette: tf.Tensor) -> tf.Tensor:
    """Colours of the indices that all channels of an image hold."""
    table = tf.io.decode_raw(palette, tf.uint8, fixed_length=_PALETTE)
    table = tf.reverse(tf.reshape(table, [256, 4])[:, :3], [1])  # was B, G, R
    return tf.gather(table, tf.cast(image[..., 0], tf.int32))
