"""The view axis: folded into the batch, and unfolded again.

Folded, all views of all samples share one pass of the encoder and its BN.
Letters in the shapes: B batch, V views.
"""

from __future__ import annotations

import tensorflow as tf

from supcon_tf import exceptions


def check_views(shape: tf.TensorShape) -> list[int | None]:
    """The static shape, if it can be one of views."""
    shape = tf.TensorShape(shape)
    exceptions.require(
        shape.rank == 5,
        "`views` must be [batch, views, height, width, 3]",
        f"shape {shape}",
    )
    return shape.as_list()


def fold_views(views: tf.Tensor) -> tf.Tensor:
    """[B, V, height, width, 3] as [B * V, height, width, 3], any dtype."""
    static = check_views(views.shape)
    shape = tf.concat([[-1], tf.shape(views)[2:]], axis=0)
    return tf.ensure_shape(tf.reshape(views, shape), [None, *static[2:]])


def unfold_views(rows: tf.Tensor, views: tf.Tensor) -> tf.Tensor:
    """[B * V, dim] as [B, V, dim], where `views` [B, V, ...] were folded.

    `dim` must be static; `V` is static where it is in `views`.
    """
    batch, num_views = tf.unstack(tf.shape(views)[:2])
    num_views = views.shape[1] or num_views
    return tf.reshape(rows, [batch, num_views, rows.shape[-1]])
