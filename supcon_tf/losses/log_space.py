"""Sums of exponentials by their logarithms."""

from __future__ import annotations

import tensorflow as tf

# Stands for log(0): finite, so that no gradient is 0 * inf and the sum of two
# is no overflow; and far below every logit, so that exp(x - max) is exactly 0
# beside a real one.
LOG_ZERO = -1e30


def log_add_exp(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    """log(exp(x) + exp(y)), exact also beside `LOG_ZERO`."""
    return tf.maximum(x, y) + tf.math.log1p(tf.exp(-tf.abs(x - y)))
