"""Every colour type of the supported files, against what PIL wrote."""

import io

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from supcon_tf.data import images

COLOR = np.array([200, 100, 50], np.uint8)


def encoded(image, file_format="PNG", **options):
    buffer = io.BytesIO()
    image.save(buffer, file_format, **options)
    return buffer.getvalue()


def flat(*channels):
    pixels = np.broadcast_to(
        np.array(channels, np.uint8), [4, 6, len(channels)]
    )
    return Image.fromarray(np.squeeze(pixels).copy())


def palette_image(colors):
    image = Image.new("P", (6, 4))
    image.putpalette([int(value) for color in colors for value in color])
    image.putdata([i % len(colors) for i in range(24)])
    return image


@pytest.mark.parametrize(
    "contents, expected, tolerance",
    [
        (encoded(flat(*COLOR)), COLOR, 0),
        (encoded(flat(*COLOR), "JPEG", quality=95), COLOR, 2),
        (encoded(flat(77)), [77, 77, 77], 0),
        (encoded(flat(77), "JPEG", quality=95), [77, 77, 77], 1),
        (encoded(flat(77).convert("LA")), [77, 77, 77], 0),
        (encoded(flat(255).convert("1")), [255, 255, 255], 0),
        (encoded(flat(*COLOR, 255)), COLOR, 0),
        (encoded(flat(*COLOR, 0)), COLOR, 0),  # Alpha is dropped.
        (encoded(flat(*COLOR).convert("CMYK"), "JPEG", quality=95), COLOR, 2),
        (
            encoded(Image.fromarray(np.full([4, 6], 0x80FF, np.uint16))),
            [128, 128, 128],  # The high byte.
            0,
        ),
    ],
    ids="rgb jpeg gray gray_jpeg la bilevel rgba clear cmyk 16_bit".split(),
)
def test_every_colour_type_becomes_rgb(contents, expected, tolerance):
    image = images.decode_image(tf.constant(contents))
    assert image.shape == [4, 6, 3] and image.dtype == tf.uint8
    difference = image.numpy().astype(int) - np.array(expected, int)
    assert np.abs(difference).max() <= tolerance


def test_a_palette_is_looked_up():
    image = palette_image([COLOR, [1, 2, 3]])
    for options in ({}, {"transparency": 0}):
        decoded = images.decode_image(tf.constant(encoded(image, **options)))
        np.testing.assert_array_equal(decoded, np.array(image.convert("RGB")))


def test_shape_is_static_up_to_the_sides():
    dataset = tf.data.Dataset.from_tensors(encoded(flat(*COLOR)))
    spec = dataset.map(images.decode_image).element_spec
    assert spec.shape.as_list() == [None, None, 3] and spec.dtype == tf.uint8


def test_an_animation_gives_its_first_frame():
    frames = [flat(*COLOR), flat(1, 2, 3)]
    contents = encoded(frames[0], "GIF", save_all=True, append_images=frames)
    assert images.decode_image(tf.constant(contents)).shape == [4, 6, 3]


@pytest.mark.parametrize("file_format", ["PNG", "JPEG"])
def test_a_truncated_file_is_an_error(file_format):
    noise = np.random.default_rng(0).integers(0, 256, [64, 64, 3], np.uint8)
    contents = encoded(Image.fromarray(noise), file_format)
    with pytest.raises(tf.errors.InvalidArgumentError):
        images.decode_image(tf.constant(contents[: len(contents) // 2]))


@pytest.mark.parametrize("contents", [b"", b"not an image"])
def test_other_bytes_are_an_error(contents):
    with pytest.raises(tf.errors.InvalidArgumentError):
        images.decode_image(tf.constant(contents))
