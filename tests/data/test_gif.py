"""First frames against PIL; files that would take all memory or time."""

import io
import struct

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from supcon_tf.data import gif

COLORS = [(200, 100, 50), (1, 2, 3), (90, 80, 70), (250, 0, 128)]


@tf.function(input_signature=[tf.TensorSpec([], tf.string)])
def decoded(contents):
    return gif.decode(contents, 2**22)


def picture(height, width, seed=0):
    """Indices of noise into four colours."""
    rng = np.random.default_rng(seed)
    image = Image.fromarray(rng.integers(0, 4, [height, width], np.uint8), "P")
    image.putpalette([value for color in COLORS for value in color])
    return image


def encoded(image, **options):
    buffer = io.BytesIO()
    image.save(buffer, "GIF", **options)
    return buffer.getvalue()


def header(height, width):
    """Up to the first block, with the four colours."""
    colors = bytes(value for color in COLORS for value in color)
    return b"GIF89a" + struct.pack("<HHBBB", width, height, 0x81, 0, 0) + colors


def block(contents):
    """The image block of a file of one frame without extensions."""
    begin = contents.index(b",", 13 + 3 * 2 ** ((contents[10] & 7) + 1))
    return contents[begin:-1]


def at(image_block, left, top):
    return image_block[:1] + struct.pack("<HH", left, top) + image_block[5:]


def sizes(image_block, height, width):
    return image_block[:5] + struct.pack("<HH", width, height) + image_block[9:]


FRAME = block(encoded(picture(9, 14)))
PIXELS = np.array(picture(9, 14).convert("RGB"))


@pytest.mark.parametrize("interlace", [0, 1])
@pytest.mark.parametrize("shape", [(1, 1), (9, 14), (300, 200)])
def test_frames_are_what_pil_reads(shape, interlace):
    """From one sub-block to many full ones."""
    image = picture(*shape)
    contents = encoded(image, interlace=interlace)
    np.testing.assert_array_equal(decoded(contents), image.convert("RGB"))


def test_a_transparent_pixel_shows_its_colour():
    image = picture(9, 14)
    contents = encoded(image, transparency=2, comment=b"of " * 200)
    assert contents.count(b"!\xf9") == 1 == contents.count(b"!\xfe")
    np.testing.assert_array_equal(decoded(contents), PIXELS)


def test_a_table_of_the_frame_is_used():
    local = FRAME[:9] + b"\x81" + header(1, 1)[13:][::-1] + FRAME[10:]
    image = decoded(header(9, 14) + local + b";").numpy()
    reversed_colors = np.array(COLORS, np.uint8)[::-1, ::-1]
    indices = np.array(picture(9, 14))
    np.testing.assert_array_equal(image, reversed_colors[indices])


def test_the_canvas_around_a_frame_is_black():
    image = decoded(header(20, 30) + at(FRAME, 5, 3) + b";").numpy()
    assert image.shape == (20, 30, 3)
    np.testing.assert_array_equal(image[3:12, 5:19], PIXELS)
    image[3:12, 5:19] = 0
    assert not image.any()


@pytest.mark.parametrize("canvas", [(0, 0), (4, 40)])
def test_the_canvas_grows_with_the_frame(canvas):
    image = decoded(header(*canvas) + at(FRAME, 2, 1) + b";").numpy()
    assert image.shape == (10, max(16, canvas[1]), 3)
    np.testing.assert_array_equal(image[1:, 2:16], PIXELS)


def test_of_an_animation_only_the_first_frame_is_read():
    frames = [picture(9, 14, seed) for seed in range(4)]
    contents = encoded(frames[0], save_all=True, append_images=frames[1:])
    np.testing.assert_array_equal(decoded(contents), PIXELS)
    first = header(9, 14) + FRAME
    for rest in (b"", b";", b"!", sizes(FRAME, 65535, 65535), b"junk"):
        np.testing.assert_array_equal(decoded(first + rest), PIXELS)


def split(data, size):
    """Sub-blocks of at most `size` bytes."""
    parts = [data[i : i + size] for i in range(0, len(data), size)]
    return b"".join(bytes([len(part)]) + part for part in parts) + b"\0"


def joined(sub_blocks):
    """What sub-blocks hold."""
    data, position = b"", 0
    while sub_blocks[position]:
        end = position + 1 + sub_blocks[position]
        data, position = data + sub_blocks[position + 1 : end], end
    return data


@pytest.mark.parametrize("size", [1, 2, 3, 17, 100, 254, 255])
def test_sub_blocks_of_any_size_are_followed(size):
    """Through windows that end in their midst; here the last is 19 KB on."""
    image = picture(200, 300)
    frame = block(encoded(image))
    data = joined(frame[11:])
    assert len(data) > 2**13 + 2**12
    contents = header(200, 300) + frame[:11] + split(data, size)
    for rest in (b";", FRAME + b";", bytes([255]) * 300):
        np.testing.assert_array_equal(
            decoded(contents + rest), image.convert("RGB")
        )
    with pytest.raises(tf.errors.InvalidArgumentError, match="whole frame"):
        decoded(contents[:-1])  # Without the end of the sub-blocks.


@pytest.mark.parametrize(
    "contents, message",
    [
        (header(9, 14), "must have a whole frame, got none in 25 bytes"),
        (header(9, 14) + b";" + FRAME, "must have a whole frame, got none"),
        (header(9, 14) + b"!\xfe\3abc", "must have a whole frame, got none"),
        (header(9, 14) + FRAME[:9], "must have a whole frame, got none"),
        (
            header(9, 14) + b"!\xfe\0" * 64 + FRAME + b";",
            "must have a whole frame, got none in",
        ),
        (header(9, 14) + sizes(FRAME, 0, 14), "at least 1 pixel, got 0 x 14"),
        (
            header(9, 14) + sizes(FRAME, 65535, 65535),
            "1 to 4194304 pixels, got 65535 x 65535",
        ),
        (header(65535, 64) + at(FRAME, 51, 0), "got 65535 x 65 "),
        (header(9, 14) + at(FRAME, 65535, 65535), "got 65544 x 65549 "),
        # More pixels than the codes give: no memory is shown instead.
        (header(9, 14) + sizes(FRAME, 9, 15), "Image is defective|EOF"),
        (header(9, 14)[:10] + b"\1\0\0" + FRAME, "color map"),
    ],
)
def test_bad_files_are_an_error(contents, message):
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        decoded(tf.constant(contents))


def test_many_tiny_sub_blocks_take_no_loop_over_them():
    """A million: at a millisecond each the suite would not end."""
    frame = FRAME[:11] + b"\1\7" * 10**6 + b"\0"
    with pytest.raises(tf.errors.InvalidArgumentError, match="defective"):
        decoded(header(9, 14) + frame + b";")
