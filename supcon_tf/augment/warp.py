"""Random bending of images by thin-plate splines."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from supcon_tf import exceptions
from supcon_tf.augment import dispatch, randomness

_REFERENCE_SIDE = 224  # pixels; lengths are stated at this side and scale
_FRACTIONS = 256.0  # of a pixel, see `_bend`


def random_warp(
    images: tf.Tensor, seeds: tf.Tensor, max_length: float = 23.0
) -> tf.Tensor:
    """Bends each image by a thin-plate spline through 2 x 2 interior points.

    The points lie at 1/3 and 2/3 of the sides. An image draws one length
    l ~ U(0, max_length), and shows at each point the pixel at a distance of
    l * N(0, 1) in either direction. This is `tfa.image.sparse_image_warp`,
    split in two: the spline depends linearly on the moves, so it is solved once
    for all images. The borders are not pinned: the spline goes on beyond its
    points, and the nearest border pixel stands for pixels outside of the image.
    Images with a side of 1 pixel are returned as they are.

    Args:
      images: [batch, height, width, channels] uint8 or float32, as is the
        result, which is bilinear and, of uint8, rounded to nearest.
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
    basis = _basis(height, width)
    # One image at a time: XLA would compile for each number of images, which
    # changes from batch to batch.
    return tf.map_fn(
        lambda pair: _bend(*pair, basis),
        (images, _moves(seeds, longest)),
        fn_output_signature=tf.TensorSpec(images.shape[1:], images.dtype),
    )


def _moves(seeds: tf.Tensor, longest: float) -> tf.Tensor:
    """Draws the factors of `_basis`: [batch, 6, 2] float64, (x, y)."""
    stream = randomness.Stream
    lengths = randomness.uniform(seeds, 1, stream.WARP_LENGTH)
    directions = randomness.normal(seeds, 8, stream.WARP_DIRECTION)
    moves = tf.cast(lengths, tf.float64) * tf.cast(directions, tf.float64)
    moves = tf.reshape(longest * moves, [-1, 4, 2])[..., ::-1]
    identity = tf.constant([[[0.0, 1.0], [1.0, 0.0]]], tf.float64)
    identity = tf.repeat(identity, tf.shape(moves)[0], axis=0)
    return tf.concat([moves, identity], axis=1)


@tf.function(jit_compile=True)
def _bend(image: tf.Tensor, moves: tf.Tensor, basis: tf.Tensor) -> tf.Tensor:
    """Samples each pixel at `basis @ moves`, bilinear: [H, W, C].

    Positions are rounded to 1/256 pixel, so that interpolation between bytes is
    exact in float32; float64 before hides the order of a product's sum. So the
    warp gives the same bytes on every machine. XLA makes one loop over the
    pixels of it, faster than `tfa.image.resampler`.
    """
    height, width, _ = image.shape
    positions = tf.cast(tf.round(basis @ moves), tf.float32) / _FRACTIONS
    limits = tf.constant([width - 1.0, height - 1.0])
    positions = tf.minimum(tf.maximum(positions, 0.0), limits)  # [H * W, 2]
    low = tf.floor(positions)
    right, below = tf.split(positions - low, 2, axis=-1)
    column, row = tf.unstack(tf.cast(low, tf.int32), axis=-1)
    pixels = tf.reshape(image, [-1, image.shape[2]])
    total = 0.0
    for down, rows in enumerate((1.0 - below, below)):
        for across, columns in enumerate((1.0 - right, right)):
            index = tf.minimum(row + down, height - 1) * width
            index += tf.minimum(column + across, width - 1)
            values = tf.cast(tf.gather(pixels, index), tf.float32)
            total += rows * columns * values
    if image.dtype == tf.uint8:
        total = tf.cast(tf.round(total), tf.uint8)
    return tf.reshape(total, image.shape)


def _basis(height: int, width: int) -> np.ndarray:
    """The displacement of each pixel by a unit move of each point.

    [height * width, 6] float64, in 1/256 pixel: the spline of each of the four
    points, then row and column of the pixel.
    """
    from scipy import interpolate  # which takes a third of a second

    points = [[height * i / 3, width * j / 3] for i in (1, 2) for j in (1, 2)]
    pixels = np.indices([height, width], np.float64).reshape(2, -1).T
    splines = interpolate.RBFInterpolator(
        points, np.eye(4), kernel="thin_plate_spline", degree=1
    )(pixels)  # [H * W, 4]
    return _FRACTIONS * np.concatenate([splines, pixels], axis=1)
