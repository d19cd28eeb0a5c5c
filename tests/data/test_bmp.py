"""BMP files that PIL writes, and ones put together by hand."""

import io
import struct

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from supcon_tf.data import bmp

PIXELS = np.random.default_rng(0).integers(0, 256, [5, 7, 3], np.uint8)
OFFSET = 54  # of the pixels, after the usual headers
BITS, COMPRESSION = 28, 30  # places in the headers


@tf.function(input_signature=[tf.TensorSpec([], tf.string)])
def decoded(contents):
    return bmp.decode(contents, 2**20)


def encoded(image):
    buffer = io.BytesIO()
    image.save(buffer, "BMP")
    return buffer.getvalue()


FILE = encoded(Image.fromarray(PIXELS))


def patched(position, packing, *values, contents=FILE):
    """The same file with other values in its headers."""
    values = struct.pack("<" + packing, *values)
    return contents[:position] + values + contents[position + len(values) :]


@pytest.mark.parametrize("mode", ["L", "P", "RGB", "RGBA"])
@pytest.mark.parametrize("width", [1, 2, 3, 4, 7])  # Rows are padded to 4.
def test_modes_are_what_pil_reads(mode, width):
    image = Image.fromarray(PIXELS[:, :width]).convert(mode)
    np.testing.assert_array_equal(decoded(encoded(image)), image.convert("RGB"))


def test_the_first_row_may_be_the_top_one():
    np.testing.assert_array_equal(decoded(patched(22, "i", -5)), PIXELS[::-1])


def test_bytes_after_the_pixels_are_left_out():
    for rest in (b"\0\0", b"\0" * 1000):
        np.testing.assert_array_equal(decoded(FILE + rest), PIXELS)


def test_colours_that_a_palette_lacks_are_black():
    """Of 2 colours, for the indices 0 to 3."""
    colors = bytes([1, 2, 3, 0, 4, 5, 6, 0])  # blue, green, red
    contents = patched(18, "iihhi", 4, 1, 1, 8, 0)[:OFFSET] + colors
    contents = patched(10, "i", OFFSET + 8, contents=contents)
    image = decoded(contents + bytes([0, 1, 2, 3])).numpy()
    assert image.tolist() == [[[3, 2, 1], [6, 5, 4], [0, 0, 0], [0, 0, 0]]]


def masked(*masks):
    """32 bits with masks of its colours after the headers."""
    contents = encoded(Image.fromarray(PIXELS).convert("RGBA"))
    head = patched(10, "i", OFFSET + 12, contents=contents)[:OFFSET]
    head = patched(COMPRESSION, "i", 3, contents=head)
    return head + struct.pack("<3i", *masks) + contents[OFFSET:]


def test_masks_may_say_what_is_usual():
    contents = masked(0xFF0000, 0xFF00, 0xFF)
    np.testing.assert_array_equal(decoded(contents), PIXELS)


@pytest.mark.parametrize(
    "contents, message",
    [
        (patched(14, "i", 12), "a Windows header of .*, got 12 bytes"),
        (patched(14, "i", 2**31 - 1), "header of .*, got 2147483647 bytes"),
        (patched(BITS, "h", 4), "8, 24 or 32 bits per pixel, got 4"),
        (encoded(Image.new("1", (9, 9))), "bits per pixel, got 1"),
        (patched(COMPRESSION, "i", 1), "uncompressed, got compression 1"),
        (patched(COMPRESSION, "i", 3), "uncompressed, got compression 3"),
        (masked(0xFF, 0xFF00, 0xFF0000), "uncompressed, got compression 3"),
        (patched(18, "ii", 0, 5), r"1 to 1048576 pixels, got 5 x 0 \("),
        (patched(18, "ii", -7, 5), r"pixels, got 5 x -7 \("),
        (patched(18, "ii", 1, -(2**31)), r"pixels, got 2147483648 x 1 \("),
        (patched(18, "ii", 2**20, 2), r"pixels, got 2 x 1048576 \("),
        (
            FILE[:-1],
            "be whole, got 173 bytes whose .* asks for bytes 54 to 174",
        ),
        (FILE[:40], "be whole, got 40 bytes|bits per pixel"),
        (patched(10, "i", -1), "header asks for bytes -1 to 119"),
        (patched(10, "i", 53), "header asks for bytes 53 to 173"),
        (patched(10, "i", 2**31 - 1), "asks for bytes 2147483647 to 21474837"),
    ],
)
def test_what_would_be_misread_is_an_error(contents, message):
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        decoded(tf.constant(contents))
