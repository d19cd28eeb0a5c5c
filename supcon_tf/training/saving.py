"""Saves checkpoints of a run while it trains, and resumes `fit` at one."""

from __future__ import annotations

import dataclasses

import tensorflow as tf
from etils import epath

from supcon_tf import config, distribute
from supcon_tf.keras_2 import keras
from supcon_tf.training import (
    callbacks,
    checkpoints,
    console,
    devices,
    preemption,
    progress,
)


class Saver(keras.callbacks.Callback):
    """Saves checkpoints during `fit`, and starts `fit` at one of them.

    A checkpoint has `parts`, the position in the sequence of batches, and the
    metrics' sums of an interrupted epoch. Put it behind the callbacks that
    write an epoch's figures.

    Args:
      directory: of the run's checkpoints.
      parts: by name.
      settings: epochs, steps between checkpoints, and number of those kept.
      start: position of the run; `fit` must be given the batches from there on.
    """

    def __init__(
        self,
        directory: epath.Path,
        parts: dict[str, tf.Module],
        settings: config.OptimizerSettings | config.CheckpointSettings,
        start: checkpoints.Progress,
    ):
        super().__init__()
        self.directory = directory
        self.parts = parts
        self.settings = settings
        self.start = start
        self.notice = preemption.Notice()
        self._saved_metrics = start.metrics
        self._step = self._saved_step = start.step

    def on_train_begin(self, logs: dict | None = None) -> None:
        # Keras then calls the method below.
        self.model._training_state = self

    def maybe_load_initial_counters_from_ckpt(
        self, steps_per_epoch: int, initial_epoch: int, mode: str
    ) -> tuple[int, int]:
        """Returns the epoch and the step in it at which `fit` starts.

        The method of Keras' own BackupAndRestore, which saves only between
        epochs and forgets its file when `fit` ends.
        """
        return divmod(self.start.step, self.start.epoch_steps)

    def on_train_end(self, logs: dict | None = None) -> None:
        self.model._training_state = None

    def on_epoch_begin(self, epoch: int, logs: dict | None = None) -> None:
        self.epoch = epoch

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        if self._saved_metrics:
            self._restore_metrics()
        if batch + 1 < self.start.epoch_steps:
            self._end_step(batch + 1)
        else:  # is saved after the epoch's figures are written, or not at all
            self._step = self._saved_step

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        self._end_step(self.start.epoch_steps)

    def _end_step(self, steps: int) -> None:
        """Ends a step, the `steps`-th of its epoch: saves if due, may stop."""
        step = self.epoch * self.start.epoch_steps + steps
        epochs, epoch_step = divmod(step, self.start.epoch_steps)
        is_last = epochs == self.settings.epochs
        self._step = step
        # All workers must save the same step.
        preempted = not is_last and devices.any_worker(
            self.model.distribute_strategy, self.notice.came
        )
        every = self.settings.checkpoint_steps
        is_step_due = every and step % every == 0
        is_epoch_due = is_last or epochs % self.settings.checkpoint_every == 0
        if is_step_due or preempted or (is_epoch_due and not epoch_step):
            self._save(step)
        if preempted:
            progress.end_live_line()
            console.print_line(
                "preempted",
                f"saved at step {step}; --resume goes on from there",
            )
            raise preemption.Preempted

    def save_last(self) -> int:
        """Saves the last step, unless it is saved; returns the saved step.

        One of several workers cannot save alone, and saves nothing. Nor is the
        last step of an epoch saved whose figures failed: a run that goes on
        from an earlier step has them.
        """
        is_alone = distribute.num_workers(self.model.distribute_strategy) == 1
        if is_alone and self._step > self._saved_step:
            self._save(self._step)
        return self._saved_step

    def _save(self, step: int) -> None:
        callbacks.check_finite_weights(self.model)
        metrics = self._metrics() if step % self.start.epoch_steps else {}
        is_chief = distribute.is_chief(self.model.distribute_strategy)
        saved = dataclasses.replace(self.start, step=step, metrics=metrics)
        checkpoints.save(self.directory, self.parts, saved, is_chief=is_chief)
        self._saved_step = step
        if is_chief:
            checkpoints.prune(
                self.directory,
                self.settings.keep_checkpoints,
                (self.settings.keep_every or 0) * self.start.epoch_steps,
            )
        # A worker that ended before the chief has written the files would find
        # no checkpoint, and a cluster may end the chief with it.
        devices.wait_for_all(self.model.distribute_strategy)

    def _metrics(self) -> dict[str, list[object]]:
        """The variables of the metrics in the epoch so far, by metric."""
        return {
            metric.name: [
                tf.convert_to_tensor(variable).numpy().tolist()
                for variable in metric.variables
            ]
            for metric in self.model.metrics
        }

    def _restore_metrics(self) -> None:
        """Adds the saved variables: all metrics are sums and counts."""
        for metric in self.model.metrics:
            values = self._saved_metrics.get(metric.name, [])
            for variable, value in zip(metric.variables, values, strict=False):
                variable.assign(
                    tf.convert_to_tensor(variable)
                    + tf.constant(value, variable.dtype)
                )
        self._saved_metrics = {}
