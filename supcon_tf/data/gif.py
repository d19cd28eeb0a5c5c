"""GIF files: the first frame, and no byte of the others."""

from __future__ import annotations

import tensorflow as tf

from supcon_tf.data import image_bytes

_HEADER = 13  # bytes, with the size of the canvas
_EXTENSION, _IMAGE, _END = 0x21, 0x2C, 0x3B  # first bytes of blocks
_DESCRIPTOR = 10  # bytes of an image block before its colours
_MAX_BLOCKS = 64  # up to the first frame; usual files have 2 to 4
# Bytes of a chain of sub-blocks that are followed at once. A sub-block has at
# least 2 bytes, so that 2**11 jumps lead out of them.
_WINDOW = 2**12
_DOUBLINGS = 11
_FULL = 255  # bytes of a full sub-block, before them one that says so


def decode(contents: tf.Tensor, max_pixels: int | None) -> tf.Tensor:
    """Decodes the first frame of a GIF file, on its canvas.

    TensorFlow decodes every frame, whichever are asked for, so that a small
    file takes all memory; returns the frame without its canvas; and makes
    transparent pixels black. Hence it gets another file: the first frame
    alone, without what is said of its transparency.

    Args:
      contents: [] string, a file that begins as GIF does.
      max_pixels: most that height * width of the canvas may be; None for no
        bound.

    Returns:
      [height, width, 3] uint8, the canvas. It grows if the frame leaves it,
      and is black where the frame does not reach. A transparent pixel shows
      the colour that is stored for it.

    Raises:
      tf.errors.InvalidArgumentError: the file is too large, has no frame, or
        its first frame is truncated. What follows is not looked at.
    """
    head = image_bytes.head(contents, _HEADER)
    blocks = _HEADER + _color_table(tf.io.decode_raw(head, tf.uint8)[10])
    contents, begin, end = _first_frame(contents, blocks)
    descriptor = tf.strings.substr(contents, begin + 1, _DESCRIPTOR - 2)
    left, top, width, height = _sizes(descriptor, 4)
    contents = image_bytes.require_pixels(contents, height, width, None, "GIF")
    canvas_width, canvas_height = _sizes(tf.strings.substr(head, 6, 4), 2)
    canvas_width = tf.maximum(canvas_width, left + width)
    canvas_height = tf.maximum(canvas_height, top + height)
    contents = image_bytes.require_pixels(
        contents, canvas_height, canvas_width, max_pixels, "GIF"
    )
    alone = tf.strings.join(
        [
            tf.strings.substr(contents, 0, blocks),
            bytes([_IMAGE, 0, 0, 0, 0]),  # at the origin
            tf.strings.substr(contents, begin + 5, end - begin - 5),
            bytes([_END]),
        ]
    )
    return tf.pad(
        tf.io.decode_gif(alone)[0],
        [
            [top, canvas_height - top - height],
            [left, canvas_width - left - width],
            [0, 0],
        ],
    )


def _sizes(block: tf.Tensor, count: int) -> list[tf.Tensor]:
    """Reads integers of 2 bytes, the lowest byte first."""
    sizes = tf.cast(tf.io.decode_raw(block, tf.uint16), tf.int32)
    return tf.unstack(sizes, count)


def _color_table(flags: tf.Tensor) -> tf.Tensor:
    """Bytes of the table of colours that flags announce; 0 for none."""
    sizes = [
        3 * 2 ** (flag % 8 + 1) if flag >= 128 else 0 for flag in range(256)
    ]
    return tf.gather(sizes, tf.cast(flags, tf.int32))


def _first_frame(
    contents: tf.Tensor, at: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Passes the file on, with begin and end of its first image block."""
    size = tf.strings.length(contents)
    data = tf.io.decode_raw(contents, tf.uint8)

    def byte(position: tf.Tensor) -> tf.Tensor:
        # The last one for what lies behind it.
        return tf.gather(data, tf.minimum(position, size - 1))

    def follow(
        at: tf.Tensor, end: tf.Tensor, _: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        is_image = byte(end) == _IMAGE
        # One more, for the byte that says how long the codes of pixels are.
        table = _DESCRIPTOR + 1 + _color_table(byte(end + _DESCRIPTOR - 1))
        begin = end + tf.where(is_image, table, 2)
        return end, _end_of_sub_blocks(data, begin) + 1, is_image

    begin, end, found = tf.while_loop(
        lambda _, end, found: (
            (end < size)
            & ~found
            & ((byte(end) == _EXTENSION) | (byte(end) == _IMAGE))
        ),
        follow,
        (at, at, tf.constant(False)),
        maximum_iterations=_MAX_BLOCKS,
        parallel_iterations=1,
    )
    contents = image_bytes.require(
        found & (end <= size),
        contents,
        "GIF file must have a whole frame, got none in ",
        size,
        " bytes",
    )
    return contents, begin, end


def _end_of_sub_blocks(data: tf.Tensor, begin: tf.Tensor) -> tf.Tensor:
    """Position of the empty sub-block; at least the size if there is none.

    Every sub-block says where the next one begins. Encoders fill all but the
    last. But a loop over all that come after a smaller one would take minutes
    for a file of tiny ones. So a table of where each byte of a window would
    lead is made, and applied to itself until it has arrived.
    """
    size = tf.size(data)
    is_full = data[begin :: _FULL + 1] == _FULL
    num_full = tf.argmin(tf.concat([is_full, [False]], 0), output_type=tf.int32)

    def follow(at: tf.Tensor, _: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        window = tf.cast(data[at : at + _WINDOW], tf.int32)
        length = tf.size(window)
        # An empty sub-block leads to itself, as does all behind the window.
        steps = tf.where(window == 0, 0, window + 1)
        steps = tf.pad(steps, [[0, _FULL + 1]])
        leads_to = tf.range(length + _FULL + 1) + steps
        for _ in range(_DOUBLINGS):
            leads_to = tf.gather(leads_to, leads_to)
        return at + leads_to[0], leads_to[0] < length

    end, _ = tf.while_loop(
        lambda at, found: (at < size) & ~found,
        follow,
        (begin + num_full * (_FULL + 1), tf.constant(False)),
        parallel_iterations=1,
    )
    return end
