"""Strategies, and the exchange of tensors between their replicas."""

from __future__ import annotations

import tensorflow as tf


def make_strategy(name: str = "auto") -> tf.distribute.Strategy:
    """Builds the distribution strategy of a run.

    Args:
      name: `one_device`; `mirrored`: all GPUs of this machine, or its logical
        CPU devices where it has none; `auto`: mirrored with more than one GPU,
        else one device.

    Raises:
      ValueError: `name` is none of these.
    """
    gpus = tf.config.list_logical_devices("GPU")
    if name == "mirrored" or (name == "auto" and len(gpus) > 1):
        devices = gpus or tf.config.list_logical_devices("CPU")
        return tf.distribute.MirroredStrategy([d.name for d in devices])
    if name in ("auto", "one_device"):
        device = gpus[0].name if gpus else "/cpu:0"
        return tf.distribute.OneDeviceStrategy(device)
    raise ValueError(
        f"`name` must be one of auto, one_device, mirrored, got {name!r}"
    )


def replicas_in_sync() -> int:
    """Replicas of the strategy that runs the calling code, 1 outside."""
    context = tf.distribute.get_replica_context()
    return 1 if context is None else context.num_replicas_in_sync


def gather_across_replicas(*tensors: tf.Tensor) -> list[tf.Tensor]:
    """Concatenates tensors of every replica, this replica's rows first.

    The order is cyclic in the global batch: this replica, the next one, ...,
    the previous one. Gradients flow back to the replica that each row came
    from (Sec. 4 of the paper trains with one loss over the global batch).

    Args:
      *tensors: [batch, ...] each, the batch of this replica; replicas may have
        batches of different size, as at the end of an epoch.

    Returns:
      [global batch, ...] each, same dtype; `tensors` themselves where there
      is only one replica.
    """
    if replicas_in_sync() == 1:
        return list(tensors)
    context = tf.distribute.get_replica_context()
    rows = context.all_gather(tf.shape(tensors[0])[:1], axis=0)  # [replicas]
    rows_before = tf.reduce_sum(rows[: context.replica_id_in_sync_group])

    def gather(tensor: tf.Tensor) -> tf.Tensor:
        # With several workers all_gather wants a device, and an input of the
        # training step has none: its copy has.
        gathered = context.all_gather(tf.identity(tensor), axis=0)
        gathered = tf.roll(gathered, -rows_before, axis=0)
        # all_gather forgets the static shape of the trailing axes.
        return tf.ensure_shape(gathered, [None, *tensor.shape[1:]])

    return [gather(tensor) for tensor in tensors]
