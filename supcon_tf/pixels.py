"""Images in 0..1, or normalised, where encoders take 0..255: refused.

An encoder makes nearly the same representation of all such images, and the
loss stays at chance: nothing else would tell. uint8 is never looked at.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping

import numpy as np
import tensorflow as tf

from supcon_tf import exceptions

# No normalisation by mean and deviation goes much further; where the values of
# 0..255 stay below it, with some below zero, the image is black.
_LARGEST_NORMALISED = 8.0
# Of an array, the first images tell: a file of hundreds of gigabytes may be
# behind it.
_FIRST = 1000
# A call in a graph may be a step of a long training, whose last batch may be a
# single black frame: of fewer images than these no step is ended.
_FEWEST_IN_GRAPH = 4
_RULE = (
    "`images` must be uint8, or floats in 0..255 (multiply images in 0..1 by "
    "255, undo any other normalisation, round images that are nearly black)"
)
_LOCAL = threading.local()  # replicas are traced in threads of their own


@contextlib.contextmanager
def trusted() -> Iterator[None]:
    """Lets encoders that are called meanwhile take any images.

    For those of a source, which are in 0..255 by their making: the last slices
    of a scan may all be black.
    """
    before = getattr(_LOCAL, "is_trusted", False)
    _LOCAL.is_trusted = True
    try:
        yield
    finally:
        _LOCAL.is_trusted = before


def are_scaled(
    low: tf.Tensor, high: tf.Tensor, has_fractions: tf.Tensor
) -> tf.Tensor:
    """Whether images of 0..255 have been brought to 0..1, -1..1 or the like.

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
    """Passes images [batch, ...] on, which an encoder was called with.

    Raises:
      ValueError: they are floats of another range than 0..255; in a graph
        tf.errors.InvalidArgumentError, of at least 4 images. XLA and TPUs have
        no such error, and check nothing.
    """
    images = tf.convert_to_tensor(images)
    if not images.dtype.is_floating or getattr(_LOCAL, "is_trusted", False):
        return images
    low, high, are_wrong = _judged(images)
    if tf.executing_eagerly():
        _require(not are_wrong, low, high)
        return images
    enough = tf.shape(images)[0] >= _FEWEST_IN_GRAPH
    return _asserted(images, ~(are_wrong & enough), low, high)


def checked(data: object) -> object:
    """What `fit`, `evaluate` or `predict` is given, with its images checked.

    Arrays are checked here, by their first images. The batches of a dataset
    are checked as they are read, until one of them is right: outside of the
    step, which XLA may compile or a TPU run. Anything else is for `check`.

    Raises:
      ValueError: an array is of another range than 0..255. Of a dataset it is
        tf.errors.InvalidArgumentError, once it is read.
    """
    if isinstance(data, tf.data.Dataset):
        images = _images(data.element_spec)
        return data if images is None else data.scan(False, _until_right)
    images = _images(data)
    if images is not None and isinstance(images, np.ndarray | tf.Tensor):
        _check_array(np.asarray(images[:_FIRST]))
    return data


def _images(data: object) -> object:
    """The images in what Keras is given, if they are floats; else None."""
    while isinstance(data, list | tuple | Mapping):
        values = [*data.values()] if isinstance(data, Mapping) else data
        if not len(values):
            return None
        data = values[0]
    if "float" not in str(getattr(data, "dtype", None)):
        return None
    rank = tf.TensorShape(data.shape).rank
    return data if rank is not None and rank >= 4 else None


def _check_array(images: np.ndarray) -> None:
    if not images.size:
        return
    low, high = images.min(), images.max()
    if are_scaled(low, high, True):  # few are, and fractions take memory
        fractions = bool((images != np.round(images)).any())
        _require(not fractions, low, high)


def _require(holds: bool, low: float, high: float) -> None:
    exceptions.require(holds, _RULE, f"{float(low):g} to {float(high):g}")


def _judged(images: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Least and largest value, and whether the images are of another range."""
    x = tf.cast(images, tf.float32)
    low, high = tf.reduce_min(x), tf.reduce_max(x)
    has_fractions = tf.reduce_any(x != tf.round(x))
    return low, high, are_scaled(low, high, has_fractions)


def _asserted(
    value: object, holds: tf.Tensor, low: tf.Tensor, high: tf.Tensor
) -> object:
    """Passes tensors on, if a condition holds."""
    # Numbers as they are: XLA has no operation that makes text of them.
    check = tf.raw_ops.Assert(
        condition=holds, data=[f"{_RULE}, got", low, "to", high]
    )
    with tf.control_dependencies([check]):
        return tf.nest.map_structure(tf.identity, value)


def _until_right(
    was_right: tf.Tensor, batch: object
) -> tuple[tf.Tensor, object]:
    """A step of `Dataset.scan`: a black batch may come after others."""
    low, high, are_wrong = _judged(_images(batch))
    batch = _asserted(batch, was_right | ~are_wrong, low, high)
    return was_right | (high > _LARGEST_NORMALISED), batch
