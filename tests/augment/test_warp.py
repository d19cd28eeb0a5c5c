import numpy as np
import pytest
import tensorflow as tf

from supcon_tf.augment import randomness, warp
from tests.augment import inputs


def test_warp_moves_pixels_and_seeds_differ():
    images = tf.repeat(inputs.smooth(1, 64), 8, axis=0)
    warped = warp.random_warp(images, inputs.seeds(8)).numpy()
    assert warped.shape == images.shape and warped.dtype == np.uint8
    moved = inputs.difference(warped, images).mean(axis=(1, 2, 3))
    assert (moved > 0.1).all() and moved.max() > 5.0
    assert len({image.tobytes() for image in warped}) == 8


def test_warp_has_the_bytes_of_tfas_spline_and_resampler():
    tfa = pytest.importorskip("tensorflow_addons", exc_type=ImportError)
    height, width, count = 48, 40, 6
    images = inputs.noise(count, height, width, 3)
    seeds = inputs.seeds(count)
    stream = randomness.Stream
    lengths = randomness.uniform(seeds, 1, stream.WARP_LENGTH).numpy()
    directions = randomness.normal(seeds, 8, stream.WARP_DIRECTION).numpy()
    moves = 23.0 * 40 / 224 * lengths.astype(float) * directions.astype(float)
    points = [[height * i / 3, width * j / 3] for i in (1, 2) for j in (1, 2)]
    pixels = np.indices([height, width], float).reshape(1, 2, -1)
    flows = tfa.image.interpolate_spline(
        np.repeat([points], count, axis=0),
        moves.reshape(-1, 4, 2),
        np.repeat(pixels.transpose(0, 2, 1), count, axis=0),
        order=2,
    )
    rows, columns = (
        np.round(256 * (pixels + np.moveaxis(flows, 2, 1))).swapaxes(0, 1) / 256
    )
    positions = np.stack(
        [columns.clip(0, width - 1), rows.clip(0, height - 1)], -1
    )
    expected = tfa.image.resampler(
        tf.cast(images, tf.float32), positions.astype(np.float32)
    )
    np.testing.assert_array_equal(
        tf.reshape(warp.random_warp(images, seeds), [count, -1, 3]),
        np.round(expected),
    )


def test_warp_length_scales_with_the_side():
    """The same seeds bend a small and a large picture alike."""
    seeds = inputs.seeds(6)
    large = warp.random_warp(inputs.smooth(6, 128), seeds)
    small = warp.random_warp(inputs.smooth(6, 64), seeds)
    halved = tf.image.resize(large, [64, 64], antialias=True)
    assert inputs.difference(np.round(halved), small).mean() < 4


def test_one_pixel_and_length_zero_stay_and_negative_lengths_are_refused():
    for shape, length in (((3, 1, 1, 3), 23.0), ((3, 33, 40, 3), 0.0)):
        images = inputs.noise(*shape)
        results = warp.random_warp(images, inputs.seeds(3), max_length=length)
        np.testing.assert_array_equal(results, images)
    with pytest.raises(ValueError, match="`max_length` must be >= 0, got -1"):
        warp.random_warp(images, inputs.seeds(3), -1.0)
