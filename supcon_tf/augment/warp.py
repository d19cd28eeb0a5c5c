"""Random bending of images by thin-plate splines."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from supcon_tf import addons, exceptions
from supcon_tf.augment import dispatch, randomness

_REFERENCE_SIDE = 224  # pixels; lengths are stated at this side and scale
_FRACTIONS = 256.0  # of a pixel, see `_source_positions`


def random_warp(
    images: tf.Tensor, seeds: tf.Tensor, max_length: float = 23.0
) -> tf.Tensor:
    """Bends each image by a thin-plate spline through 2 x 2 interior points.

    The points lie at 1/3 and 2/3 of the sides. An image draws one length
    l ~ U(0, max_length), and shows at each point what lies l * N(0, 1) away in
    either direction. The same as `tfa.image.sparse_image_warp`, split in
    two: the spline depends linearly on the displacements, so it is solved once
    for all images. Nothing is pinned at the borders: the spline goes on beyond
    its points, and the nearest border pixel stands for what would come from
    outside. Images with a side of 1 pixel are returned as they are.

    Args:
      images: [batch, height, width, 3] uint8, as is the result, which is
        bilinear and rounded to nearest.
      seeds: [batch, 2] int32.
      max_length: pixels, not negative, for images whose short side is 224;
        scales with it.
    """
    images = dispatch.check_images(images)
    exceptions.require(
        max_length >= 0.0, "`max_length` must be >= 0", max_length
    )
    height, width = images.shape[1:3]
    if min(height, width) < 2:
        return images
    longest = max_length * min(height, width) / _REFERENCE_SIDE
    positions = _source_positions(seeds, height, width, longest)
    image = addons.load("image")
    warped = image.resampler(tf.cast(images, tf.float32), positions)
    warped = tf.saturate_cast(tf.round(warped), tf.uint8)
    return tf.reshape(warped, [-1, height, width, 3])


def _source_positions(
    seeds: tf.Tensor, height: int, width: int, longest: float
) -> tf.Tensor:
    """Draws from where each pixel is taken: [batch, H * W, 2] float32, (x, y).

    Rounded to 1/256 pixel: with that, interpolation between bytes is exact in
    float32, and float64 until then hides in which order a product adds. So the
    warp gives the same bytes eagerly, in a graph and in any batch.
    """
    stream = randomness.Stream
    lengths = randomness.uniform(seeds, 1, stream.WARP_LENGTH)
    directions = randomness.normal(seeds, 8, stream.WARP_DIRECTION)
    moves = tf.cast(lengths, tf.float64) * tf.cast(directions, tf.float64)
    moves = tf.reshape(longest * moves, [-1, 4, 2])[..., ::-1]
    with tf.init_scope():  # once, eagerly, even while a graph is traced
        basis = _basis(height, width)
        unmoved = tf.constant([[[0.0, 1.0], [1.0, 0.0]]], tf.float64)
    unmoved = tf.repeat(unmoved, tf.shape(moves)[0], axis=0)
    positions = basis @ tf.concat([moves, unmoved], axis=1)
    positions = tf.cast(tf.round(positions), tf.float32) / _FRACTIONS
    limits = tf.constant([width - 1.0, height - 1.0])
    limits = tf.tile(limits, [height * width])  # broadcasting pairs is slow
    positions = tf.reshape(positions, [-1, 2 * height * width])
    positions = tf.minimum(tf.maximum(positions, 0.0), limits)
    return tf.reshape(positions, [-1, height * width, 2])


def _basis(height: int, width: int) -> tf.Tensor:
    """How far each pixel follows a unit move of each point, and where it is.

    [height * width, 6] float64, in 1/256 pixel: the spline of each of the four
    points, then row and column.
    """
    points = [[height * i / 3, width * j / 3] for i in (1, 2) for j in (1, 2)]
    pixels = np.indices([height, width], np.float64).reshape(2, -1).T
    splines = addons.load("image").interpolate_spline(
        tf.constant([points], tf.float64),
        tf.eye(4, dtype=tf.float64)[tf.newaxis],
        pixels[np.newaxis],
        order=2,
    )  # [1, H * W, 4]
    return tf.concat([splines[0], pixels], axis=1) * _FRACTIONS
