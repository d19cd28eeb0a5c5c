import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from supcon_tf.augment import geometry
from tests.augment import inputs


@pytest.mark.parametrize("shape", [(100, 100), (97, 210), (375, 500)])
def test_crop_boxes_are_inside_and_in_range(shape):
    @tf.function
    def draw(seed):
        return tf.stack(
            geometry.crop_box(
                tf.constant([*shape, 3]), seed, (0.2, 0.9), (0.5, 1.5)
            )
        )

    boxes = np.array([draw(seed).numpy() for seed in inputs.seeds(300)])
    top, left, height, width = boxes.T
    assert boxes.dtype == np.int32
    assert (top >= 0).all() and (top + height <= shape[0]).all()
    assert (left >= 0).all() and (left + width <= shape[1]).all()
    area = height * width / (shape[0] * shape[1])
    assert area.min() > 0.19 and area.max() < 0.91  # whole pixels
    assert (width / height).min() > 0.48 and (width / height).max() < 1.53
    assert area.min() < 0.3 and area.max() > 0.5
    assert len(np.unique(boxes, axis=0)) > 290


def test_crop_boxes_may_be_small():
    """Also below a tenth of the image."""
    boxes = [
        geometry.crop_box([100, 100, 3], seed, (0.02, 0.05))
        for seed in inputs.seeds(50)
    ]
    areas = [int(height * width) / 100**2 for _, _, height, width in boxes]
    assert min(areas) > 0.019 and max(areas) < 0.051
    assert min(areas) < 0.03 and max(areas) > 0.04


def test_crop_boxes_of_the_papers_range_cover_a_tenth():
    """As those of google-research's code; one box in fifty would be smaller."""
    boxes = [
        geometry.crop_box([100, 100, 3], seed, (0.08, 1.0))
        for seed in inputs.seeds(300)
    ]
    assert min(int(height * width) for _, _, height, width in boxes) >= 1000


@pytest.mark.parametrize(
    "shape, expected",
    [
        ((1, 1), (0, 0, 1, 1)),
        ((1, 1001), (0, 500, 1, 1)),
        ((1000, 3), (498, 0, 3, 3)),
    ],
)
def test_crop_box_falls_back_to_the_central_square(shape, expected):
    box = geometry.crop_box(
        tf.constant([*shape, 3]), tf.constant([1, 2]), (0.5, 1.0)
    )
    assert tuple(int(value) for value in box) == expected


def test_random_resized_crop_is_the_resized_box():
    image = inputs.noise(60, 80, 3)
    seed = tf.constant([4, 2])
    top, left, height, width = geometry.crop_box(tf.shape(image), seed)
    crop = image[top : top + height, left : left + width]
    expected = np.round(tf.image.resize(crop, [24, 24]))
    view = geometry.random_resized_crop(image, seed, 24)
    np.testing.assert_array_equal(view, expected)


def test_several_seeds_give_a_view_each():
    """Below and above twice the size, where resizing antialiases."""
    seeds = inputs.seeds(4)
    for side in (20, 90):
        image = inputs.noise(side, side, 3)
        views = geometry.random_resized_crop(image, seeds, 16)
        single_views = [
            geometry.random_resized_crop(image, seed, 16) for seed in seeds
        ]
        np.testing.assert_array_equal(views, single_views)
        graph = tf.function(
            lambda image: geometry.random_resized_crop(image, seeds, 16),
            input_signature=[tf.TensorSpec([None, None, 3], tf.uint8)],
        )
        static_shape = graph.get_concrete_function().output_shapes
        assert static_shape == (4, 16, 16, 3)
        np.testing.assert_array_equal(graph(image), single_views)


def test_resize_crop_skips_no_pixel():
    """Noise averages out once it shrinks by more than 2, as in PIL."""
    noise = inputs.noise(448, 448, 3)
    shrunk = geometry.resize_crop(noise, 112).numpy()
    expected = Image.fromarray(noise.numpy()).resize(
        (112, 112), Image.Resampling.BILINEAR
    )
    assert inputs.difference(shrunk, expected).max() <= 1
    resized_by_two = np.round(tf.image.resize(noise[:224, :224], [112, 112]))
    unchanged = geometry.resize_crop(noise[:224, :224], 112)
    np.testing.assert_array_equal(unchanged, resized_by_two)
    image = tf.constant([[[0] * 3, [3] * 3]], tf.uint8)
    resized = geometry.resize_crop(image, 4).numpy()[0, :, 0]
    np.testing.assert_array_equal(resized, [0, 1, 2, 3])  # 0, .75, 2.25, 3


def test_flip_frequency_and_content():
    images = inputs.noise(2000, 3, 4, 3)
    flipped = geometry.random_flip(images, inputs.seeds(2000)).numpy()
    mirrored = images.numpy()[:, :, ::-1]
    is_mirror = (flipped == mirrored).all(axis=(1, 2, 3))
    is_unchanged = (flipped == images.numpy()).all(axis=(1, 2, 3))
    assert (is_mirror ^ is_unchanged).all()
    assert abs(is_mirror.mean() - 0.5) < 4.5 * 0.5 / np.sqrt(2000)


@pytest.mark.parametrize("shape", [(128, 160), (160, 128), (512, 512)])
def test_central_view_is_resize_then_crop(shape):
    """The same as resizing the whole image, in both orders of the sides."""
    image = inputs.smooth(1, max(shape))[0, : shape[0], : shape[1]]
    scaled = [side * 256 // min(shape) for side in shape]
    resized = np.round(tf.image.resize(image, scaled, antialias=True))
    top, left = ((side - 224) // 2 for side in scaled)
    expected = resized[top : top + 224, left : left + 224]
    view = geometry.central_view(image, 224)
    assert inputs.difference(view, expected).max() <= 1


def test_central_view_antialiases():
    noise = inputs.noise(448, 448, 3)
    view = geometry.central_view(noise, 98).numpy() / 255.0  # short side 112
    assert view.std() < 0.1  # 0.14 without antialiasing


@pytest.mark.parametrize(
    "shape", [(1, 1), (1, 5000), (5000, 1), (40, 32), (31, 33), (7, 9)]
)
@pytest.mark.parametrize("size", [32, 1])
def test_both_views_take_any_size(shape, size):
    image = inputs.noise(*shape, 3)
    views = geometry.random_resized_crop(image, inputs.seeds(5), size)
    for view in (*views, geometry.central_view(image, size)):
        assert view.shape == (size, size, 3) and view.dtype == tf.uint8
    square = inputs.noise(size, size, 3)
    np.testing.assert_array_equal(geometry.central_view(square, size), square)


def test_errors():
    image, seed = inputs.noise(8, 8, 3), tf.constant([1, 2])
    crop = geometry.random_resized_crop
    central, resize = geometry.central_view, geometry.resize_crop
    kinds = r"must be \[height, width, channels\] uint8 or float32, of 1 to 16"
    for function, arguments, message in (
        (crop, (image, seed, 8, (0.0, 1.0)), "`area` must be 0 < low"),
        (crop, (image, seed, 8, (0.5, 0.2)), r"got \(0.5, 0.2\)"),
        (crop, (image, seed, 8, 0.5), "`area` must be 0 < low .*, got 0.5"),
        (crop, (image, seed, 8, (0.1, 1), (2.0, 1.0)), "`aspect` must be 0 <"),
        (crop, (image, seed, 0), "`size` must be at least 1 pixel, got 0"),
        (central, (tf.cast(image, tf.int32), 8), f"`image` {kinds} .* int32"),
        (
            resize,
            (tf.tile(image, [1, 1, 6]), 8),
            rf"`crop` {kinds} channels, got \(8, 8, 18\)",
        ),
        (
            crop,
            (image, inputs.seeds(0), 8),
            r"`seed` must be \[2\] or \[views, 2\] int32 .* got \(0, 2\) int32",
        ),
        (
            geometry.random_flip,
            (image, inputs.seeds(8)),
            r"`images` must be \[batch, height, width, channels\] uint8 or",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            function(*arguments)


def test_central_view_in_a_function_of_images_of_any_size():
    """Grappler's constant folding once ran the branch of the other size."""

    @tf.function(input_signature=[tf.TensorSpec([None, None, 3], tf.uint8)])
    def view(image):
        return geometry.central_view(image, 16)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def views(files):
        return tf.map_fn(
            lambda file: view(tf.io.decode_png(file, channels=3)),
            files,
            fn_output_signature=tf.TensorSpec([16, 16, 3], tf.uint8),
        )

    assert view.get_concrete_function().output_shapes == (16, 16, 3)
    images = [inputs.noise(*side, 3) for side in ((20, 24), (16, 16))]
    expected = [geometry.central_view(image, 16) for image in images]
    for image, expected_view in zip(images, expected, strict=True):
        np.testing.assert_array_equal(view(image), expected_view)
    files = tf.stack([tf.io.encode_png(image) for image in images])
    np.testing.assert_array_equal(views(files), expected)
