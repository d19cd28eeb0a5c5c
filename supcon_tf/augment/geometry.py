"""Crops, flips and warps: where the pixels of a view come from."""

from __future__ import annotations

import importlib
import types
import warnings

import tensorflow as tf

from supcon_tf.augment import dispatch, randomness

_CENTRAL_FRACTION = 0.875  # of the short side kept in evaluation: 224 of 256
_ATTEMPTS = 100  # to draw a box before falling back to the central square
_REFERENCE_SIDE = 224  # pixels; lengths are stated at this side and scale


def crop_box(
    image_shape: tf.Tensor,
    seed: tf.Tensor,
    area: tuple[float, float] = (0.08, 1.0),
    aspect: tuple[float, float] = (3 / 4, 4 / 3),
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
    """Draws the box of a random resized crop.

    If no box fits in 100 attempts, or the draw is the whole image, the box is
    the central square of the short side.

    Args:
      image_shape: [3] int32, height, width, channels in pixels.
      seed: [2] int32.
      area: smallest and largest share of the image's area.
      aspect: smallest and largest width / height of the box.

    Returns:
      y, x, height, width: scalars int32, pixels, inside the image.

    Raises:
      ValueError: `area` or `aspect` is not an ordered pair in its range.
    """
    if not 0.0 < area[0] <= area[1] <= 1.0:
        raise ValueError(f"`area` must be 0 < low <= high <= 1, got {area}")
    if not 0.0 < aspect[0] <= aspect[1]:
        raise ValueError(f"`aspect` must be 0 < low <= high, got {aspect}")
    begin, extent, _ = tf.image.stateless_sample_distorted_bounding_box(
        image_shape,
        tf.constant([[[0.0, 0.0, 1.0, 1.0]]]),
        seed,
        min_object_covered=0.1,
        aspect_ratio_range=aspect,
        area_range=area,
        max_attempts=_ATTEMPTS,
    )
    whole = tf.reduce_all(extent[:2] == image_shape[:2])
    side = tf.reduce_min(image_shape[:2])
    central = (image_shape[:2] - side) // 2
    y, x = tf.unstack(tf.where(whole, central, begin[:2]))
    height, width = tf.unstack(tf.where(whole, side, extent[:2]))
    return y, x, height, width


def resize_crop(crop: tf.Tensor, size: int) -> tf.Tensor:
    """Resizes what a crop box cut out to a square, bilinear.

    Antialiasing takes four to eight times as long as the plain resize and
    changes little where no pixel is skipped, so it is done only if the crop
    shrinks by more than a factor of 2.

    Args:
      crop: [height, width, 3] uint8.
      size: side of the result, pixels.

    Returns:
      [size, size, 3] uint8, rounded to nearest.

    Raises:
      ValueError: `crop` is not an RGB image of bytes, or `size` not positive.
    """
    crop = _check_image(crop, size, "crop")
    skips = tf.reduce_max(tf.shape(crop)[:2]) > 2 * size
    return tf.cond(
        skips,
        lambda: _resize(crop, size, antialias=True),
        lambda: _resize(crop, size, antialias=False),
    )


def random_resized_crop(
    image: tf.Tensor,
    seed: tf.Tensor,
    size: int,
    area: tuple[float, float] = (0.08, 1.0),
    aspect: tuple[float, float] = (3 / 4, 4 / 3),
) -> tf.Tensor:
    """Cuts out a random box and resizes it to a square.

    Args:
      image: [height, width, 3] uint8, any size from 1 x 1.
      seed: [2] int32.
      size: side of the result, pixels.
      area: smallest and largest share of the image's area; 0.2 to 1 on CIFAR.
      aspect: smallest and largest width / height of the box.

    Returns:
      [size, size, 3] uint8; see `resize_crop`.

    Raises:
      ValueError: `image` is not an RGB image of bytes, `size` not positive,
        or `area` or `aspect` is not an ordered pair in its range.
    """
    image = _check_image(image, size, "image")
    y, x, height, width = crop_box(tf.shape(image), seed, area, aspect)
    return resize_crop(image[y : y + height, x : x + width], size)


def random_flip(images: tf.Tensor, seeds: tf.Tensor) -> tf.Tensor:
    """Mirrors each image left to right with probability 0.5.

    Args:
      images: [batch, height, width, 3] uint8.
      seeds: [batch, 2] int32.

    Returns:
      [batch, height, width, 3] uint8.

    Raises:
      ValueError: `images` or `seeds` is of another shape or dtype.
    """
    images = dispatch.check_images(images)
    draws = randomness.uniform(seeds, 1, randomness.Stream.FLIP)[:, 0]
    choice = tf.cast(draws < 0.5, tf.int32)
    return dispatch.dispatch(choice, (dispatch.keep, _mirror), images)


def central_view(image: tf.Tensor, size: int) -> tf.Tensor:
    """The one view of evaluation and of serving: resize, then central crop.

    The short side becomes round(size / 0.875), 256 for 224, by an antialiased
    bilinear resize, and the central square of `size` is kept. Only the central
    square of the image is resized: the rest would be cut off anyway, and a
    panorama would not fit in memory. An image of `size` x `size` is returned
    as it is.

    Args:
      image: [height, width, 3] uint8, any size from 1 x 1.
      size: side of the result, pixels.

    Returns:
      [size, size, 3] uint8, rounded to nearest.

    Raises:
      ValueError: `image` is not an RGB image of bytes, or `size` not positive.
    """
    image = _check_image(image, size, "image")
    if not image.shape[:2].is_compatible_with([size, size]):
        return _resize_then_crop(image, size)
    if image.shape[:2].is_fully_defined():
        return image
    return tf.cond(
        tf.reduce_all(tf.shape(image)[:2] == size),
        # Not ensure_shape: Grappler's constant folding takes its shape for that
        # of `image` in both branches, and then runs the wrong one.
        lambda: tf.reshape(image, [size, size, 3]),
        lambda: _resize_then_crop(image, size),
    )


def random_warp(
    images: tf.Tensor, seeds: tf.Tensor, max_length: float = 23.0
) -> tf.Tensor:
    """Bends each image by a thin-plate spline through 2 x 2 interior points.

    The points lie at 1/3 and 2/3 of the sides. An image draws one length
    l ~ U(0, max_length), and shows at each point what lies l * N(0, 1) away in
    either direction. The same as `tfa.image.sparse_image_warp`, split in
    two: the spline depends linearly on the displacements, so it is solved once
    for all images. Nothing is pinned at the borders: the spline goes on beyond
    its points, and TFA repeats the nearest border pixel for what would come
    from outside. Images with a side of 1 pixel are returned as they are.

    Args:
      images: [batch, height, width, 3] uint8.
      seeds: [batch, 2] int32.
      max_length: pixels for images whose short side is 224; scales with it.

    Returns:
      [batch, height, width, 3] uint8, bilinear, rounded to nearest.

    Raises:
      ValueError: `images` or `seeds` is of another shape or dtype, or
        `max_length` is negative.
    """
    images = dispatch.check_images(images)
    if max_length < 0.0:
        raise ValueError(f"`max_length` must be >= 0, got {max_length}")
    height, width = images.shape[1:3]
    if min(height, width) < 2:
        return images
    longest = max_length * min(height, width) / _REFERENCE_SIDE
    flow = _random_flow(seeds, height, width, longest)
    warped = _tfa_image().dense_image_warp(tf.cast(images, tf.float32), flow)
    return tf.saturate_cast(tf.round(warped), tf.uint8)


def _check_image(image: tf.Tensor, size: int, name: str) -> tf.Tensor:
    """Refuses anything but one RGB image of bytes and a positive size."""
    image = tf.convert_to_tensor(image)
    fits = image.shape.is_compatible_with([None, None, 3])
    if image.dtype != tf.uint8 or not fits:
        raise ValueError(
            f"`{name}` must be [height, width, 3] uint8, "
            f"got {image.shape} {image.dtype.name}"
        )
    if size < 1:
        raise ValueError(f"`size` must be at least 1 pixel, got {size}")
    return image


def _resize(image: tf.Tensor, size: int, *, antialias: bool) -> tf.Tensor:
    """Bilinear resize to [size, size, 3], rounded to nearest."""
    resized = tf.image.resize(image, [size, size], antialias=antialias)
    resized = tf.saturate_cast(tf.round(resized), tf.uint8)
    return tf.ensure_shape(resized, [size, size, 3])


def _resize_then_crop(image: tf.Tensor, size: int) -> tf.Tensor:
    """Central square, resized to size / 0.875, and of that the centre."""
    shape = tf.shape(image)[:2]
    side = tf.reduce_min(shape)
    y, x = tf.unstack((shape - side) // 2)
    resized_side = round(size / _CENTRAL_FRACTION)
    square = _resize(
        image[y : y + side, x : x + side], resized_side, antialias=True
    )
    margin = (resized_side - size) // 2
    return square[margin : margin + size, margin : margin + size]


def _mirror(images: tf.Tensor) -> tf.Tensor:
    """Left to right."""
    return tf.reverse(images, [2])


def _random_flow(
    seeds: tf.Tensor, height: int, width: int, longest: float
) -> tf.Tensor:
    """Draws from where each pixel is taken: [batch, H, W, 2] float32, pixels.

    Rounded to 1/256 pixel: with that, interpolation between bytes is exact in
    float32, and float64 until then hides in which order a graph adds. So the
    warp gives the same bytes eagerly, in a graph and in any batch.
    """
    stream = randomness.Stream
    lengths = randomness.uniform(seeds, 1, stream.WARP_LENGTH)
    directions = randomness.normal(seeds, 8, stream.WARP_DIRECTION)
    moves = tf.cast(lengths, tf.float64) * tf.cast(directions, tf.float64)
    moves = tf.reshape(longest * moves, [-1, 4, 1, 1, 2])
    with tf.init_scope():  # once, eagerly, even while a graph is traced
        basis = _spline_basis(height, width)
    flow = tf.add_n([basis[point] * moves[:, point] for point in range(4)])
    return tf.cast(tf.round(flow * 256.0) / 256.0, tf.float32)


def _spline_basis(height: int, width: int) -> tf.Tensor:
    """How far each pixel follows a unit move of each of the four points.

    Returns:
      [4, height, width, 1] float64; -1 times the spline, for `flow` points
      from the source to the pixel.
    """
    points = [[height * i / 3, width * j / 3] for i in (1, 2) for j in (1, 2)]
    rows, columns = tf.meshgrid(
        tf.range(height, dtype=tf.float64),
        tf.range(width, dtype=tf.float64),
        indexing="ij",
    )
    pixels = tf.reshape(tf.stack([rows, columns], axis=-1), [1, -1, 2])
    basis = _tfa_image().interpolate_spline(
        tf.constant([points], tf.float64),
        -tf.eye(4, dtype=tf.float64)[tf.newaxis],
        pixels,
        order=2,
    )  # [1, H * W, 4]
    return tf.reshape(tf.transpose(basis[0]), [4, height, width, 1])


def _tfa_image() -> types.ModuleType:
    """TFA's image module, imported on first use: it takes seconds."""
    with warnings.catch_warnings():
        # Its notice on TFA's end of life: requirements.txt pins the release.
        warnings.simplefilter("ignore", UserWarning)
        return importlib.import_module("tensorflow_addons.image")
