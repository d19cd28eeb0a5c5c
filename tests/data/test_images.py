"""Every colour type of the supported files, against what PIL wrote."""

import io

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from supcon_tf.augment import geometry, randomness
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


def noise(*shape):
    return np.random.default_rng(0).integers(0, 256, shape, np.uint8)


def rotated_by_exif():
    """A file that says it must be shown turned by 90 degrees."""
    exif = Image.Exif()
    exif[0x0112] = 6  # Orientation.
    return encoded(Image.fromarray(noise(20, 41, 3)), "JPEG", exif=exif)


@tf.function(
    input_signature=[
        tf.TensorSpec([], tf.string),
        tf.TensorSpec([2, 2], tf.int32),
    ]
)
def both_crops(contents, seeds):
    """Views of the file, and of the image decoded as a whole."""
    whole = images.decode_image(contents)
    views = images.decode_and_crop(contents, seeds, 24)
    assert views.shape == [2, 24, 24, 3] and views.dtype == tf.uint8
    return views, geometry.random_resized_crop(whole, seeds, 24)


def test_decode_and_crop_is_the_crop_of_the_decoded_image():
    color, gray = (
        Image.fromarray(noise(61, 95, 3)),
        Image.fromarray(noise(9, 7)),
    )
    files = [
        encoded(color, "JPEG"),
        encoded(color, "JPEG", progressive=True),
        encoded(color, "JPEG", subsampling="4:4:4"),
        encoded(color.convert("CMYK"), "JPEG"),
        encoded(gray, "JPEG"),
        encoded(Image.fromarray(noise(1, 1, 3)), "JPEG"),
        encoded(Image.fromarray(noise(1, 300, 3)), "JPEG"),
        rotated_by_exif(),
        encoded(color),
        encoded(gray),
        encoded(color, "BMP"),
        encoded(color, "GIF", save_all=True, append_images=[color]),
    ]
    for i, contents in enumerate(files):
        for seeds in randomness.fold_in(tf.constant([i, 1]), tf.range(8)):
            pair = tf.stack([seeds, seeds + 1])
            views, expected = both_crops(contents, pair)
            np.testing.assert_array_equal(views, expected)
            eager = images.decode_and_crop(tf.constant(contents), pair[1], 24)
            np.testing.assert_array_equal(eager, expected[1])


def test_a_truncated_file_gives_the_right_views_or_none():
    """What is missing is never made up: libjpeg fills it with gray."""
    raised = 0
    for file_format in ("JPEG", "PNG"):
        image = Image.fromarray(noise(64, 64, 3))
        contents = encoded(image, file_format)
        cut = contents[: len(contents) * 9 // 10]
        for seed in range(20):
            seeds = tf.constant([[seed, 0], [seed, 1]])
            try:
                views = images.decode_and_crop(tf.constant(cut), seeds, 24)
            except tf.errors.InvalidArgumentError:
                raised += 1
                continue
            assert file_format == "JPEG"
            np.testing.assert_array_equal(views, both_crops(contents, seeds)[1])
    assert 20 < raised < 40  # Every PNG, most JPEGs.


@pytest.mark.parametrize("contents", [b"", b"not an image", b"\xff\xd8\xff"])
def test_crops_of_other_bytes_are_an_error(contents):
    with pytest.raises(tf.errors.InvalidArgumentError):
        images.decode_and_crop(tf.constant(contents), tf.constant([1, 2]), 8)
