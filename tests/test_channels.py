"""Images of 1 to 16 channels, of bytes or floats, from arrays to encoders."""

import numpy as np
import pytest
import tensorflow as tf

from supcon_tf import augment, data, losses, models, training
from supcon_tf.augment import affine, geometry, warp
from supcon_tf.keras_2 import keras

SIDE = 16


def noise(*shape):
    return np.random.default_rng(0).integers(0, 256, shape).astype(np.uint8)


def source(channels, pixel_range=None):
    images = noise(12, SIDE, SIDE, channels)
    labels = np.arange(12) % 2
    if pixel_range is None:
        return data.from_arrays(images, labels, channels=channels)
    low, high = pixel_range
    images = low + images.astype(np.float64) / 255 * (high - low)
    return data.from_arrays(
        images, labels, channels=channels, pixel_range=pixel_range
    )


def test_crops_and_flips_work_on_each_channel_alone():
    """A view of many channels is the views of each, and of floats unrounded."""

    def make_views(images):
        views = data.make_views(images, 6, seed=1, image_size=10)
        return next(iter(views))[0]

    views, floats = make_views(source(13)), make_views(source(13, (-1, 1)))
    assert views.shape == (6, 2, 10, 10, 13) and views.dtype == tf.uint8
    assert floats.dtype == tf.float32
    np.testing.assert_allclose(floats, tf.cast(views, tf.float32), atol=0.501)
    last_channel = noise(12, SIDE, SIDE, 13)[..., 12]
    gray = data.from_arrays(last_channel, np.arange(12) % 2, channels=1)
    np.testing.assert_array_equal(make_views(gray)[..., 0], views[..., 12])


@pytest.mark.parametrize("dtype", [tf.uint8, tf.float32])
def test_geometric_operations_are_those_of_rgb(dtype):
    """On six channels they do to each three what they do to RGB of bytes."""
    images = noise(4, SIDE, SIDE, 6)
    seeds = tf.constant([[1, 2], [3, 4], [5, 6], [7, 8]])
    degrees = affine.rotation_matrices(tf.constant([0.0, 20, 90, -7]), 16, 16)
    corners = tf.constant([[3, 3], [0, 15], [9, 2], [8, 8]])
    sides = tf.constant([0, 2, 5, 9])
    for operation in (
        lambda pixels: geometry.random_flip(pixels, seeds),
        lambda pixels: affine.affine_transform(pixels, degrees),
        lambda pixels: affine.cutout(pixels, corners, sides),
        lambda pixels: warp.random_warp(pixels, seeds),
    ):
        moved = operation(tf.cast(images, dtype))
        assert moved.dtype == dtype
        for rgb in (slice(0, 3), slice(3, 6)):
            expected = operation(tf.constant(images[..., rgb]))
            np.testing.assert_allclose(
                tf.cast(moved[..., rgb], tf.float32),
                tf.cast(expected, tf.float32),
                atol=0 if dtype == tf.uint8 else 0.501,
            )


def test_colours_are_refused_where_there_are_none():
    images, seeds = noise(2, 8, 8, 4), tf.zeros([2, 2], tf.int32)
    rule = r"must be \[batch, height, width, 3\] .* operations on colours, got"
    for policy in (augment.SimAugment(), augment.RandAugment()):
        with pytest.raises(ValueError, match=rule):
            policy(images, seeds)
    with pytest.raises(ValueError, match="`fill` must be three equal numbers"):
        affine.cutout(images, seeds, seeds[0], fill=(1, 2, 3))
    warped = augment.SimAugment(
        jitter_probability=0.0,
        grayscale_probability=0.0,
        warp_probability=1.0,
        blur_probability=0.0,
    )
    assert warped(images, seeds).shape == images.shape


@pytest.mark.slow(but=["False-5-pixel_range1"])
@pytest.mark.parametrize(("channels", "pixel_range"), [(1, None), (5, (0, 1))])
@pytest.mark.parametrize("is_vgg", [True, False])
def test_encoders_learn_from_them(channels, pixel_range, is_vgg):
    inputs = keras.Input((None, None, channels))
    backbone = keras.Model(inputs, keras.layers.Conv2D(4, 3)(inputs))
    encoder = models.Encoder("vgg8", width=0.05) if is_vgg else backbone
    model = models.SupConModel(encoder, models.ProjectionHead(4, ()))
    images = source(channels, pixel_range)
    model.compile(training.SGD(0.1), losses.SupConLoss())
    views = data.make_views(images, 6)
    history = model.fit(views, steps_per_epoch=2, verbose=0).history
    assert np.isfinite(history["loss"]).all()
    rows, _ = training.represent(model.encoder, images)
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, rtol=1e-5)


def test_float_pixels_are_those_of_bytes():
    encoder = models.Encoder("vgg8", width=0.05)
    rows, _ = training.represent(encoder, source(2))
    for pixel_range in ((0, 1), (-1, 1), (0, 255)):
        floats, _ = training.represent(encoder, source(2, pixel_range))
        np.testing.assert_allclose(floats, rows, atol=1e-4)


@pytest.mark.parametrize(
    ("images", "options", "message"),
    [
        (noise(2, 8, 8, 4), {"channels": 3}, "`channels` must be 4, those of"),
        (
            noise(2, 8, 8, 1),
            {"channels": 17},
            "must be 1, .*, or up to 16, got",
        ),
        (noise(2, 8, 8), {"pixel_range": (0, 1)}, "and for no others, got"),
        (np.zeros([2, 8, 8]), {"pixel_range": (1, 0)}, "must rise, got"),
        (
            np.full([2, 8, 8], np.nan),
            {"pixel_range": (0, 1)},
            "`images` must be finite, got NaN",
        ),
        (
            noise(2, 8, 8) / 255,
            {"pixel_range": (0, 255)},
            r"`pixel_range` must be about .*, got \(0, 255\) for images in 0",
        ),
    ],
)
def test_mistakes_are_named(images, options, message):
    with pytest.raises(ValueError, match=message):
        data.from_arrays(images, [0, 1], **options)
