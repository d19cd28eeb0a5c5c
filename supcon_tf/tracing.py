"""What AutoGraph rewrites: the functions of users, and none of ours.

AutoGraph makes `if`, `for` and `while` on tensors work in a graph. Here they
are `tf.cond` and loops of TensorFlow already, and to rewrite every function
that a first step meets took twice as long as to trace it.
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
    """A function of a user, to be called by ours: layers and losses are so."""
    autograph = tf.__internal__.autograph
    return autograph.tf_convert(function, autograph.control_status_ctx())
