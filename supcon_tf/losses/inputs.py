"""Arguments of the losses: checks, and one canonical form of each."""

from __future__ import annotations

import contextvars
import functools
import inspect
import numbers
from collections.abc import Callable, Sequence

import tensorflow as tf

from supcon_tf import distribute, exceptions, keras_2
from supcon_tf.keras_2 import keras

# Floor of the squared norm: the gradient of x / |x| at 0 is then at most 1e4,
# which float16 still holds.
_NORM_EPSILON = 1e-8
# A replica holds fewer samples, so that the ids of two replicas differ.
_IDS_PER_REPLICA = 2**32
# What `checked` has checked inside of `nan_if_broken`, [] bool each.
_CHECKS: contextvars.ContextVar[list[tf.Tensor] | None] = (
    contextvars.ContextVar("checks", default=None)
)


class Configured:
    """An object that keeps the arguments of its constructor as attributes."""

    def get_config(self) -> dict[str, object]:
        names = inspect.signature(type(self).__init__).parameters
        return {name: getattr(self, name) for name in names if name != "self"}

    @classmethod
    def from_config(cls, config: dict[str, object]) -> Configured:
        """Builds an object from the arguments of its constructor."""
        return cls(**config)


class Loss(Configured, keras.losses.Loss):
    """The base of all losses, dataclasses with `reduction` and `name`."""

    # The argument that is an object of Keras, such as a layer.
    _PART: str | None = None

    def __post_init__(self) -> None:
        super().__init__(reduction=self.reduction, name=self.name)

    def get_config(self) -> dict[str, object]:
        config = super().get_config()
        if part := config.get(self._PART):
            config[self._PART] = keras.saving.serialize_keras_object(part)
        return config

    @classmethod
    def from_config(cls, config: dict[str, object]) -> Loss:
        """Rebuilds the loss; an empty queue or a layer of centres is new."""
        if part := config.get(cls._PART):
            part = keras.saving.deserialize_keras_object(part)
            config = config | {cls._PART: part}
        return cls(**config)

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


def require_positive(**values: float) -> None:
    """Raises ValueError unless arguments, by their names, are positive."""
    for name, number in values.items():
        _require_number(name, number)
        exceptions.require(number > 0, f"`{name}` must be positive", number)


def require_at_least_0(**values: float) -> None:
    """Raises ValueError if an argument, by its name, is negative."""
    for name, number in values.items():
        _require_number(name, number)
        exceptions.require(number >= 0, f"`{name}` must be at least 0", number)


def _require_number(name: str, value: float) -> None:
    """Raises ValueError unless an argument is a number of Python or NumPy.

    A variable works eagerly alone: gradients and traces need its number.
    """
    exceptions.require(
        isinstance(value, numbers.Real),
        f"`{name}` must be a number, such as float(value), and for other "
        "numbers later another loss, with a new `compile`",
        repr(value),
    )


def require_integers(**values: Sequence[int]) -> None:
    """Raises ValueError unless arguments, by name, are sequences of them."""
    for name, value in values.items():
        is_sequence = isinstance(value, Sequence) or hasattr(value, "tolist")
        exceptions.require(
            is_sequence
            and all(isinstance(item, numbers.Integral) for item in value),
            f"`{name}` must be a sequence of integers, such as [3]",
            repr(value),
        )


def checked(tensor: tf.Tensor, holds: tf.Tensor, rule: str) -> tf.Tensor:
    """Returns a tensor, with InvalidArgumentError unless all of `holds` is.

    XLA leaves the check out: see `nan_if_broken`.
    """
    holds = tf.reduce_all(holds)
    check = tf.debugging.Assert(holds, [rule])
    checks = _CHECKS.get()
    if checks is not None:
        checks.append(holds)
    with tf.control_dependencies([check]):
        return tf.identity(tensor)


def nan_if_broken(
    compute: Callable[..., tf.Tensor],
) -> Callable[..., tf.Tensor]:
    """Decorates a loss: its values are NaN where an argument breaks a rule.

    Under XLA, which has no errors, a training stops at the NaN. The factor of
    all others is 1, which changes no bit.
    """

    @functools.wraps(compute)
    def call(*arguments: object, **options: object) -> tf.Tensor:
        token = _CHECKS.set([])
        try:
            losses, checks = compute(*arguments, **options), _CHECKS.get()
        finally:
            _CHECKS.reset(token)
        if not checks:
            return losses
        holds = tf.reduce_all(tf.stack(checks))
        return tf.where(holds, 1.0, float("nan")) * losses

    return call


def to_views(projections: tf.Tensor, name: str) -> tf.Tensor:
    """Returns [batch, views, dim] float32, from that or from [batch, dim]."""
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


def to_batch(projections: tf.Tensor) -> tf.Tensor:
    """Returns projections as `to_views`, of at least one sample."""
    z = to_views(projections, "projections")
    exceptions.require(
        z.shape[0] != 0,
        "`projections` must have at least one row",
        f"shape {z.shape}",
    )
    return z


def normalized(z: tf.Tensor) -> tf.Tensor:
    """Returns unit vectors along the last axis."""
    return tf.math.l2_normalize(z, axis=-1, epsilon=_NORM_EPSILON)


def gather(cross_replica: bool, *tensors: tf.Tensor) -> list[tf.Tensor]:
    """Returns tensors [batch, ...] of all replicas, own rows first.

    Without `cross_replica` they stay those of this replica.
    """
    if not cross_replica:
        return list(tensors)
    return distribute.gather_across_replicas(*tensors)


def to_contrasts(contrasts: tf.Tensor | None, z: tf.Tensor) -> tf.Tensor:
    """Returns contrasts [contrasts, views', dim]; 0 contrasts for None."""
    if contrasts is None:
        return tf.zeros([0, *z.shape[1:]])
    contrasts = to_views(contrasts, "contrast_projections")
    exceptions.require(
        contrasts.shape[2] == z.shape[2],
        "`contrast_projections` must have the dim of `projections`",
        f"{contrasts.shape[2]} and {z.shape[2]}",
    )
    return contrasts


def to_queue_mask(mask: tf.Tensor, contrasts: tf.Tensor) -> tf.Tensor:
    """Returns `contrast_mask` as [queued] bool, of the last contrasts."""
    mask = tf.convert_to_tensor(mask)
    exceptions.require(
        mask.shape.rank == 1 and mask.dtype.is_bool,
        "`contrast_mask` must be [queued] bool",
        f"{mask.dtype.name} of shape {mask.shape}",
    )
    num_queued, num_contrasts = mask.shape[0], contrasts.shape[0]
    exceptions.require(
        None in (num_queued, num_contrasts) or num_queued <= num_contrasts,
        f"`contrast_mask` must be no longer than the {num_contrasts} contrasts",
        num_queued,
    )
    return mask


def class_ids(labels: tf.Tensor, name: str = "labels") -> tf.Tensor:
    """Returns labels in any accepted form as [batch] int64 identifiers.

    InvalidArgumentError if a row of rank 2 is not one-hot.
    """
    labels = tf.convert_to_tensor(labels)
    exceptions.require(
        labels.shape.rank in (1, 2),
        f"`{name}` must be [batch], [batch, 1] or one-hot [batch, classes]",
        f"shape {labels.shape}",
    )
    if labels.shape.rank == 2 and labels.shape[1] != 1:
        one_hot = tf.cast(labels, tf.float64)
        classes = tf.argmax(one_hot, axis=1)
        return checked(
            classes,
            one_hot
            == tf.one_hot(classes, tf.shape(one_hot)[1], dtype=tf.float64),
            f"`{name}` of rank 2 must be one-hot; several labels per sample "
            "and soft labels need `positives`",
        )
    exceptions.require(
        labels.dtype.is_integer or labels.dtype.is_bool,
        f"`{name}` must be integers",
        labels.dtype.name,
    )
    return tf.cast(tf.reshape(labels, [-1]), tf.int64)


def class_ids_of(labels: tf.Tensor, z: tf.Tensor) -> tf.Tensor:
    """Returns `class_ids` of the samples of z [batch, ...].

    Raises:
      ValueError: there are more labels, or fewer, than samples.
    """
    ids = class_ids(labels)
    check_shape("labels", ids, [z.shape[0]])
    return ids


def class_indices(
    labels: tf.Tensor, num_classes: int, z: tf.Tensor
) -> tf.Tensor:
    """Returns `class_ids_of` as rows of a table, [batch] int64.

    InvalidArgumentError if there is no such row: in a graph, TensorFlow's sums
    over classes leave it out, and a gather on a GPU takes zeros.
    """
    ids = class_ids_of(labels, z)
    return checked(
        ids,
        (ids >= 0) & (ids < num_classes),
        f"`labels` must be classes, 0 ... {num_classes - 1}",
    )


def sample_ids(z: tf.Tensor) -> tf.Tensor:
    """Returns [batch] int64, a class for each sample of all replicas."""
    context = tf.distribute.get_replica_context()
    replica = context.replica_id_in_sync_group if context else 0
    first_id = tf.cast(replica, tf.int64) * _IDS_PER_REPLICA
    return first_id + tf.range(tf.shape(z, tf.int64)[0])


def without_classes(
    labels: tf.Tensor, classes: Sequence[int], sample_ids: tf.Tensor
) -> tf.Tensor:
    """Returns labels [S] int64, each sample of `classes` in one of its own.

    Args:
      labels: [S] int64 identifiers of classes.
      classes: the identifiers to be replaced.
      sample_ids: [S] int64, 0 or more, each different.
    """
    is_replaced = tf.reduce_any(
        labels[:, tf.newaxis] == tf.constant(classes, tf.int64), axis=1
    )
    # The new ones are far from every class in use.
    return tf.where(is_replaced, tf.int64.min + sample_ids, labels)


def class_numbers(ids: tf.Tensor) -> tf.Tensor:
    """Numbers the classes of identifiers [S] from 0: [S] int32.

    By sorting, which has static shapes: tf.unique does not compile by XLA.
    """
    order = tf.argsort(ids)
    sorted_ids = tf.gather(ids, order)
    is_new = tf.cast(sorted_ids[1:] != sorted_ids[:-1], tf.int32)
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
