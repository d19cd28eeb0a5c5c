"""Arguments of the losses: checks, and one canonical form of each."""

from __future__ import annotations

import inspect

import tensorflow as tf

from supcon_tf import distribute, exceptions, keras_2
from supcon_tf.keras_2 import keras

# More samples than a replica can hold: keeps their ids apart in int64.
_IDS_PER_REPLICA = 2**32


class Configured:
    """What keeps the arguments of its constructor as attributes."""

    def get_config(self) -> dict[str, object]:
        names = inspect.signature(type(self).__init__).parameters
        return {name: getattr(self, name) for name in names if name != "self"}


class Loss(Configured, keras.losses.Loss):
    """What all losses are: dataclasses with Keras' `reduction` and `name`."""

    def __post_init__(self) -> None:
        super().__init__(reduction=self.reduction, name=self.name)

    def __call__(
        self, y_true: object, y_pred: object, sample_weight: object = None
    ) -> tf.Tensor:
        """Keras' call.

        Raises:
          TypeError: Keras 3 calls it, as a function: it has made floats of the
            labels, and would leave out the weights of samples.
        """
        keras_2.refuse_caller(self, "keras.src.losses.")
        return super().__call__(y_true, y_pred, sample_weight)


def as_views(projections: tf.Tensor, name: str) -> tf.Tensor:
    """[batch, views, dim] float32 from that, or from [batch, dim]."""
    z = tf.convert_to_tensor(projections)
    exceptions.require(
        z.dtype.is_floating, f"`{name}` must be floats", z.dtype.name
    )
    if z.shape.rank == 2:
        z = z[:, tf.newaxis]
    exceptions.require(
        z.shape.rank == 3,
        f"`{name}` must be [batch, views, dim] (the view axis is second) or "
        "[batch, dim]",
        f"shape {z.shape}",
    )
    exceptions.require(
        None not in (z.shape[1], z.shape[2]),
        f"`{name}` must have static views and dim",
        f"shape {z.shape}",
    )
    return tf.cast(z, tf.float32)


def gather(cross_replica: bool, *tensors: tf.Tensor) -> list[tf.Tensor]:
    """Tensors [batch, ...] of all replicas, own rows first, or of this one."""
    if not cross_replica:
        return list(tensors)
    return distribute.gather_across_replicas(*tensors)


def as_contrasts(contrasts: tf.Tensor | None, z: tf.Tensor) -> tf.Tensor:
    """Further contrasts [contrasts, views', dim]; none of them for None."""
    if contrasts is None:
        return tf.zeros([0, *z.shape[1:]])
    contrasts = as_views(contrasts, "contrast_projections")
    exceptions.require(
        contrasts.shape[2] == z.shape[2],
        "`contrast_projections` must have the dim of `projections`",
        f"{contrasts.shape[2]} and {z.shape[2]}",
    )
    return contrasts


def as_queue_mask(mask: tf.Tensor, contrasts: tf.Tensor) -> tf.Tensor:
    """`contrast_mask` as [queued] bool, of the last contrasts."""
    mask = tf.convert_to_tensor(mask)
    exceptions.require(
        mask.shape.rank == 1 and mask.dtype.is_bool,
        "`contrast_mask` must be [queued] bool",
        f"{mask.dtype.name} of shape {mask.shape}",
    )
    queued, most = mask.shape[0], contrasts.shape[0]
    exceptions.require(
        None in (queued, most) or queued <= most,
        f"`contrast_mask` must be no longer than the {most} contrasts",
        queued,
    )
    return mask


def class_ids(labels: tf.Tensor, name: str = "labels") -> tf.Tensor:
    """Labels in any accepted form as [batch] int64 class identifiers.

    InvalidArgumentError if a row of rank 2 is not one-hot.
    """
    labels = tf.convert_to_tensor(labels)
    exceptions.require(
        labels.shape.rank in (1, 2),
        f"`{name}` must be [batch], [batch, 1] or one-hot [batch, classes]",
        f"shape {labels.shape}",
    )
    if labels.shape.rank == 2 and labels.shape[1] != 1:
        rows = tf.cast(labels, tf.float64)
        classes = tf.argmax(rows, axis=1)
        check = tf.debugging.assert_equal(
            rows,
            tf.one_hot(classes, tf.shape(rows)[1], dtype=tf.float64),
            f"`{name}` of rank 2 must be one-hot; several labels per sample "
            "and soft labels need `positives`",
        )
        with tf.control_dependencies([check]):
            return tf.identity(classes)
    exceptions.require(
        labels.dtype.is_integer or labels.dtype.is_bool,
        f"`{name}` must be integers",
        labels.dtype.name,
    )
    return tf.cast(tf.reshape(labels, [-1]), tf.int64)


def sample_ids(z: tf.Tensor) -> tf.Tensor:
    """A class for each sample of all replicas: [batch] int64 identifiers."""
    context = tf.distribute.get_replica_context()
    replica = context.replica_id_in_sync_group if context else 0
    first = tf.cast(replica, tf.int64) * _IDS_PER_REPLICA
    return first + tf.range(tf.shape(z, tf.int64)[0])


def class_numbers(ids: tf.Tensor) -> tf.Tensor:
    """Numbers the classes of identifiers [S] from 0: [S] int32.

    By sorting, which has static shapes: tf.unique does not compile by XLA.
    """
    order = tf.argsort(ids)
    ordered = tf.gather(ids, order)
    is_new = tf.cast(ordered[1:] != ordered[:-1], tf.int32)
    numbers = tf.concat([tf.zeros_like(order[:1]), tf.cumsum(is_new)], axis=0)
    return tf.scatter_nd(order[:, tf.newaxis], numbers, tf.shape(ids))


def check_shape(
    name: str, tensor: tf.Tensor, expected: list[int | None]
) -> None:
    """Raises ValueError unless the static shape can be the expected one."""
    exceptions.require(
        tensor.shape.is_compatible_with(expected),
        f"`{name}` must have shape {expected} to go with the projections",
        tensor.shape,
    )
