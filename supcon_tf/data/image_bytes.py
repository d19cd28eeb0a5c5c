"""Decoders of JPEG and PNG files with bounds on size and time."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

# Bytes of a file that are searched at once. The search takes up to 50 times as
# much memory, where every byte may begin the pattern.
_WINDOW = 2**17
# Encoders write about 10. Each scan passes over the whole image: without a
# bound, a small file takes hours.
_MAX_SCANS = 100
# TensorFlow decodes less than 2^29 bytes; its own error is hard to read.
_MAX_PIXELS = (2**29 - 1) // 3
# libpng takes up to 20 ms to unpack a text, and a thousand fit in 8 MB.
_MAX_TEXTS = 64

_PNG_HEADER = b"\0\0\0\x0dIHDR"  # length and type of the first chunk
_SIGNATURES = (b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n")
# Other formats, by the hexadecimal digits that their files begin with.
_OTHER_FORMATS = {
    "GIF": "47494638",
    "BMP": "424d",
    "TIFF": "49492a00|4d4d002a",
    "WebP": "52494646",
}


def find_format(contents: tf.Tensor) -> tf.Tensor:
    """Format of a file by its first bytes, [] int32: 0 JPEG, 1 PNG, 2 other."""
    matches = [
        tf.strings.substr(contents, 0, len(signature)) == signature
        for signature in _SIGNATURES
    ]
    return tf.argmax([*matches, True], output_type=tf.int32)


def decode_jpeg(contents: tf.Tensor, max_pixels: int | None) -> tf.Tensor:
    """Decodes a JPEG file of any colour type, baseline or progressive.

    Shapes and `max_pixels` are as in `images.decode_image`; here None is
    `_MAX_PIXELS`.

    Raises:
      tf.errors.InvalidArgumentError: the file has too many pixels or scans, or
        ends too early.
    """
    height, width, _ = tf.unstack(tf.io.extract_jpeg_shape(contents))
    contents = _require_pixels(contents, height, width, max_pixels, "JPEG")

    # Random bytes, such as a video behind the image, match the header of a scan
    # once in 10^11.
    def is_scan(
        prefix: tf.Tensor, high: tf.Tensor, low: tf.Tensor, parts: tf.Tensor
    ) -> tf.Tensor:
        return (prefix == 0xFF) & (high == 0) & (low == 6 + 2 * parts)

    # FF, DA, length of the header in two bytes, components of the scan.
    scans = _count_matches(contents, 0xDA, [-1, 1, 2, 3], is_scan)
    contents = require(
        scans <= _MAX_SCANS,
        contents,
        f"JPEG file must have at most {_MAX_SCANS} scans, got ",
        scans,
    )
    return tf.io.decode_jpeg(contents, channels=3)


def decode_png(contents: tf.Tensor, max_pixels: int | None) -> tf.Tensor:
    """Decodes a PNG file of any colour type and depth.

    Shapes and `max_pixels` are as in `decode_jpeg`; a side of more than 10^6 is
    an error to libpng. An animation gives its static image.

    Raises:
      tf.errors.InvalidArgumentError: the file has too many pixels or texts that
        may be compressed, or is truncated or damaged.
    """
    # Zeros stand for what the file lacks: a cut past its end is an error whose
    # message holds the file. libpng checks the rest of the header.
    begin = tf.strings.substr(contents, 0, 24)
    head = tf.strings.substr(tf.strings.join([begin, b"\0" * 24]), 0, 24)
    contents = require(
        tf.strings.substr(head, 8, 8) == _PNG_HEADER,
        contents,
        "PNG file must begin with its header, got another chunk",
    )
    sides = tf.io.decode_raw(
        tf.strings.substr(head, 16, 8), tf.int32, little_endian=False
    )
    contents = _require_pixels(contents, sides[1], sides[0], max_pixels, "PNG")

    # Chunks of type zTXt or iTXt.
    def is_text(
        first: tf.Tensor, second: tf.Tensor, last: tf.Tensor
    ) -> tf.Tensor:
        is_any = (second == ord("T")) & (last == ord("t"))
        return is_any & ((first == ord("z")) | (first == ord("i")))

    texts = _count_matches(contents, ord("X"), [-2, -1, 1], is_text)
    contents = require(
        texts <= _MAX_TEXTS,
        contents,
        f"PNG file must have at most {_MAX_TEXTS} compressed texts, got ",
        texts,
    )
    return tf.io.decode_png(contents, channels=3)


def refuse(contents: tf.Tensor) -> tf.Tensor:
    """Raises InvalidArgumentError that names the first bytes of a file.

    Returns a tensor of the type of an image, as the branches of a switch must.
    """
    begin = tf.strings.substr(contents, 0, 8)
    numbers = tf.cast(tf.io.decode_raw(begin, tf.uint8), tf.int32)
    digits = tf.gather([f"{number:02x}" for number in range(256)], numbers)
    digits = tf.strings.reduce_join(digits)
    for name, pattern in _OTHER_FORMATS.items():
        digits = tf.strings.regex_replace(
            digits, f"^({pattern})(.*)$", rf"\1\2, as {name} does"
        )
    refused = require(
        tf.constant(False),
        contents,
        "image file must be JPEG or PNG, got ",
        tf.strings.length(contents),
        " bytes that begin with 0x",
        digits,
    )
    return tf.io.decode_jpeg(refused, channels=3)


def require(
    condition: tf.Tensor, value: tf.Tensor, *message: str | tf.Tensor
) -> tf.Tensor:
    """Returns a value, such as the bytes of a file, if a condition holds.

    Operations on the returned value run after the check, in a graph too.

    Args:
      condition: [] bool.
      value: of any shape and type.
      *message: parts of one sentence, text or [] numbers.

    Raises:
      tf.errors.InvalidArgumentError: `condition` does not hold.
    """
    parts = [
        part if isinstance(part, str) else tf.strings.as_string(part)
        for part in message
    ]
    # One string: TensorFlow puts each string in brackets.
    sentence = tf.strings.join(parts)
    # The bare operation: tf.debugging.Assert adds a branch, with which the
    # graph of all decoders is twice as slow to build and to start.
    check = tf.raw_ops.Assert(condition=condition, data=[sentence])
    with tf.control_dependencies([check] if check is not None else []):
        return tf.identity(value)


def _require_pixels(
    contents: tf.Tensor,
    height: tf.Tensor,
    width: tf.Tensor,
    max_pixels: int | None,
    kind: str,
) -> tf.Tensor:
    """Returns the file if the size in its header is allowed."""
    height, width = tf.cast(height, tf.int64), tf.cast(width, tf.int64)
    fits = (height > 0) & (width > 0)
    allowed = f"1 to {max_pixels or _MAX_PIXELS} pixels"
    if max_pixels is None:
        allowed += " (what has more is too large for TensorFlow)"
    fits &= height * width <= (max_pixels or _MAX_PIXELS)
    return require(
        fits,
        contents,
        f"{kind} image must have {allowed}, got ",
        height,
        " x ",
        width,
        " (height x width)",
    )


def _count_matches(
    contents: tf.Tensor,
    byte: int,
    offsets: list[int],
    is_match: Callable[..., tf.Tensor],
) -> tf.Tensor:
    """Counts the occurrences of a pattern of bytes in a file, [] int32.

    `byte` is the rarest byte of the pattern, `offsets` are the positions of the
    others relative to it, below and above 0. `is_match` takes the bytes at each
    offset, [candidates] uint8, and returns [candidates] bool.
    """
    before, after = -min(offsets), max(offsets)

    def search(
        start: tf.Tensor, count: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        window = tf.strings.substr(contents, start, before + _WINDOW + after)
        data = tf.io.decode_raw(window, tf.uint8)
        positions = tf.where(data[before:-after] == byte)  # [candidates, 1]
        neighbors = tf.gather(data, positions + [before + o for o in offsets])
        matches = is_match(*tf.unstack(neighbors, len(offsets), axis=1))
        return start + _WINDOW, count + tf.size(tf.where(matches))

    size = tf.strings.length(contents)
    _, count = tf.while_loop(
        lambda start, _: start < size, search, (0, 0), parallel_iterations=1
    )
    return count
