"""Sums of exponentials by their logarithms."""

from __future__ import annotations

import tensorflow as tf

# Stands for log(0): finite, so that no gradient is 0 * inf and the sum of two
# is no overflow; and far below every logit, so that exp(x - max) is exactly 0
# beside a real one.
LOG_ZERO = -1e30


def log_add_exp(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    """log(exp(x) + exp(y)), exact also beside `LOG_ZERO`."""
    largest = tf.stop_gradient(tf.maximum(x, y))
    return largest + tf.math.log(tf.exp(x - largest) + tf.exp(y - largest))
