"""Lookup tables of both tokenizers in a graph."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import tensorflow as tf


def points() -> Iterator[int]:
    """Returns all code points of Unicode except surrogates."""
    return itertools.chain(range(0xD800), range(0xE000, 0x110000))


def constant(values: npt.ArrayLike, dtype: tf.DType = tf.int32) -> tf.Variable:
    """Returns numbers that an export stores once, beside the weights."""
    with tf.device("CPU:0"):  # where strings are
        array = np.asarray(values, dtype.as_numpy_dtype)  # faster than a list
        return tf.Variable(array, trainable=False)


def find(table: tf.Variable, values: tf.Tensor) -> tf.Tensor:
    """Returns indices [N] of values in a sorted table, -1 for absent values."""
    indices = tf.searchsorted(table, values)
    indices = tf.minimum(indices, table.shape[0] - 1)
    return tf.where(tf.gather(table, indices) == values, indices, -1)
