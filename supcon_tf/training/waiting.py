"""How long the steps of a run wait for their batches."""

from __future__ import annotations

import time

import numpy as np
import tensorflow as tf

# Arrivals that are kept. A strategy copies a few batches ahead of the step, so
# a slot is read long before it is used again.
_SLOTS = 256


class DataWait(tf.keras.callbacks.Callback):
    """Adds `data_wait`, the share of an epoch spent waiting for data.

    To the logs of every step, for the epoch so far, and to those of the epoch.
    A step waits from its start until its batch leaves the pipeline, if that
    comes later. Batches that a strategy copies ahead of the step are no wait,
    nor is a step that is slow because it shares its cores with the pipeline.
    The first step of a run is not counted: it traces.

    A step must have ended when the next one starts, as `StopOnNonFiniteLoss`
    sees to by reading every loss; else the figure of a GPU is an upper bound.

    Fit on what `attach` returns, and put it before the callbacks that read the
    figure.
    """

    def __init__(self):
        super().__init__()
        self._arrivals = np.zeros([_SLOTS])
        self._batches_per_step = 1

    def attach(
        self, dataset: tf.data.Dataset, batches_per_step: int = 1
    ) -> tf.data.Dataset:
        """Ends endless batches with a clock that notes when each leaves.

        Args:
          dataset: the batches.
          batches_per_step: batches that a step takes of it: 1 where they are
            of all replicas, the number of replicas where each gets its own.

        Returns:
          The same but for a buffer that tf.data would add behind the clock, as
          after any map: it might outgrow the slots.
        """
        self._batches_per_step = batches_per_step

        def note(index: np.ndarray) -> np.ndarray:
            self._arrivals[index % _SLOTS] = time.perf_counter()
            return index

        def stamp(index: tf.Tensor, batch: object) -> object:
            # In Python: tf.timestamp is refused where results are to be
            # deterministic.
            tf.numpy_function(note, [index], index.dtype)
            return batch

        options = tf.data.Options()
        options.experimental_optimization.inject_prefetch = False
        numbered = tf.data.Dataset.zip((tf.data.Dataset.counter(), dataset))
        return numbered.map(stamp).with_options(options)

    def on_train_begin(self, logs: dict | None = None) -> None:
        self._step = 0

    def on_epoch_begin(self, epoch: int, logs: dict | None = None) -> None:
        self._epoch_began = time.perf_counter()
        self._waited = 0.0

    def on_train_batch_begin(
        self, batch: int, logs: dict | None = None
    ) -> None:
        self._step_began = time.perf_counter()

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        if self._step:
            last = (self._step + 1) * self._batches_per_step - 1
            arrival = float(self._arrivals[last % _SLOTS])
            self._waited += max(0.0, arrival - self._step_began)
        self._step += 1
        self.on_epoch_end(0, logs)  # so far

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        seconds = time.perf_counter() - self._epoch_began
        logs["data_wait"] = self._waited / seconds
