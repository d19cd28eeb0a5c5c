"""What both tokenizers in a graph look things up in."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy.typing as npt
import tensorflow as tf


def points() -> Iterator[int]:
    """All of Unicode's code points, but for surrogates."""
    return itertools.chain(range(0xD800), range(0xE000, 0x110000))


def constant(values: npt.ArrayLike, dtype: tf.DType = tf.int32) -> tf.Variable:
    """Numbers that lie in the export once, beside the weights."""
    with tf.device("CPU:0"):  # where strings are
        return tf.Variable(values, trainable=False, dtype=dtype)


def find(rising: tf.Variable, values: tf.Tensor) -> tf.Tensor:
    """Places of values [N] among rising ones, int32, -1 where they are not."""
    places = tf.searchsorted(rising, values)
    places = tf.minimum(places, rising.shape[0] - 1)
    return tf.where(tf.gather(rising, places) == values, places, -1)
