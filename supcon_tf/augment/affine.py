"""Affine maps and cutout with the pixels of PIL, one argument per image.

Nearest neighbour only. PIL makes source coordinates in 16.16 fixed point;
here they are whole numbers in float64 and then int32, so an image gives the
same bytes eagerly, in a graph and in any batch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from supcon_tf import exceptions
from supcon_tf.augment import dispatch

Color = tuple[int, int, int]

GRAY = (128, 128, 128)  # of pixels from outside of an image
_FIXED_ONE = 65536.0  # a pixel in fixed point
_LIMIT = 2.0**30  # two such numbers and a side add up within int32
_SINE_PRECISION = 1e15  # PIL keeps 15 decimals: the sine of 180 degrees is 0


def check_fill(fill: Sequence[int]) -> Color:
    """The colour as a tuple; ValueError for other values."""
    fill = tuple(fill)
    exceptions.require(
        len(fill) == 3 and all(value in range(256) for value in fill),
        "`fill` must be three numbers 0 to 255",
        fill,
    )
    return fill


def _color(fill: Color, images: tf.Tensor) -> np.ndarray:
    """`fill` as [channels] uint8 of the images."""
    color = np.array(check_fill(fill), np.uint8)
    channels = images.shape[3]
    if channels == 3 and images.dtype == tf.uint8:
        return color
    exceptions.require(
        (color == color[0]).all(),
        "`fill` must be three equal numbers for images that are not RGB of "
        "uint8",
        fill,
    )
    return np.repeat(color[:1], channels)


def affine_transform(
    images: tf.Tensor, matrices: tf.Tensor, fill: Color = GRAY
) -> tf.Tensor:
    """Maps each image by its own matrix; PIL's `transform(size, AFFINE)`.

    The pixel in column x and row y comes from the one that contains
    (a x' + b y' + c, d x' + e y' + f), where x' = x + 0.5 and y' = y + 0.5.
    These are exactly PIL's bytes while |a| width, |d| width and the largest
    |b y + c| and |e y + f| stay below 16384 pixels; beyond, they are clipped.

    Args:
      images: [batch, height, width, channels] uint8 or float32, at most 2**31
        pixels in all with a border of 1: 42,000 images of 224 x 224.
      matrices: [batch, 6] float64, rows (a, b, c, d, e, f), c and f in pixels.
      fill: RGB of what comes from outside the image; where there are not three
        channels, of equal numbers.
    """
    images = dispatch.check_images(images)
    color = _color(fill, images)
    _, height, width, _ = images.shape
    rows, columns = _source_parts(matrices, height, width)
    sums = _clip(rows)[..., tf.newaxis] + _clip(columns)[:, :, tf.newaxis]
    x, y = tf.unstack(tf.bitwise.right_shift(sums, 16))  # [B, H, W] each
    tint = color ^ color[0]  # tf.pad knows one value for all channels
    borders = [[0, 0], [1, 1], [1, 1], [0, 0]]
    first = tf.cast(color[0], images.dtype)
    bordered = tf.pad(_flip_bits(images, tint), borders, constant_values=first)
    count, stride = (height + 2) * (width + 2), width + 2
    first = tf.range(tf.shape(images)[0]) * count + (stride + 1)
    index = tf.clip_by_value(x, -1, width) + (
        tf.clip_by_value(y, -1, height) * stride
        + first[:, tf.newaxis, tf.newaxis]
    )
    pixels = tf.reshape(bordered, [-1, images.shape[3]])
    values = tf.gather_nd(pixels, index[..., tf.newaxis])
    return _flip_bits(values, tint)


def rotation_matrices(degrees: tf.Tensor, height: int, width: int) -> tf.Tensor:
    """Rotations about the middle of the image, for `affine_transform`.

    `degrees` are [batch] float32, positive counter-clockwise, as in PIL.
    """
    degrees = tf.math.floormod(tf.cast(degrees, tf.float64), 360.0)
    radians = degrees * (-math.pi / 180.0)
    cos = tf.round(tf.cos(radians) * _SINE_PRECISION) / _SINE_PRECISION
    sin = tf.round(tf.sin(radians) * _SINE_PRECISION) / _SINE_PRECISION
    x, y = width / 2, height / 2
    offset_x = cos * -x + sin * -y + x
    offset_y = sin * x + cos * -y + y
    return tf.stack([cos, sin, offset_x, -sin, cos, offset_y], axis=1)


def rotate(images: tf.Tensor, degrees: tf.Tensor) -> tf.Tensor:
    """Rotates images by `degrees` [batch]; the corners become grey."""
    height, width = images.shape[1:3]
    return affine_transform(images, rotation_matrices(degrees, height, width))


def cutout(
    images: tf.Tensor,
    centers: tf.Tensor,
    half_sides: tf.Tensor,
    fill: Color = GRAY,
) -> tf.Tensor:
    """Paints a square over each image, cut off at the borders.

    It covers the rows center - half_side to center + half_side - 1, and the
    columns likewise.

    Args:
      images: [batch, height, width, channels] uint8 or float32, as is the
        result.
      centers: [batch, 2] int32, row and column, in pixels.
      half_sides: [batch] int32, half the side of the square, in pixels; 0
        changes nothing.
      fill: RGB of the square.
    """
    images = dispatch.check_images(images)
    _, height, width, channels = images.shape
    rows = band(height, centers[:, 0] - half_sides, 2 * half_sides)
    columns = band(width, centers[:, 1] - half_sides, 2 * half_sides)
    color = _color(fill, images)
    if images.dtype != tf.uint8:
        inside = (rows[:, :, tf.newaxis] > 0) & (columns[:, tf.newaxis] > 0)
        color = tf.cast(color, images.dtype)
        return tf.where(inside[..., tf.newaxis], color, images)
    pixels = tf.reshape(images, [-1, height, width * channels])
    color = tf.constant(np.tile(color, width), tf.uint8)
    painted = paste(pixels, color, rows, columns, channels)
    return tf.reshape(painted, [-1, height, width, channels])


def band(size: int, first: tf.Tensor, length: tf.Tensor) -> tf.Tensor:
    """[batch, size] uint8: 255 for `length` [batch] pixels from `first`."""
    offsets = tf.range(size) - first[:, tf.newaxis]
    inside = (offsets >= 0) & (offsets < length[:, tf.newaxis])
    return 255 * tf.cast(inside, tf.uint8)


def paste(
    pixels: tf.Tensor,
    patch: tf.Tensor,
    rows: tf.Tensor,
    columns: tf.Tensor,
    channels: int = 3,
) -> tf.Tensor:
    """Takes a box from `patch`, where bands of rows and of columns cross.

    Both images are [batch, height, width * channels] uint8, which is faster to
    broadcast; rows are [batch, height], columns [batch, width], by `band`.
    """
    # Operations on bits: together they take less time than tf.where on pixels.
    columns = tf.repeat(columns, channels, axis=1)
    box = tf.bitwise.bitwise_and(rows[:, :, tf.newaxis], columns[:, tf.newaxis])
    change = tf.bitwise.bitwise_and(tf.bitwise.bitwise_xor(pixels, patch), box)
    return tf.bitwise.bitwise_xor(pixels, change)


def _clip(numbers: tf.Tensor) -> tf.Tensor:
    """Whole numbers from float64 to int32, without overflow."""
    return tf.cast(
        tf.clip_by_value(numbers, -_LIMIT, _LIMIT - 1.0),
        tf.int32,
    )


def _source_parts(
    matrices: tf.Tensor, height: int, width: int
) -> list[tf.Tensor]:
    """Source coordinates x and y as sums of parts in fixed point.

    Returns:
      rows, columns: [2, batch, height] and [2, batch, width] float64.
    """
    matrices = tf.cast(matrices, tf.float64)
    # Coefficients of the source's x and y, [2, batch] each: pixels from a
    # column to the next, from a row to the next, and the offset.
    coefficients = tf.reshape(tf.transpose(matrices), [2, 3, -1])
    across, down, offset = tf.unstack(coefficients, axis=1)
    start = offset + across * 0.5 + down * 0.5
    # Where b = d = 0 PIL adds up float64 coordinates, pixel after pixel.
    x = _FIXED_ONE * tf.floor(_running_sum(start[0], across[0], width))
    y = _FIXED_ONE * tf.floor(_running_sum(start[1], down[1], height))
    scaled = tf.stack([tf.zeros_like(y), y]), tf.stack([x, tf.zeros_like(x)])
    across, down, start = (  # in units of 1 / `_FIXED_ONE`, to nearest
        tf.floor(numbers * _FIXED_ONE + 0.5)[..., tf.newaxis]
        for numbers in (across, down, start)
    )
    fixed = (
        start + down * np.arange(height, dtype=np.float64),
        across * np.arange(width, dtype=np.float64),
    )
    scaling = (matrices[:, 1] == 0.0) & (matrices[:, 3] == 0.0)
    return [
        tf.where(scaling[:, tf.newaxis], *parts)
        for parts in zip(scaled, fixed, strict=True)
    ]


def _running_sum(start: tf.Tensor, step: tf.Tensor, count: int) -> tf.Tensor:
    """start, start + step, ... as [batch, count], by additions."""
    steps = step[:, tf.newaxis] * np.ones(count - 1)
    return tf.cumsum(tf.concat([start[:, tf.newaxis], steps], 1), axis=1)


def _flip_bits(images: tf.Tensor, tint: np.ndarray) -> tf.Tensor:
    """Flips the bits of `tint` in every pixel; its own inverse."""
    if not tint.any():
        return images
    _, height, width, _ = images.shape
    rows = tf.reshape(images, [-1, height, width * 3])
    rows = tf.bitwise.bitwise_xor(rows, np.tile(tint, width))
    return tf.reshape(rows, [-1, height, width, 3])
