"""From settings to strategy, precision and determinism."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import tensorflow as tf

from supcon_tf import config, distribute, exceptions
from supcon_tf.keras_2 import keras


def set_up(settings: config.DeviceSettings) -> tf.distribute.Strategy:
    """Prepares TensorFlow for a run: devices, precision, seed, determinism.

    It comes before any computation: the machines of a cluster find each other
    first. Models are made under the scope of the strategy.

    Raises:
      ValueError: the strategy cannot be made, the replicas cannot share the
        batch, or the settings want XLA with several replicas.
    """
    strategy = distribute.make_strategy(settings.strategy, settings.tpu)
    replicas = strategy.num_replicas_in_sync
    if settings.batch_size is not None:
        check_batch(settings, replicas)
    on_tpu = isinstance(strategy, tf.distribute.TPUStrategy)
    if settings.jit_compile and replicas > 1 and not on_tpu:
        raise exceptions.InvalidValue(
            f"--jit_compile must be left out with {replicas} replicas: XLA "
            "cannot compile what they exchange through TensorFlow's "
            "collectives; take --strategy=one_device, or tpu"
        )
    keras.utils.set_random_seed(settings.seed)
    if settings.deterministic:
        tf.config.experimental.enable_op_determinism()
    keras.mixed_precision.set_global_policy(settings.precision)
    return strategy


@contextlib.contextmanager
def restored_policy() -> Iterator[None]:
    """Gives back the user's precision policy, in the place of a run's.

    Else what follows in the process, such as an evaluation or an export, would
    compute in the precision of the training.
    """
    policy = keras.mixed_precision.global_policy()
    try:
        yield
    finally:
        keras.mixed_precision.set_global_policy(policy)


def distributed(
    strategy: tf.distribute.Strategy,
    make: Callable[[tuple[int, int]], tf.data.Dataset],
) -> tf.data.Dataset | tf.distribute.DistributedDataset:
    """The batches that this worker gives to `fit`.

    `make` goes from a worker's (index, count) to its rows of each global batch,
    of static size. Keras shares the batches of a single worker, `make((0, 1))`,
    among its replicas; of several workers, each replica gets its own batches.
    """
    if distribute.num_workers(strategy) == 1:
        return make((0, 1))

    def replica_batches(context: tf.distribute.InputContext) -> tf.data.Dataset:
        workers = context.num_input_pipelines
        batches = make((context.input_pipeline_id, workers))
        replicas = context.num_replicas_in_sync // workers  # of this worker
        if replicas == 1:
            return batches
        batch_size = tf.nest.flatten(batches.element_spec)[0].shape[0]
        return batches.rebatch(batch_size // replicas, drop_remainder=True)

    return strategy.distribute_datasets_from_function(replica_batches)


def file_shard(
    settings: config.DeviceSettings, strategy: tf.distribute.Strategy
) -> tuple[int, int] | None:
    """(index, count) of this worker if workers read different files."""
    shard = distribute.shard(strategy)
    return shard if settings.auto_shard == "file" and shard[1] > 1 else None


def any_worker(strategy: tf.distribute.Strategy, claim: bool) -> bool:
    """Whether `claim` is true on any worker; all workers must call this."""
    if distribute.num_workers(strategy) == 1:
        return claim
    return bool(_sum_over_replicas(strategy, tf.constant(float(claim))) > 0)


def wait_for_all(strategy: tf.distribute.Strategy) -> None:
    """Returns when all workers have called this."""
    any_worker(strategy, False)


@tf.function
def _sum_over_replicas(
    strategy: tf.distribute.Strategy, value: tf.Tensor
) -> tf.Tensor:
    """The sum over all replicas; a worker's replicas have the same value."""
    values = strategy.run(tf.identity, args=(value,))
    return strategy.reduce(tf.distribute.ReduceOp.SUM, values, axis=None)


def check_batch(settings: config.DeviceSettings, replicas: int) -> None:
    """Raises ValueError for a batch that replicas cannot share equally."""
    multiple = settings.batch_size // replicas * replicas
    if multiple != settings.batch_size:
        nearest = [str(n) for n in (multiple, multiple + replicas) if n]
        raise exceptions.InvalidValue(
            f"--batch_size must be a multiple of the {replicas} replicas of "
            f"--strategy={settings.strategy}, got {settings.batch_size}: take "
            f"{' or '.join(nearest)}"
        )
