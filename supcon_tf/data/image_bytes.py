"""What the decoders of image files share: bytes of a header, refusals."""

from __future__ import annotations

import tensorflow as tf


def head(contents: tf.Tensor, size: int) -> tf.Tensor:
    """Returns the first bytes of a file, zeros where it is shorter.

    Args:
      contents: [] string, the bytes of one file.
      size: how many, bytes.

    Returns:
      [] string of exactly `size` bytes: what lies in it can be cut out
      without a look at the length of the file.
    """
    begin = tf.strings.substr(contents, 0, size)
    return tf.strings.substr(tf.strings.join([begin, b"\0" * size]), 0, size)


def around(contents: tf.Tensor, byte: int, offsets: list[int]) -> tf.Tensor:
    """Returns the bytes around every place of a byte, to look for patterns.

    Args:
      contents: [] string, the bytes of one file.
      byte: the rarest of the pattern, 0..255.
      offsets: where the others are, from there; below and above 0.

    Returns:
      [places, len(offsets)] uint8. Places too near to the ends of the file
      are left out.
    """
    data = tf.io.decode_raw(contents, tf.uint8)
    places = tf.where(data[-min(offsets) : -max(offsets)] == byte)  # [n, 1]
    return tf.gather(data, places + [o - min(offsets) for o in offsets])


def require(
    condition: tf.Tensor, value: tf.Tensor, *message: str | tf.Tensor
) -> tf.Tensor:
    """Passes a value on, such as the bytes of a file, if a condition holds.

    It goes through its checks one by one, so that whatever reads what is
    returned comes after them, in a graph too.

    Args:
      condition: [] bool.
      value: of any shape and type.
      *message: parts of one sentence, text or [] numbers.

    Returns:
      `value`.

    Raises:
      tf.errors.InvalidArgumentError: `condition` does not hold.
    """
    parts = [
        part if isinstance(part, str) else tf.strings.as_string(part)
        for part in message
    ]
    # One string: every further one would stand in brackets of its own.
    sentence = tf.strings.join(parts)
    # The bare operation: tf.debugging.Assert puts a branch around it, which
    # makes the graph of all decoders twice as slow to build and to start.
    check = tf.raw_ops.Assert(condition=condition, data=[sentence])
    with tf.control_dependencies([check] if check is not None else []):
        return tf.identity(value)


def require_pixels(
    contents: tf.Tensor,
    height: tf.Tensor,
    width: tf.Tensor,
    max_pixels: int | None,
    kind: str,
) -> tf.Tensor:
    """Passes a file on if its header asks for a size that is allowed.

    Args:
      contents: [] string, the bytes of one file.
      height: [] integer, pixels, as the header has it.
      width: likewise.
      max_pixels: most that height * width may be; None for no bound.
      kind: name of the format.

    Returns:
      `contents`.

    Raises:
      tf.errors.InvalidArgumentError: a side is not positive, or there are too
        many pixels.
    """
    height, width = tf.cast(height, tf.int64), tf.cast(width, tf.int64)
    fits = (height > 0) & (width > 0)
    if max_pixels is not None:
        fits &= height * width <= max_pixels
    return require(
        fits,
        contents,
        f"{kind} image must have 1 to {max_pixels} pixels, got "
        if max_pixels is not None
        else f"{kind} image must have at least 1 pixel, got ",
        height,
        " x ",
        width,
        " (height x width)",
    )
