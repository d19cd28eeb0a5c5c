import colorsys
import itertools

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image, ImageEnhance

from supcon_tf.augment import color, randomness
from tests.augment import inputs

_FACTORS = (0.0, 0.1, 0.28, 0.64, 0.99999, 1.0, 1.18, 1.9, 3.0)
_PAIRS = (
    (color.adjust_brightness, ImageEnhance.Brightness),
    (color.adjust_contrast, ImageEnhance.Contrast),
    (color.adjust_saturation, ImageEnhance.Color),
)
_BLENDS = (*_PAIRS, (color.adjust_sharpness, ImageEnhance.Sharpness))


def _pictures(height: int = 17, width: int = 23) -> np.ndarray:
    """Random, constant, two-valued, ramp and saturated images."""
    rng = np.random.default_rng(0)
    shape = (height, width, 3)
    ramp = np.linspace(0, 255, height * width * 3).reshape(shape)
    stripes = np.zeros(shape)
    stripes[::2] = 255
    spot = np.zeros(shape)
    spot[height // 2, width // 2] = (255, 0, 0)
    pictures = [
        rng.integers(0, 256, shape),
        rng.integers(100, 120, shape),
        np.full(shape, 0),
        np.full(shape, 255),
        np.full(shape, 127),
        np.broadcast_to((255, 0, 128), shape),
        stripes,
        ramp,
        spot,
    ]
    return np.stack(pictures).astype(np.uint8)


def test_gray_is_exactly_pil_on_a_cube_of_colors():
    levels = np.arange(0, 256, 5, dtype=np.uint8)
    cube = np.stack(np.meshgrid(levels, levels, levels), axis=-1)
    cube = cube.reshape(-1, len(levels), 3)
    gray = color.to_grayscale(cube[None]).numpy()[0]
    expected = np.asarray(Image.fromarray(cube).convert("L"))
    for channel in range(3):
        np.testing.assert_array_equal(gray[..., channel], expected)


@pytest.mark.parametrize("adjust, enhancer", _BLENDS)
@pytest.mark.parametrize(
    "shape", [(40, 31), (1, 1), (1, 9), (9, 1), (2, 5), (8, 3)]
)
def test_blends_are_exactly_pil(adjust, enhancer, shape):
    """A factor of 1 changes nothing; every image has its own."""
    factors = [*_FACTORS, *np.random.default_rng(5).uniform(0.0, 2.0, 9)]
    factors = np.array(factors, np.float32)
    pictures = np.repeat(_pictures(*shape), len(factors), axis=0)
    factors = np.tile(factors, len(pictures) // len(factors))
    adjusted = adjust(tf.constant(pictures), tf.constant(factors))
    assert adjusted.dtype == tf.uint8
    for picture, factor, result in zip(
        pictures, factors, adjusted, strict=True
    ):
        expected = enhancer(Image.fromarray(picture)).enhance(float(factor))
        np.testing.assert_array_equal(result, np.asarray(expected), f"{factor}")
        if factor == 1.0:
            np.testing.assert_array_equal(result, picture)


@pytest.mark.parametrize(
    "operation",
    [*(adjust for adjust, _ in _BLENDS), color.adjust_hue, color.gaussian_blur],
)
def test_same_everywhere(operation):
    pictures = _pictures(40, 31)
    factors = np.linspace(0.1, 1.9, len(pictures), dtype=np.float32)
    inputs.assert_same_everywhere(operation, pictures, factors)


@pytest.mark.parametrize("turn", [-0.5, 0.0, 0.05, 0.25, 1.0])
def test_hue_matches_colorsys_within_one_level(turn):
    pictures = _pictures(9, 8)
    turns = tf.fill([len(pictures)], turn)
    results = color.adjust_hue(tf.constant(pictures), turns)
    expected = np.empty_like(pictures)
    for index in np.ndindex(pictures.shape[:3]):
        hue, saturation, value = colorsys.rgb_to_hsv(*pictures[index] / 255)
        rgb = colorsys.hsv_to_rgb((hue + turn) % 1.0, saturation, value)
        expected[index] = np.round(np.multiply(rgb, 255))
    assert inputs.difference(results, expected).max() <= 1
    if turn == 0.0:
        np.testing.assert_array_equal(results, pictures)


def test_jitter_is_one_order_of_the_four_operations():
    """Every image equals one of the 24 compositions of its own factors."""
    pictures = tf.constant(
        np.random.default_rng(2).integers(0, 256, [60, 6, 6, 3]), tf.uint8
    )
    seeds = inputs.seeds(60)
    jittered = color.color_jitter(pictures, seeds, 0.5).numpy()
    draws = randomness.uniform(seeds, 4, randomness.Stream.JITTER)
    factors = tf.unstack(0.6 + 0.8 * draws[:, :3], axis=1)
    factors.append(0.1 * (2.0 * draws[:, 3] - 1.0))
    operations = [*(adjust for adjust, _ in _PAIRS), color.adjust_hue]
    matched = np.zeros([24, 60], bool)
    for row, order in enumerate(itertools.permutations(range(4))):
        images = pictures
        for index in order:
            images = operations[index](images, factors[index])
        matched[row] = (
            inputs.difference(images, jittered).max(axis=(1, 2, 3)) <= 1
        )
    assert matched.any(axis=0).all()
    unique = matched[:, matched.sum(axis=0) == 1]
    assert (unique.any(axis=1)).sum() >= 10  # many orders occur


def test_jitter_factor_range():
    gray = tf.fill([2000, 1, 1, 3], tf.constant(100, tf.uint8))
    jittered = color.color_jitter(gray, inputs.seeds(2000), 0.5).numpy()
    # On one gray pixel only the brightness acts, at any place in the order.
    values = jittered[:, 0, 0].astype(int)
    assert (np.ptp(values, axis=1) <= 1).all()
    values = values[:, 0]
    assert 58 <= values.min() <= 62 and 137 <= values.max() <= 141
    assert abs(values.mean() - 99.5) < 4.5 * 23.1 / np.sqrt(2000)


def _blur_reference(image: np.ndarray, sigma: float) -> np.ndarray:
    """Direct two-dimensional loop in float64 with mirrored borders."""
    radius = min(image.shape[:2]) // 10 // 2
    offsets = np.arange(-radius, radius + 1)
    weights = np.exp(-0.5 * (offsets / sigma) ** 2)
    weights /= weights.sum()
    pads = [(radius, radius), (radius, radius), (0, 0)]
    padded = np.pad(image.astype(np.float64), pads, mode="reflect")
    height, width = image.shape[:2]
    blurred = np.zeros(image.shape)
    for i, j in np.ndindex(len(weights), len(weights)):
        window = padded[i : i + height, j : j + width]
        blurred += weights[i] * weights[j] * window
    return blurred


@pytest.mark.parametrize("shape", [(32, 32), (64, 47), (224, 224)])
def test_blur_matches_loop_within_one_level(shape):
    rng = np.random.default_rng(3)
    pictures = rng.integers(0, 256, (4, *shape, 3)).astype(np.uint8)
    pictures[1] = 0
    pictures[1, : shape[0] // 2] = 255
    sigmas = np.array([0.1, 0.7, 1.3, 2.0], np.float32)
    blurred = color.gaussian_blur(tf.constant(pictures), tf.constant(sigmas))
    assert blurred.dtype == tf.uint8 and blurred.shape == pictures.shape
    for picture, sigma, result in zip(pictures, sigmas, blurred, strict=True):
        expected = _blur_reference(picture, float(sigma))
        assert np.abs(result.numpy() - expected).max() < 1.0


def test_blur_keeps_constant_images_borders_and_small_images():
    white = tf.fill([9, 40, 50, 3], tf.constant(255, tf.uint8))
    for images in (white, _pictures(19, 40)):
        blurred = color.gaussian_blur(images, tf.linspace(0.1, 2.0, 9))
        np.testing.assert_array_equal(blurred, images)


def test_hue_of_large_images_is_that_of_their_parts():
    rng = np.random.default_rng(2)
    large = rng.integers(0, 256, (3, 96, 128, 3)).astype(np.uint8)
    factors = tf.constant([0.07, -0.4, 0.5])
    results = color.adjust_hue(large, factors).numpy()
    strips = large.reshape(3 * 12, 8, 128, 3)
    parts = color.adjust_hue(strips, tf.repeat(factors, 12))
    np.testing.assert_array_equal(results, tf.reshape(parts, results.shape))
    inputs.assert_same_everywhere(color.adjust_hue, large, factors)
