"""Crops, resizes and flips.

An image is [height, width, channels] uint8 or float32, of 1 to 16 channels and
any size from 1 x 1; a view is [size, size, channels] of its type, of uint8
rounded to nearest. A seed is [2] int32 for one view, or [views, 2] for several,
`views` static: then the result is [views, size, size, channels]. `area` is the
smallest and the largest share of the image's area, 0.2 to 1 on CIFAR, `aspect`
the smallest and the largest width / height of a box. Other arguments are a
ValueError.
"""

from __future__ import annotations

import functools

import numpy as np
import tensorflow as tf

from supcon_tf import exceptions
from supcon_tf.augment import dispatch, randomness
from supcon_tf.defaults import MOST_CHANNELS

CENTRAL_FRACTION = 0.875  # of the short side kept in evaluation: 224 of 256
_ATTEMPTS = 100  # to draw a box before falling back to the central square
# The paper's on ImageNet. Of this area google-research's code never draws a box
# below 0.1; of all others, the range alone decides.
CROP_AREA, CROP_ASPECT = (0.08, 1.0), (3 / 4, 4 / 3)
_STRIP = 56  # rows of a central view that are resized by one operation


def crop_box(
    image_shape: tf.Tensor,
    seed: tf.Tensor,
    area: tuple[float, float] = CROP_AREA,
    aspect: tuple[float, float] = CROP_ASPECT,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
    """Draws the box of a random resized crop.

    If no box fits in 100 attempts, or the draw is the whole image, the box is
    the central square of the short side.

    Args:
      image_shape: [3] int32, height, width and channels in pixels.
      seed: [2] int32; of several seeds [views, 2] the first is used.
      area: range of the share of the image's area.
      aspect: range of width / height.

    Example:
      >>> from supcon_tf import augment
      >>> box = augment.crop_box([32, 128, 3], [0, 1], area=(1.0, 1.0))
      >>> [int(number) for number in box]  # none fits: the central square
      [0, 48, 32, 32]

    Returns:
      y, x, height, width, scalars int32: pixels inside the image.
    """
    begins, extents = crop_boxes(image_shape, seed, area, aspect)
    y, x, _ = tf.unstack(begins[0])
    height, width, _ = tf.unstack(extents[0])
    return y, x, height, width


def resize_crop(crop: tf.Tensor, size: int) -> tf.Tensor:
    """Resizes a crop to a square, bilinear.

    Antialiasing takes four to eight times as long as the plain resize and
    changes little where no pixel is skipped, so it is done only if the crop
    shrinks by more than a factor of 2.

    Example:
      >>> import numpy as np
      >>> from supcon_tf import augment
      >>> crop = np.array([0, 100], np.uint8).reshape(1, 2, 1)
      >>> augment.resize_crop(crop, size=4)[0, :, 0].numpy().tolist()
      [0, 25, 75, 100]
    """
    crop = _check_image(crop, size, "crop")
    return tf.cond(
        tf.reduce_max(tf.shape(crop)[:2]) > 2 * size,
        lambda: _resize(crop, size, antialias=True),
        lambda: _resize(crop, size, antialias=False),
    )


def random_resized_crop(
    image: tf.Tensor,
    seed: tf.Tensor,
    size: int,
    area: tuple[float, float] = CROP_AREA,
    aspect: tuple[float, float] = CROP_ASPECT,
) -> tf.Tensor:
    """Cuts out a random box, or one per seed, and resizes it to a square.

    Example:
      >>> import numpy as np
      >>> from supcon_tf import augment
      >>> image = np.zeros([480, 640, 3], np.uint8)
      >>> views = augment.random_resized_crop(image, [[0, 1], [0, 2]], size=224)
      >>> tuple(views.shape)
      (2, 224, 224, 3)
    """
    image = _check_image(image, size, "image")
    seed = check_seed(seed)
    begins, extents = crop_boxes(tf.shape(image), seed, area, aspect)
    return cut_views(image, seed, begins, extents, size)


def random_flip(images: tf.Tensor, seeds: tf.Tensor) -> tf.Tensor:
    """Mirrors images [batch, ...] left to right with probability 0.5.

    Each image has its own of the seeds [batch, 2] int32.

    Example:
      >>> import numpy as np
      >>> from supcon_tf import augment
      >>> images = np.array([1, 2] * 4, np.uint8).reshape(4, 1, 2, 1)
      >>> seeds = augment.fold_in([0, 0], range(4))
      >>> augment.random_flip(images, seeds).numpy().reshape(4, 2).tolist()
      [[2, 1], [2, 1], [1, 2], [2, 1]]
    """

    def mirror(images: tf.Tensor) -> tf.Tensor:
        # Rank 3 for the kernel that moves a pixel at once: 5 times as fast.
        rows = tf.reshape(images, [-1, *images.shape[2:]])  # [B * H, W, 3]
        return tf.reshape(tf.reverse(rows, [1]), [-1, *images.shape[1:]])

    images = dispatch.check_images(images)
    draws = randomness.uniform(seeds, 1, randomness.Stream.FLIP)[:, 0]
    choice = tf.cast(draws < 0.5, tf.int32)
    return dispatch.dispatch(choice, (dispatch.keep, mirror), images)


def central_view(image: tf.Tensor, size: int) -> tf.Tensor:
    """The one view of evaluation and of serving: resize, then central crop.

    The short side becomes round(size / 0.875), 256 for 224, by an antialiased
    bilinear resize, and the central square of `size` is kept. Only the central
    square of the image is resized: the rest would be cut off anyway, and a
    panorama would not fit in memory. An image of `size` x `size` is returned
    as it is.

    Example:
      >>> import numpy as np
      >>> from supcon_tf import augment
      >>> image = np.zeros([48, 64, 3], np.uint8)
      >>> image[:, 8:56] = 255  # the central square
      >>> view = augment.central_view(image, size=32)
      >>> tuple(view.shape), int(view.numpy().min())
      ((32, 32, 3), 255)
    """
    image = _check_image(image, size, "image")
    if not image.shape[:2].is_compatible_with([size, size]):
        return _resize_then_crop(image, size)
    if image.shape[:2].is_fully_defined():
        return image
    return tf.cond(
        tf.reduce_all(tf.shape(image)[:2] == size),
        # Not ensure_shape: Grappler's constant folding would take its shape for
        # that of `image` in both branches, and run the wrong branch.
        lambda: tf.reshape(image, [size, size, image.shape[2]]),
        lambda: _resize_then_crop(image, size),
    )


def _check_image(image: tf.Tensor, size: int, name: str) -> tf.Tensor:
    """The image as a tensor; ValueError for another shape, dtype or size."""
    image = tf.convert_to_tensor(image)
    shape = image.shape
    if shape.is_compatible_with([None, None, 3]):
        image.set_shape([None, None, 3])  # decoders leave the rank unknown
    exceptions.require(
        image.dtype in (tf.uint8, tf.float32)
        and image.shape.rank == 3
        and 1 <= image.shape[2] <= MOST_CHANNELS,
        f"`{name}` must be [height, width, channels] uint8 or float32, of 1 to "
        f"{MOST_CHANNELS} channels",
        f"{shape} {image.dtype.name}",
    )
    check_size(size)
    return image


def check_size(size: int) -> None:
    """Raises ValueError for a side below 1 pixel."""
    exceptions.require(size >= 1, "`size` must be at least 1 pixel", size)


def check_seed(seed: tf.Tensor) -> tf.Tensor:
    """The seed as a tensor; ValueError unless [2] or [views, 2] int32."""
    seed = tf.convert_to_tensor(seed)
    shape = seed.shape
    is_valid = shape == [2] or (shape.rank == 2 and shape[0] and shape[1] == 2)
    exceptions.require(
        seed.dtype == tf.int32 and is_valid,
        "`seed` must be [2] or [views, 2] int32 with at least one view",
        f"{shape} {seed.dtype.name}",
    )
    return seed


def crop_boxes(
    image_shape: tf.Tensor,
    seed: tf.Tensor,
    area: tuple[float, float],
    aspect: tuple[float, float],
) -> tuple[tf.Tensor, tf.Tensor]:
    """A box per seed, as begins and sizes of `tf.slice`, [views, 3] int32.

    Begins are y, x, 0; sizes are height, width, -1 for all channels.
    """
    exceptions.require(
        _is_range(area) and area[1] <= 1.0,
        "`area` must be 0 < low <= high <= 1",
        area,
    )
    exceptions.require(
        _is_range(aspect), "`aspect` must be 0 < low <= high", aspect
    )
    draws = [
        tf.image.stateless_sample_distorted_bounding_box(
            image_shape,
            tf.constant([[[0.0, 0.0, 1.0, 1.0]]]),
            view_seed,
            min_object_covered=0.1 if tuple(area) == CROP_AREA else 0.0,
            aspect_ratio_range=aspect,
            area_range=area,
            max_attempts=_ATTEMPTS,
        )
        for view_seed in tf.unstack(tf.reshape(seed, [-1, 2]))
    ]
    begins, extents, _ = zip(*draws, strict=True)
    begins, extents = tf.stack(begins), tf.stack(extents)
    height, width, _ = tf.unstack(image_shape)
    side = tf.minimum(height, width)
    is_whole = tf.reduce_all(
        extents[:, :2] == image_shape[:2], axis=1, keepdims=True
    )
    central = tf.stack([(height - side) // 2, (width - side) // 2, 0])
    begins = tf.where(is_whole, central, begins)
    return begins, tf.where(is_whole, tf.stack([side, side, -1]), extents)


def _is_range(numbers: tuple[float, float]) -> bool:
    """Whether these are two rising numbers above 0."""
    return np.shape(numbers) == (2,) and 0.0 < numbers[0] <= numbers[1]


def cut_views(
    image: tf.Tensor,
    seed: tf.Tensor,
    begins: tf.Tensor,
    extents: tf.Tensor,
    size: int,
) -> tf.Tensor:
    """Cuts out the boxes and resizes them: a view, or one for each seed."""
    sides = image.shape[:2]
    is_small = sides.is_fully_defined() and max(sides) <= 2 * size
    # Small images need no tf.cond of `resize_crop`, a fifth of the time at
    # 32 px.
    resize = (
        functools.partial(_resize, antialias=False) if is_small else resize_crop
    )
    views = []
    for box in zip(tf.unstack(begins), tf.unstack(extents), strict=True):
        crop = tf.slice(image, *box)
        crop.set_shape([None, None, image.shape[2]])
        views.append(resize(crop, size=size))
    return tf.stack(views) if seed.shape.rank == 2 else views[0]


def _resize(image: tf.Tensor, size: int, *, antialias: bool) -> tf.Tensor:
    """Bilinear resize to [size, size, channels]; of uint8, to nearest."""
    if antialias:
        resized = tf.image.resize(image, [size, size], antialias=True)
    else:
        # Equals tf.image.resize, in fewer operations.
        resized = tf.raw_ops.ResizeBilinear(
            images=image[tf.newaxis], size=[size, size], half_pixel_centers=True
        )
    resized = _round_to(resized, image.dtype)
    return tf.reshape(resized, [size, size, image.shape[2]])


def _round_to(pixels: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """Resized pixels in the type of the image; uint8 is rounded to nearest."""
    if dtype == tf.uint8:
        # Between 0 and 255 after rounding: neither filter overshoots.
        return tf.cast(tf.round(pixels), tf.uint8)
    return pixels


def _resize_then_crop(image: tf.Tensor, size: int) -> tf.Tensor:
    """The centre of the central square, resized to size / 0.875.

    Only the centre is computed, in strips of rows that cores can share: beside
    the network, a lone request waits mostly for the resize.
    """
    shape = tf.shape(image)[:2]
    side = tf.reduce_min(shape)
    y, x = tf.unstack((shape - side) // 2)
    square = image[tf.newaxis, y : y + side, x : x + side]
    resized_side = round(size / CENTRAL_FRACTION)
    margin = (resized_side - size) // 2
    scale = tf.cast(resized_side, tf.float32) / tf.cast(side, tf.float32)
    strips = [
        # The operation of tf.image.resize, moved up and left.
        tf.raw_ops.ScaleAndTranslate(
            images=square,
            size=[min(_STRIP, size - row), size],
            scale=[scale, scale],
            translation=[-float(margin + row), -float(margin)],
            kernel_type="triangle",
            antialias=True,
        )
        for row in range(0, size, _STRIP)
    ]
    view = _round_to(tf.concat(strips, axis=1), image.dtype)
    return tf.reshape(view, [size, size, image.shape[2]])
