"""Batches mixed by MixUp or CutMix, each as a function of its step."""

from __future__ import annotations

import tensorflow as tf

from supcon_tf.augment import mixing, randomness

_MIXING = 1  # Second number of the run's seed; `pipeline` has 0.


def by_step(
    batches: tf.data.Dataset,
    mix: mixing.MixUp | mixing.CutMix,
    seed: int,
    start_step: int,
    worker: int,
) -> tf.data.Dataset:
    """Endless batches, mixed; their labels become soft.

    A worker mixes the rows of its own part of a batch, as a function of (seed,
    step, index of the worker).
    """
    seeds = tf.constant([seed, _MIXING], tf.int32)

    def mixed(step: tf.Tensor, batch: tuple) -> tuple:
        step_seeds = randomness.fold_in(seeds, step)
        return mix(*batch, randomness.fold_in(step_seeds, worker))

    return (
        tf.data.Dataset.zip((tf.data.Dataset.counter(start_step), batches))
        .map(mixed, num_parallel_calls=tf.data.AUTOTUNE)
        .prefetch(tf.data.AUTOTUNE)
    )
