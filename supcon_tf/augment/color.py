"""Colour, sharpness and blur on batches: PIL's results, a factor per image.

Images are [batch, height, width, 3] uint8, as are the results; a factor is
[batch] float32. Sums that decide pixels are made of integers small enough to be
exact in float32, so that an image gives the same bytes alone and in any batch.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import tensorflow as tf

from supcon_tf import exceptions
from supcon_tf.augment import dispatch, randomness

# ITU-R 601 in steps of 2**-16, as in PIL; of a convolution to three channels.
_GRAY_WEIGHTS = np.float32([[[[19595] * 3, [38470] * 3, [7471] * 3]]]) / 2**16
_ORDERS = tuple(itertools.permutations(range(4)))
_MAX_BATCHED_PIXELS = 96 * 96  # of an image, see `gaussian_blur`
_WEIGHT_STEP = 2.0**-13  # of a blur weight
_LEVEL_STEP = 2.0**-3  # of a pixel between the passes: 24 bits in all
_BLUR_BLOCK = 32  # rows


def to_grayscale(images: tf.Tensor) -> tf.Tensor:
    """Sets all channels to the luminance, exactly PIL's `convert("L")`."""
    return tf.cast(_gray(_to_floats(images)), tf.uint8)


def adjust_brightness(images: tf.Tensor, factor: tf.Tensor) -> tf.Tensor:
    """Multiplies the pixels; PIL's `ImageEnhance.Brightness`.

    A factor is not negative; 1 changes nothing, 0 gives black.
    """
    return _to_bytes(_to_floats(images) * _per_image(factor))


def adjust_contrast(images: tf.Tensor, factor: tf.Tensor) -> tf.Tensor:
    """Blends with the image's mean luminance; PIL's `ImageEnhance.Contrast`.

    A factor is not negative; 1 changes nothing, 0 gives gray. Images have at
    most 4 million pixels each.
    """
    pixels = _to_floats(images)
    # Integers: the order of a float sum would depend on the batch.
    gray = tf.cast(_gray(pixels)[..., 0], tf.int32)
    total = tf.reduce_sum(gray, axis=[1, 2])  # [batch]
    count = pixels.shape[1] * pixels.shape[2]
    mean = (2 * total + count) // (2 * count)  # int(mean + 0.5)
    return _blend(_per_image(mean), pixels, factor)


def adjust_saturation(images: tf.Tensor, factor: tf.Tensor) -> tf.Tensor:
    """Blends with the gray image; PIL's `ImageEnhance.Color`.

    A factor is not negative; 1 changes nothing, 0 gives gray.
    """
    pixels = _to_floats(images)
    return _blend(_gray(pixels), pixels, factor)


def adjust_sharpness(images: tf.Tensor, factor: tf.Tensor) -> tf.Tensor:
    """Blends with a smoothed image; PIL's `ImageEnhance.Sharpness`.

    PIL smooths by the kernel [1 1 1; 1 5 1; 1 1 1] / 13. Pixels of the border
    stay as they are, so an image with a side below 3 pixels does not change. A
    factor is not negative; 1 changes nothing, 0 smooths, and above 1 sharpens.
    """
    images = dispatch.check_colors(images)
    if min(images.shape[1:3]) < 3:
        return images
    pixels = tf.cast(images, tf.int16)  # sums reach 13 * 255
    rows = pixels[:, :-2] + pixels[:, 1:-1] + pixels[:, 2:]
    box = rows[:, :, :-2] + rows[:, :, 1:-1] + rows[:, :, 2:]
    inner = pixels[:, 1:-1, 1:-1]  # [batch, H - 2, W - 2, 3]
    smooth = tf.cast(box + 4 * inner, tf.float32) * (1.0 / 13.0)
    smooth = tf.floor(smooth + 0.5)  # no ties: 13 is odd
    inner = _blend(smooth, tf.cast(inner, tf.float32), factor)
    sides = [images[:, 1:-1, :1], inner, images[:, 1:-1, -1:]]
    middle = tf.concat(sides, axis=2)
    return tf.concat([images[:, :1], middle, images[:, -1:]], axis=1)


def adjust_hue(images: tf.Tensor, factor: tf.Tensor) -> tf.Tensor:
    """Turns the hue in HSV; saturation and value do not change.

    PIL's HSV images round the hue to 8 bits; here it stays float32, and only
    the resulting pixels are rounded, to nearest. A factor is a share of the
    circle, taken modulo 1; 0 changes nothing.
    """
    images = dispatch.check_colors(images)

    def turn(pair: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
        pixels = tf.cast(pair[0], tf.float32)
        turned = tf.raw_ops.AdjustHue(images=pixels, delta=pair[1])
        return tf.cast(turned + 0.5, tf.uint8)

    turns = tf.math.floormod(factor, 1.0)
    shape = tf.TensorSpec(images.shape[1:], tf.uint8)
    return tf.map_fn(turn, (images, turns), fn_output_signature=shape)


def color_jitter(
    images: tf.Tensor, seeds: tf.Tensor, strength: float
) -> tf.Tensor:
    """Random brightness, contrast, saturation and hue, in random order.

    Each image draws one of the 24 orders and the four factors: three from
    U(max(0, 1 - 0.8 s), 1 + 0.8 s), the hue shift from U(-0.2 s, 0.2 s).
    The image is rounded to bytes after each operation, as torchvision does on
    PIL images. `strength` is s: 0.5 is torchvision's ColorJitter(0.4, 0.4, 0.4,
    0.1), 1 is SimCLR's on ImageNet. Seeds are [batch, 2] int32.

    Raises:
      ValueError: `strength` is negative, or 0.2 s is above half a circle.
    """
    check_strength(strength)
    images = dispatch.check_colors(images)
    draws = randomness.uniform(seeds, 5, randomness.Stream.JITTER)
    low, high = max(0.0, 1.0 - 0.8 * strength), 1.0 + 0.8 * strength
    factors = low + (high - low) * draws[:, :3]
    turns = 0.2 * strength * (2.0 * draws[:, 3:4] - 1.0)
    factors = tf.concat([factors, turns], axis=1)  # [batch, 4]
    index = tf.cast(draws[:, 4] * len(_ORDERS), tf.int32)
    orders = tf.gather(tf.constant(_ORDERS, tf.int32), index)  # [batch, 4]
    kinds = adjust_brightness, adjust_contrast, adjust_saturation, adjust_hue
    for choice in tf.unstack(orders, axis=1):  # [batch] each
        factor = tf.gather(factors, choice, batch_dims=1)  # [batch]
        images = dispatch.dispatch(choice, kinds, images, factor)
    return images


def gaussian_blur(images: tf.Tensor, sigma: tf.Tensor) -> tf.Tensor:
    """Gaussian blur with its own width for each image.

    The kernel side is 2 * (side // 10 // 2) + 1 pixels for the shorter side of
    the images, 23 at 224 and 3 at 32, as in SimCLR; below 20 pixels it is 1 and
    nothing changes. Borders are mirrored: the zero padding of the public code
    darkens them. Weights are rounded to 2**-13, which moves a pixel by less
    than one level, and pixels to nearest. `sigma`, [batch] float32, is the
    standard deviation in pixels, positive.
    """
    images = dispatch.check_colors(images)
    radius = min(images.shape[1:3]) // 10 // 2
    if radius == 0:
        return images
    # float64 for the reason given in `randomness.normal`.
    offsets = tf.range(-radius, radius + 1, dtype=tf.float64)
    scaled = offsets / tf.cast(sigma, tf.float64)[:, None]
    weights = tf.exp(-0.5 * scaled**2)
    weights /= tf.reduce_sum(weights, axis=1, keepdims=True)
    weights = tf.round(weights / _WEIGHT_STEP) * _WEIGHT_STEP
    centre = tf.one_hot(radius, 2 * radius + 1, dtype=tf.float64)
    missing = 1.0 - tf.reduce_sum(weights, axis=1, keepdims=True)
    weights = tf.cast(weights + missing * centre, tf.float32)
    height, width = images.shape[1:3]
    if height * width < _MAX_BATCHED_PIXELS:
        return _blur(images, weights)
    # One image at a time: its intermediate results stay in the cache.
    return tf.map_fn(
        lambda pair: _blur(pair[0][tf.newaxis], pair[1][tf.newaxis])[0],
        (images, weights),
        fn_output_signature=tf.TensorSpec([height, width, 3], tf.uint8),
    )


def check_strength(strength: float) -> None:
    """Raises ValueError for a strength outside of [0, 2.5]."""
    exceptions.require(
        0.0 <= 0.2 * strength <= 0.5,
        "`strength` must be in [0, 2.5], since hue turns by at most "
        "0.2 * strength <= 0.5",
        strength,
    )


def _per_image(factor: tf.Tensor) -> tf.Tensor:
    """Shapes one number per image for arithmetic with pixels."""
    return tf.reshape(tf.cast(factor, tf.float32), [-1, 1, 1, 1])


def _to_floats(images: tf.Tensor) -> tf.Tensor:
    """Checks a batch of images and makes its pixels float32, 0 to 255."""
    return tf.cast(dispatch.check_colors(images), tf.float32)


def _gray(pixels: tf.Tensor) -> tf.Tensor:
    """PIL's luminance of float pixels, repeated on three channels."""
    # Sums of 24 bits, so exact in float32. A convolution to three channels is
    # faster than one channel and a broadcast along the innermost axis.
    luminance = tf.nn.conv2d(pixels, _GRAY_WEIGHTS, strides=1, padding="VALID")
    return tf.floor(luminance + 0.5)


def _to_bytes(pixels: tf.Tensor) -> tf.Tensor:
    """Clips to 0..255 and truncates."""
    return tf.cast(tf.clip_by_value(pixels, 0.0, 255.0), tf.uint8)


def _blend(
    target: tf.Tensor, pixels: tf.Tensor, factor: tf.Tensor
) -> tf.Tensor:
    """Blends as PIL: target + factor * (pixels - target), clipped to bytes."""
    return _to_bytes(target + _per_image(factor) * (pixels - target))


def _blur(images: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    """Filters both axes by weights [batch, taps]."""
    height, width = images.shape[1:3]
    pixels = tf.cast(images, tf.float32)
    rows = tf.reshape(pixels, [-1, height, width * 3])
    rows = _filter(rows, weights)  # [batch, H, W * 3]
    rows = tf.round(rows / _LEVEL_STEP) * _LEVEL_STEP
    swap_sides = [0, 2, 1, 3]
    columns = tf.reshape(rows, [-1, height, width, 3])
    columns = tf.transpose(columns, swap_sides)
    columns = tf.reshape(columns, [-1, width, height * 3])
    columns = _filter(columns, weights)  # [batch, W, H * 3]
    blurred = tf.reshape(columns, [-1, width, height, 3])
    blurred = tf.transpose(blurred, swap_sides)
    return tf.cast(tf.round(blurred), tf.uint8)


def _filter(rows: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    """Filters [batch, side, n] along the side, borders mirrored.

    The matrix of a whole side is a band, mostly zeros. A block of rows needs
    its own rows and those within reach of the filter alone.
    """
    side, taps = rows.shape[1], weights.shape[1]
    count = math.ceil(side / _BLUR_BLOCK)
    block = math.ceil(side / count)
    length = block + taps - 1
    after = count * block - side + taps // 2
    sources = np.pad(np.arange(side), (taps // 2, after), mode="reflect")
    sources = np.stack([sources[i * block :][:length] for i in range(count)])
    bands = np.stack([np.eye(block, length, tap) for tap in range(taps)])
    bands = tf.constant(bands.reshape(taps, -1), tf.float32)
    matrices = tf.reshape(weights @ bands, [-1, 1, block, length])
    blocks = tf.gather(rows, sources, axis=1)  # [batch, count, length, n]
    filtered = tf.reshape(matrices @ blocks, [-1, count * block, rows.shape[2]])
    return filtered[:, :side]
