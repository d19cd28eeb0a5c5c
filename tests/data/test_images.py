"""Every colour type of the supported files, against what PIL wrote."""

import io

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from supcon_tf.augment import geometry, randomness
from supcon_tf.data import images

FILE = tf.TensorSpec([], tf.string)
OTHER = Image.new("RGB", (6, 4))
TURNED = Image.Exif()  # To be shown turned by 90 degrees.
TURNED[0x0112] = 6  # Orientation.


def encoded(image, file_format="PNG", **options):
    buffer = io.BytesIO()
    image.save(buffer, file_format, **options)
    return buffer.getvalue()


def noise(*shape):
    return np.random.default_rng(0).integers(0, 256, shape, np.uint8)


def files(*sides):
    """The same noise in every format, each decoded in its own way."""
    image = Image.fromarray(noise(*sides, 3))
    return {
        "jpeg": encoded(image, "JPEG"),
        "gray jpeg": encoded(image.convert("L"), "JPEG"),
        "progressive": encoded(image, "JPEG", progressive=True),
        "png": encoded(image),
    }


@tf.function(input_signature=[FILE])
def decoded(contents):
    return images.decode_image(contents, max_pixels=2**24)


@pytest.mark.parametrize("name", files(1, 1))
@pytest.mark.parametrize("sides", [(1, 1), (1, 70), (70, 1), (25, 37)])
def test_every_size_is_decoded_as_by_pil(name, sides):
    contents = files(*sides)[name]
    expected = np.array(Image.open(io.BytesIO(contents)).convert("RGB"))
    tolerance = 0 if name == "png" else 6  # a faster DCT
    for decode in (decoded, images.decode_image, images.decode_trusted):
        image = decode(tf.constant(contents))
        assert image.shape == (*sides, 3) and image.dtype == tf.uint8
        assert np.abs(image.numpy() - expected.astype(int)).max() <= tolerance
    shape = decoded.get_concrete_function().output_shapes
    assert shape.as_list() == [None, None, 3]


@pytest.mark.parametrize("name", files(1, 1))
def test_a_truncated_file_is_an_error_or_whole(name):
    """Only what follows the last pixel may be missing."""
    contents = files(9, 14)[name]
    image = decoded(tf.constant(contents))
    raised = 0
    lengths = {*range(0, len(contents), 7), *range(len(contents))[-40:]}
    for length in lengths:
        try:
            part = decoded(tf.constant(contents[:length]))
        except tf.errors.InvalidArgumentError:
            raised += 1
            continue
        np.testing.assert_array_equal(part, image)
        assert length > len(contents) - 3
    assert raised >= len(lengths) - 2


@pytest.mark.parametrize("name", files(1, 1))
def test_a_damaged_file_is_an_image_or_an_error(name):
    contents = files(9, 14)[name]
    rng = np.random.default_rng(0)
    for _ in range(100):
        damaged = np.frombuffer(contents, np.uint8).copy()
        end = min(len(damaged), rng.choice([60, 10**6]))  # Headers, too.
        damaged[rng.integers(0, end, 3)] = rng.integers(0, 256, 3)
        try:
            image = decoded(tf.constant(damaged.tobytes()))
        except tf.errors.InvalidArgumentError:
            continue
        assert image.dtype == tf.uint8 and tf.size(image) <= 3 * 2**24


@pytest.mark.parametrize(
    "contents, message",
    [
        (b"", "must be JPEG or PNG, got 0 bytes that begin with 0x"),
        (b"not an image", "got 12 bytes that begin with 0x6e6f7420616e2069"),
        (b"GIF89a", "got 6 bytes that begin with 0x474946383961, as GIF does"),
        (encoded(OTHER, "GIF"), "begin with 0x47494638.*, as GIF does"),
        (encoded(OTHER, "BMP"), "begin with 0x424d.*, as BMP does"),
        (encoded(OTHER, "TIFF"), "with 0x49492a00.*, as TIFF does"),
        (encoded(OTHER, "WEBP"), "with 0x52494646.*, as WebP does"),
        (b"\xff\xd8\xff", "JPEG"),
        (b"\x89PNG\r\n\x1a\n", "PNG file must begin with its header"),
    ],
)
def test_other_bytes_are_an_error(contents, message):
    for decode in (decoded, images.decode_image):
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            decode(tf.constant(contents))


@pytest.mark.parametrize("name", files(1, 1))
def test_more_pixels_than_allowed_are_an_error(name):
    contents = tf.constant(files(9, 14)[name])
    assert images.decode_image(contents, 9 * 14).shape == [9, 14, 3]
    message = r"must have 1 to 125 pixels, got 9 x 14 \(height x width\)"
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        images.decode_image(contents, 9 * 14 - 1)
    with pytest.raises(ValueError, match="`max_pixels` must be .*, got 0"):
        images.decode_image(contents, 0)


def test_transparency_is_dropped_from_a_photograph_of_any_mode():
    """What is stored under it is shown, in PNG."""
    rgba = Image.fromarray(noise(20, 30, 4))
    for mode in ("LA", "RGBA"):
        image = rgba.convert(mode)
        # `convert` drops alpha, too.
        expected = np.array(image.convert(mode[:-1]).convert("RGB"))
        contents = tf.constant(encoded(image))
        np.testing.assert_array_equal(decoded(contents), expected)


def test_16_bits_keep_the_high_byte():
    pixels = np.random.default_rng(0).integers(0, 2**16, [6, 5, 4], np.uint16)
    for channels in (1, 3, 4):
        contents = tf.io.encode_png(pixels[..., :channels])
        high = (pixels[..., :channels] >> 8).astype(np.uint8)
        expected = high[..., :3] if channels > 1 else np.tile(high, 3)
        np.testing.assert_array_equal(decoded(contents), expected)


def test_cmyk_and_ycck_photographs():
    """With Adobe's marker, and with another transform in it."""
    smooth = Image.fromarray(noise(4, 5, 3)).resize((50, 40))
    contents = encoded(smooth.convert("CMYK"), "JPEG", quality=95)
    transform = contents.index(b"Adobe") + 11
    assert contents[transform] == 0
    ycck = contents[:transform] + b"\2" + contents[transform + 1 :]
    for file in (contents, ycck):
        expected = np.array(Image.open(io.BytesIO(file)).convert("RGB"))
        difference = decoded(tf.constant(file)).numpy() - expected.astype(int)
        assert np.abs(difference).mean() < 3


@tf.function(input_signature=[FILE])
def central_view(contents):
    return images.decode_central_view(contents, 24, 2**16)


def test_central_view_is_that_of_the_image():
    for sides in ((24, 24), (25, 37), (90, 61), (1, 300)):
        for contents in map(tf.constant, files(*sides).values()):
            expected = geometry.central_view(images.decode_image(contents), 24)
            np.testing.assert_array_equal(central_view(contents), expected)


def test_a_photograph_of_a_camera():
    """12 megapixels, turned by EXIF, which is not applied."""
    image = Image.new("RGB", (4000, 3000), (10, 20, 30))
    image.paste((200, 100, 50), (0, 0, 2000, 3000))  # The left half.
    contents = encoded(image, "JPEG", exif=TURNED)
    view = images.decode_central_view(tf.constant(contents), 16, 12 * 10**6)
    left, right = view.numpy()[:, 0], view.numpy()[:, -1]
    assert np.abs(left.astype(int) - [200, 100, 50]).max() <= 3
    assert np.abs(right.astype(int) - [10, 20, 30]).max() <= 3


@tf.function(input_signature=[FILE, tf.TensorSpec([2, 2], tf.int32)])
def both_crops(contents, seeds):
    """Views of the file, and of the image decoded as a whole."""
    image = images.decode_image(contents)
    views = images.decode_and_crop(contents, seeds, 24)
    assert views.shape == [2, 24, 24, 3] and views.dtype == tf.uint8
    return views, geometry.random_resized_crop(image, seeds, 24)


def test_decode_and_crop_is_the_crop_of_the_decoded_image():
    color, gray = map(Image.fromarray, (noise(61, 95, 3), noise(9, 7)))
    files = [
        encoded(color, "JPEG"),
        encoded(color, "JPEG", progressive=True),
        encoded(color, "JPEG", subsampling="4:4:4"),
        encoded(color.convert("CMYK"), "JPEG"),
        encoded(gray, "JPEG"),
        encoded(Image.fromarray(noise(1, 1, 3)), "JPEG"),
        encoded(Image.fromarray(noise(1, 300, 3)), "JPEG"),
        encoded(color, "JPEG", exif=TURNED),
        encoded(color),
        encoded(gray),
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
    for contents in (b"", b"not an image", b"\xff\xd8\xff"):
        with pytest.raises(tf.errors.InvalidArgumentError):
            images.decode_and_crop(tf.constant(contents), seeds[0], 8)


@tf.function
def jpeg_views(contents, seeds, aspect):
    """Views of the window, and of the whole: several, and the first alone."""
    image = tf.io.decode_jpeg(contents, channels=3)
    return [
        crop(source, seed, 8, area=(0.1, 1.0), aspect=aspect)
        for crop, source in (
            (images.random_resized_crop_jpeg, contents),
            (geometry.random_resized_crop, image),
        )
        for seed in (seeds, seeds[0])
    ]


@pytest.mark.parametrize("subsampling", ["4:4:4", "4:2:2", "4:2:0"])
@pytest.mark.parametrize(
    "sides, aspect",
    [((60, 60), (0.1, 4.0)), ((60, 10), (0.01, 0.03))],  # To 1 pixel wide.
    ids=["wide", "narrow"],
)
def test_jpeg_views_are_those_of_the_whole_image(subsampling, sides, aspect):
    """Noise: the decoder's chroma at every border."""
    rng = np.random.default_rng(0)
    for i in range(60):
        pixels = rng.integers(0, 256, [*rng.integers(1, sides), 3], np.uint8)
        contents = encoded(
            Image.fromarray(pixels),
            "JPEG",
            subsampling=subsampling,
            progressive=bool(i % 2),
        )
        seeds = randomness.fold_in(tf.constant([i, 1]), tf.range(3))
        views, view, whole_views, whole_view = jpeg_views(
            tf.constant(contents), seeds, aspect
        )
        np.testing.assert_array_equal(views, whole_views)
        np.testing.assert_array_equal(view, whole_view)
        np.testing.assert_array_equal(view, views[0])


def test_jpeg_views_need_a_jpeg():
    image = Image.fromarray(noise(64, 64, 3))
    contents = encoded(image, "JPEG")
    png = encoded(image)
    for bad in (b"", b"not an image", png, contents[:20], contents[:-900]):
        with pytest.raises(tf.errors.InvalidArgumentError):
            images.random_resized_crop_jpeg(
                bad, tf.constant([1, 2]), 8, area=(1.0, 1.0), aspect=(1.0, 1.0)
            )
    for seed, size, message in (
        ([1, 2], 0, "`size` must be at least 1 pixel, got 0"),
        ([1, 2, 3], 8, r"`seed` must be .*, got \(3,\) int32"),
    ):
        with pytest.raises(ValueError, match=message):
            images.random_resized_crop_jpeg(contents, seed, size)
