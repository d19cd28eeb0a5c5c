"""Sums of exponentials by their logarithms."""

from __future__ import annotations

import tensorflow as tf

# Stands for log(0): finite, so that no gradient is 0 * inf and the sum of two
# is no overflow; and far below every logit, so that exp(x - max) is exactly 0
# beside a real one.
LOG_ZERO = -1e30


def log_add_exp(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    """log(exp(x) + exp(y)), exact also beside `LOG_ZERO`, as is its gradient.

    Not by tf.maximum, whose gradient at x = y is all of x.
    """
    is_first = x >= y
    larger, smaller = tf.where(is_first, x, y), tf.where(is_first, y, x)
    return larger + tf.math.log1p(tf.exp(smaller - larger))
