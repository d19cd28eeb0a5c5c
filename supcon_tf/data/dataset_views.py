"""Views of any tf.data dataset of images and labels, in its own order.

Letters in the shapes: B batch, V views, S side of a view, C channels.
"""

from __future__ import annotations

import tensorflow as tf

from supcon_tf import exceptions, pixels
from supcon_tf.augment import geometry, randomness
from supcon_tf.data import pipeline

_RULE = (
    "`dataset` must yield images that are uint8, or floats in 0..255 (multiply "
    "images in 0..1 by 255, undo any other normalisation)"
)

_OVERSHOOT = 64.0  # of bicubic resizing beyond 0..255


def views_of(
    dataset: tf.data.Dataset,
    image_size: int | None = None,
    num_views: int = 2,
    augmentation: pipeline.Augmentation = None,
    seed: int = 0,
    *,
    batch_size: int | None = None,
    crop_area: tuple[float, float] | None = geometry.CROP_AREA,
    crop_aspect: tuple[float, float] = geometry.CROP_ASPECT,
    horizontal_flip: bool = True,
) -> tf.data.Dataset:
    """Makes multiviewed batches of any dataset of (image, label).

    Each view is an independent random resized crop, flip and `augmentation` of
    its image, as of `make_views`. Order and length are those of the dataset,
    which shuffles, repeats or caches its images itself. Every iteration, and so
    every epoch of `fit`, has other views: cache images, not views.

    Args:
      dataset: of (image, label) or (image, label, sample weight), in batches or
        not, such as of `image_dataset_from_directory`. Images are [H, W, C]
        uint8, or float in 0..255, which are rounded. The images of a batch have
        one size.
      image_size: side S of the views in pixels; None takes that of the images,
        if all have one size.
      num_views: views per image.
      augmentation: as of `make_views`.
      seed: integer in 0..2^31-1; `tf.random.set_seed` changes the views too.
      batch_size: images per batch, for a dataset without batches; else None.
      crop_area: as of `make_views`.
      crop_aspect: as of `make_views`.
      horizontal_flip: mirror each view with probability 0.5.

    Example:
      >>> import supcon_tf
      >>> from supcon_tf import data
      >>> from supcon_tf.keras_2 import keras
      >>> photos = keras.utils.image_dataset_from_directory(
      ...     "photos/train", image_size=(32, 32), batch_size=16
      ... )
      Found 48 files belonging to 3 classes.
      >>> views = data.views_of(photos, augmentation="simaugment")
      >>> [tuple(part.shape) for part in views.element_spec]
      [(None, 2, 32, 32, 3), (None,)]

    Returns:
      A dataset of (views [B, V, S, S, C] uint8, labels [B, ...], ...).

    Raises:
      ValueError: an argument is out of range, the dataset is not as above, or
        `image_size` must be given.
      tf.errors.InvalidArgumentError: floats are of another range; raised while
        the dataset is read.
    """
    pipeline.check_at_least("num_views", num_views, 1)
    pipeline.check_at_least("seed", seed, 0)
    spec, has_batches = _image_spec(dataset, batch_size)
    size = _view_size(spec.shape, image_size)

    def crop(image: tf.Tensor, seeds: tf.Tensor) -> tf.Tensor:
        """Views [V, S, S, C] of an image, by seeds [V, 2]."""
        if crop_area is None:
            view = geometry.central_view(image, size)
            return tf.stack([view] * num_views)
        return geometry.random_resized_crop(
            image, seeds, size, crop_area, crop_aspect
        )

    def read(
        example: tuple[tf.Tensor, ...], number: tf.Tensor
    ) -> tuple[tf.Tensor, ...]:
        """Views and seeds of an example, or of a batch, by a random number."""
        images, *labels = example
        images = _to_uint8(images)
        seed = tf.bitcast(number, tf.int32)  # [2]
        if not has_batches:
            seeds = randomness.fold_in(seed, tf.range(num_views))  # [V, 2]
            return crop(images, pipeline.crop_seeds(seeds)), seeds, *labels
        seeds = randomness.fold_in(seed, tf.range(tf.shape(images)[0]))
        seeds = seeds[:, tf.newaxis]  # [B, 1, 2]
        seeds = randomness.fold_in(seeds, tf.range(num_views))  # [B, V, 2]
        views = tf.map_fn(
            lambda pair: crop(*pair),
            (images, pipeline.crop_seeds(seeds)),
            fn_output_signature=tf.TensorSpec(
                [num_views, size, size, spec.shape[-1]], tf.uint8
            ),
            parallel_iterations=1,
        )
        return views, seeds, *labels

    numbers = tf.data.Dataset.random(seed, rerandomize_each_iteration=True)
    views = tf.data.Dataset.zip((dataset, numbers)).map(
        read, num_parallel_calls=tf.data.AUTOTUNE
    )
    if not has_batches:
        views = views.batch(batch_size)
    augment = pipeline.augmenter(horizontal_flip, augmentation)
    return (
        views.map(augment, num_parallel_calls=tf.data.AUTOTUNE)
        .prefetch(tf.data.AUTOTUNE)
        .with_options(pipeline.options())
    )


def _image_spec(
    dataset: tf.data.Dataset, batch_size: int | None
) -> tuple[tf.TensorSpec, bool]:
    """The spec of the images of a dataset, and whether they are in batches.

    Raises:
      ValueError: there are no images, or `batch_size` does not fit.
    """
    exceptions.require(
        isinstance(dataset, tf.data.Dataset),
        "`dataset` must be a tf.data.Dataset; data.from_arrays takes arrays",
        type(dataset).__name__,
    )
    spec = dataset.element_spec
    is_pair = isinstance(spec, tuple) and len(spec) in (2, 3)
    image = spec[0] if is_pair else None
    exceptions.require(
        isinstance(image, tf.TensorSpec)
        and image.shape.rank in (3, 4)
        and image.shape[-1] is not None
        and (image.dtype == tf.uint8 or image.dtype.is_floating),
        "`dataset` must yield (image, label), of images [height, width, "
        "channels] or batches of them, uint8 or floats in 0..255",
        spec,
    )
    has_batches = image.shape.rank == 4
    exceptions.require(
        has_batches == (batch_size is None),
        "`batch_size` must be given for a dataset without batches, and for no "
        "other one",
        f"{batch_size} for images {image.shape}",
    )
    if batch_size is not None:
        pipeline.check_at_least("batch_size", batch_size, 1)
    return image, has_batches


def _view_size(shape: tf.TensorShape, image_size: int | None) -> int:
    """The side of views of images [..., H, W, C]."""
    height, width, _ = shape[-3:]
    size = height if image_size is None and height == width else image_size
    exceptions.require(
        size is not None and size >= 1,
        "`image_size` must be given in pixels (224, say), for the images have "
        "no common square size that is known",
        image_size,
    )
    return size


def _to_uint8(images: tf.Tensor) -> tf.Tensor:
    """Images as uint8; values that are not in 0..255 are an error."""
    if images.dtype == tf.uint8:
        return images
    low, high, are_wrong = pixels.value_range(images)
    # Resizing may overshoot.
    is_inside = (low >= -_OVERSHOOT) & (high <= 255 + _OVERSHOOT)
    check = tf.debugging.Assert(
        ~are_wrong & is_inside, [f"{_RULE}, got", low, "to", high]
    )
    with tf.control_dependencies([check]):
        values = tf.round(tf.cast(images, tf.float32))
        return tf.saturate_cast(values, tf.uint8)
