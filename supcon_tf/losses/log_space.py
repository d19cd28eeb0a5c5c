"""Sums of exponentials by their logarithms, and means of logits."""

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


def log_sum_exp(logits: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """Returns log of the sums [A] of exp(logits) [A, M] in a mask, finite."""
    return tf.reduce_logsumexp(tf.where(mask, logits, LOG_ZERO), axis=1)


def zero_unless(is_defined: tf.Tensor, losses: tf.Tensor) -> tf.Tensor:
    """Returns losses, 0 where they do not exist.

    A NaN stays: with 0 in its place, a batch would have a finite loss whose
    gradient makes NaN of all weights.
    """
    return tf.where(is_defined | tf.math.is_nan(losses), losses, 0.0)


def weighted_mean(logits: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    """Returns weighted means [A] of logits [A, M]; 0 for a sum of weights 0.

    A logit of weight 0 may be any, also infinite.
    """
    logits = tf.where(weights > 0, logits, 0.0)
    return tf.math.divide_no_nan(
        tf.reduce_sum(weights * logits, axis=1), tf.reduce_sum(weights, axis=1)
    )
