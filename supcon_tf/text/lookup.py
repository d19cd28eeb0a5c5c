"""Lookup tables of both tokenizers in a graph."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy.typing as npt
import tensorflow as tf


def points() -> Iterator[int]:
    """All code points of Unicode except surrogates."""
    return itertools.chain(range(0xD800), range(0xE000, 0x110000))


def constant(values: npt.ArrayLike, dtype: tf.DType = tf.int32) -> tf.Variable:
    """Numbers that an export stores once, beside the weights."""
    with tf.device("CPU:0"):  # where strings are
        return tf.Variable(values, trainable=False, dtype=dtype)


def find(rising: tf.Variable, values: tf.Tensor) -> tf.Tensor:
    """Indices of values [N] in a sorted table, int32, -1 for absent values."""
    indices = tf.searchsorted(rising, values)
    indices = tf.minimum(indices, rising.shape[0] - 1)
    return tf.where(tf.gather(rising, indices) == values, indices, -1)
