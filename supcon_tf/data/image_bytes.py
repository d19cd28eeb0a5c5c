"""What the decoders of image files share: bytes of a header, refusals."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

# Bytes of a file that are searched at once; with 50 times as much memory where
# each may begin what is looked for.
_WINDOW = 2**17


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


def count_places(
    contents: tf.Tensor,
    byte: int,
    offsets: list[int],
    is_place: Callable[..., tf.Tensor],
) -> tf.Tensor:
    """Counts the places where a file has a pattern of bytes.

    Args:
      contents: [] string, the bytes of one file.
      byte: the rarest of the pattern, 0..255.
      offsets: where the others are, from there; below and above 0.
      is_place: function of the others, [places] uint8 for each offset, that
        returns [places] bool.

    Returns:
      [] int32.
    """
    before, after = -min(offsets), max(offsets)

    def search(at: tf.Tensor, count: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        window = tf.strings.substr(contents, at, before + _WINDOW + after)
        data = tf.io.decode_raw(window, tf.uint8)
        places = tf.where(data[before:-after] == byte)  # [places, 1]
        others = tf.gather(data, places + [before + o for o in offsets])
        found = is_place(*tf.unstack(others, len(offsets), axis=1))
        return at + _WINDOW, count + tf.size(tf.where(found))

    size = tf.strings.length(contents)
    _, count = tf.while_loop(
        lambda at, _: at < size, search, (0, 0), parallel_iterations=1
    )
    return count


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


def require_few(
    contents: tf.Tensor, count: tf.Tensor, most: int, kind: str, parts: str
) -> tf.Tensor:
    """Passes a file on if it has no more parts of a kind than are allowed.

    Args:
      contents: [] string, the bytes of one file.
      count: [] integer, how many it has.
      most: how many are allowed.
      kind: name of the format.
      parts: what is counted, in the plural.

    Returns:
      `contents`.

    Raises:
      tf.errors.InvalidArgumentError: there are more.
    """
    return require(
        count <= most,
        contents,
        f"{kind} file must have at most {most} {parts}, got ",
        count,
    )


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
