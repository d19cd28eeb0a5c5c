"""Rules for AutoGraph: it rewrites functions of users, and none of ours.

AutoGraph makes `if`, `for` and `while` on tensors work in a graph. Our
functions have `tf.cond` and TensorFlow's loops already, and to rewrite every
function of a first step would take twice as long as to trace it.
"""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf
from tensorflow.python.autograph.core import config

# TensorFlow's list of packages as they are, Keras among them: without a public
# name, as are the two functions below, which Keras calls for its layers.
config.CONVERSION_RULES = (
    config.DoNotConvert("supcon_tf"),
    *config.CONVERSION_RULES,
)


def rewritten(function: Callable) -> Callable:
    """A user's function, rewritten by AutoGraph, for calls from our code."""
    autograph = tf.__internal__.autograph
    return autograph.tf_convert(function, autograph.control_status_ctx())
