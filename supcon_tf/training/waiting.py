"""How long the steps of a run wait for their batches."""

from __future__ import annotations

import time

import tensorflow as tf

# Arrivals that are kept. A strategy copies a few batches ahead of the step, so
# a slot is read long before it is used again.
_SLOTS = 256


class DataWait(tf.keras.callbacks.Callback):
    """Adds `data_wait`, the share of an epoch spent waiting for data.

    A step waits from its start until its batch leaves the pipeline, if that
    comes later. So batches that a strategy copies to its devices ahead of the
    step are no wait, nor is a step that is slow because it shares its CPU cores
    with the pipeline. The first step of a run is not counted: it traces.

    A step must have ended when the next one starts, as `StopOnNonFiniteLoss`
    sees to by reading every loss; otherwise the figure of a GPU, which still
    works on the step before, is an upper bound.

    Make it outside of a strategy's scope, fit on what `attach` returns, one
    batch per step, and put it before the callbacks that read the figure.
    """

    def __init__(self):
        super().__init__()
        # Written by the pipeline, which runs on the CPU.
        with tf.device("/cpu:0"):
            self._arrivals = tf.Variable(tf.zeros([_SLOTS], tf.float64))
        self._step = 0
        self._step_began = 0.0
        self._epoch_began = 0.0
        self._waited = 0.0

    def attach(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
        """Ends a dataset with a clock that notes when each batch leaves it.

        Args:
          dataset: endless batches, each of all replicas.

        Returns:
          The same elements in the same order, with the same shapes,
          cardinality and options, except that tf.data adds no buffer behind
          the clock, as it would after a map: it might outgrow the slots.
        """

        def stamp(index: tf.Tensor, batch: object) -> object:
            self._arrivals.scatter_nd_update(
                [[index % _SLOTS]], [tf.timestamp()]
            )
            return batch

        options = tf.data.Options()
        options.experimental_optimization.inject_prefetch = False
        numbered = tf.data.Dataset.zip((tf.data.Dataset.counter(), dataset))
        return numbered.map(stamp).with_options(options)

    def on_train_begin(self, logs: dict | None = None) -> None:
        """Counts from the first batch of a new iterator."""
        self._step = 0

    def on_epoch_begin(self, epoch: int, logs: dict | None = None) -> None:
        """Starts the clock."""
        self._epoch_began = time.time()  # the clock of tf.timestamp
        self._waited = 0.0

    def on_train_batch_begin(
        self, batch: int, logs: dict | None = None
    ) -> None:
        """Notes when the step started."""
        self._step_began = time.time()

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        """Adds what the step has waited."""
        if self._step:
            arrival = float(self._arrivals.numpy()[self._step % _SLOTS])
            self._waited += max(0.0, arrival - self._step_began)
        self._step += 1

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        """Adds the figure, 0..1, to `logs`."""
        logs["data_wait"] = self._waited / (time.time() - self._epoch_began)
