"""Checks that images are in 0..255, not in 0..1 or normalised.

An encoder gives nearly the same representation to all images in 0..1, and the
loss stays at chance, without another symptom. Integers beyond 0..255, as of 16
bits, are refused too. uint8 images are not checked.
"""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Iterator, Mapping

import numpy as np
import tensorflow as tf

from supcon_tf import exceptions

# The largest value of a normalisation by mean and deviation. Images in 0..255
# whose values stay below it are black.
_LARGEST_NORMALISED = 8.0
# The first images of an array are checked: it may be a file of hundreds of
# gigabytes.
_NUM_CHECKED = 1000
# In a graph, smaller batches are not checked: the last batch of a long training
# may be a single black frame.
_MIN_GRAPH_BATCH = 4
_RULE = (
    "`images` must be uint8, or floats in 0..255 (multiply images in 0..1 by "
    "255, divide integers of 16 bits by 257, undo any other normalisation, "
    "round images that are nearly black)"
)
_LOCAL = threading.local()  # each replica is traced in a thread


@contextlib.contextmanager
def trusted() -> Iterator[None]:
    """Turns the check off in a block, for images of a source.

    They are in 0..255 by construction, and the last slices of a scan may all be
    black.
    """
    earlier = getattr(_LOCAL, "is_trusted", False)
    _LOCAL.is_trusted = True
    try:
        yield
    finally:
        _LOCAL.is_trusted = earlier


def are_scaled(
    low: tf.Tensor, high: tf.Tensor, has_fractions: tf.Tensor
) -> tf.Tensor:
    """Whether images were scaled from 0..255 to 0..1, -1..1 or the like.

    A black frame of a file has values in 0..1 too, but whole numbers.

    Args:
      low: [] least value, float.
      high: [] largest value, float.
      has_fractions: [] bool, whether any value is no whole number.

    Returns:
      [] bool, False for NaN.
    """
    is_unit = (low >= 0) & (high <= 1)
    is_normalised = (
        (low < 0)
        & (low >= -_LARGEST_NORMALISED)
        & (high <= _LARGEST_NORMALISED)
    )
    return has_fractions & (is_unit | is_normalised)


def check(images: tf.Tensor) -> tf.Tensor:
    """Returns the images [batch, ...] of an encoder's call, checked.

    Raises:
      ValueError: they are of another range than 0..255. In a graph it is
        tf.errors.InvalidArgumentError, for at least 4 images. XLA and TPUs have
        no such error, and check nothing.
    """
    images = tf.convert_to_tensor(images)
    if images.dtype == tf.uint8 or getattr(_LOCAL, "is_trusted", False):
        return images
    low, high, are_wrong = value_range(images)
    if tf.executing_eagerly():
        _require(not are_wrong, low, high)
        return images
    enough = tf.shape(images)[0] >= _MIN_GRAPH_BATCH
    return _assert_range(images, ~(are_wrong & enough), low, high)


def checked(data: object) -> object:
    """The data of `fit`, `evaluate` or `predict`, with its images checked.

    Arrays are checked here, by their first images. Batches of a dataset are
    checked as they are read, until one of them is right: outside of the step,
    which XLA may compile or a TPU run. `check` is for other data.

    Raises:
      ValueError: an array is of another range than 0..255. For a dataset it is
        tf.errors.InvalidArgumentError, once it is read.
    """
    if isinstance(data, tf.data.Dataset):
        images = _images(data.element_spec)
        return data if images is None else data.scan(False, _check_batch)
    images = _images(data)
    if images is not None and isinstance(images, np.ndarray | tf.Tensor):
        _check_array(np.asarray(images[:_NUM_CHECKED]))
    return data


def _images(data: object) -> object:
    """The images in data for Keras, if they are to be checked; else None."""
    while isinstance(data, list | tuple | Mapping):
        values = [*data.values()] if isinstance(data, Mapping) else data
        if not len(values):
            return None
        data = values[0]
    dtype = str(getattr(data, "dtype", None))
    if "uint8" in dtype or not re.search("float|int|bool", dtype):
        return None
    rank = tf.TensorShape(data.shape).rank
    return data if rank is not None and rank >= 4 else None


def _check_array(images: np.ndarray) -> None:
    if not images.size:
        return
    low, high = images.min(), images.max()
    dtype = tf.as_dtype(images.dtype)
    if not dtype.is_floating:
        _require(not _are_beyond(low, high, dtype), low, high)
    elif are_scaled(low, high, True):  # first, as fractions take memory
        fractions = bool((images != np.round(images)).any())
        _require(not fractions, low, high)


def _require(holds: bool, low: float, high: float) -> None:
    exceptions.require(holds, _RULE, f"{float(low):g} to {float(high):g}")


def _are_beyond(low: object, high: object, dtype: tf.DType) -> object:
    """Whether integers are no bytes, by their least and largest value."""
    return (low < 0) | (high > 255) | (dtype == tf.bool)


def value_range(images: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Least and largest value, and whether the images are of a wrong range.

    Floats that were scaled and integers beyond 0..255 are of a wrong range.
    """
    values = tf.cast(images, tf.float32)
    low, high = tf.reduce_min(values), tf.reduce_max(values)
    if not images.dtype.is_floating:
        return low, high, _are_beyond(low, high, images.dtype)
    has_fractions = tf.reduce_any(values != tf.round(values))
    return low, high, are_scaled(low, high, has_fractions)


def _assert_range(
    value: object, holds: tf.Tensor, low: tf.Tensor, high: tf.Tensor
) -> object:
    """Returns tensors, if a condition holds."""
    # Numbers, not a text: XLA cannot convert them.
    check = tf.raw_ops.Assert(
        condition=holds, data=[f"{_RULE}, got", low, "to", high]
    )
    with tf.control_dependencies([check]):
        return tf.nest.map_structure(tf.identity, value)


def _check_batch(
    was_right: tf.Tensor, batch: object
) -> tuple[tf.Tensor, object]:
    """A step of `Dataset.scan`: a black batch may come after others."""
    low, high, are_wrong = value_range(_images(batch))
    batch = _assert_range(batch, was_right | ~are_wrong, low, high)
    return was_right | (high > _LARGEST_NORMALISED), batch
