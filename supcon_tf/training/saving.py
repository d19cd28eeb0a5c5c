"""Saves a run while it trains, and lets it go on where it was."""

from __future__ import annotations

import dataclasses

import tensorflow as tf
from etils import epath

from supcon_tf import config, distribute
from supcon_tf.training import (
    callbacks,
    checkpoints,
    preemption,
    progress,
)


class Saver(tf.keras.callbacks.Callback):
    """Saves checkpoints during `fit`, and starts `fit` at one of them.

    Exact: weights, optimizer and whatever else is in `parts`, the position in
    the sequence of batches, and what the metrics of an interrupted epoch had
    added up to. Put it behind the callbacks that write an epoch's figures.

    Args:
      directory: of the run's checkpoints.
      parts: what is saved, by name.
      chosen: how often, and how many stay.
      start: where the run begins or goes on; `fit` must be given the batches
        from `start.step` on.
      epochs: epochs of the run.
    """

    def __init__(
        self,
        directory: epath.Path,
        parts: dict[str, tf.Module],
        chosen: config.CheckpointSettings,
        start: checkpoints.Progress,
        epochs: int,
    ):
        super().__init__()
        self.directory = directory
        self.parts = parts
        self.chosen = chosen
        self.start = start
        self.epochs = epochs
        self.epoch = start.epoch
        self.notice = preemption.Notice()
        self._added_up = start.metrics

    def on_train_begin(self, logs: dict | None = None) -> None:
        """Tells Keras where to start; see the method below."""
        self.model._training_state = self

    def maybe_load_initial_counters_from_ckpt(
        self, steps_per_epoch: int, initial_epoch: int, mode: str
    ) -> tuple[int, int]:
        """Returns epoch and step in it that `fit` starts at.

        The method of Keras' own BackupAndRestore, which saves only between
        epochs and forgets its file when `fit` ends.
        """
        return divmod(self.start.step, self.start.epoch_steps)

    def on_train_end(self, logs: dict | None = None) -> None:
        """Lets another `fit` start at its beginning."""
        self.model._training_state = None

    def on_epoch_begin(self, epoch: int, logs: dict | None = None) -> None:
        """Notes the epoch."""
        self.epoch = epoch

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        """Saves inside an epoch, where that is due."""
        if self._added_up:
            _add_to_metrics(self.model, self._added_up)
            self._added_up = {}
        steps = self.start.epoch_steps
        if batch + 1 == steps:
            return  # the end of the epoch saves, when its figures are written
        step = self.epoch * steps + batch + 1
        preempted = self._is_preempted()
        every = self.chosen.checkpoint_steps
        if preempted or (every and step % every == 0):
            self._save(step, _metrics_of(self.model))
        if preempted:
            self._stop(step)

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        """Saves after an epoch, where that is due."""
        done = epoch + 1
        step = done * self.start.epoch_steps
        every = self.chosen.checkpoint_steps
        preempted = self._is_preempted() and done < self.epochs
        if (
            done % self.chosen.checkpoint_every == 0
            or done == self.epochs
            or (every and step % every == 0)
            or preempted
        ):
            self._save(step, {})
        if preempted:
            self._stop(step)

    def _is_preempted(self) -> bool:
        """Whether any worker got SIGTERM: all must save the same step."""
        return preemption.any_worker(
            self.model.distribute_strategy, self.notice.came
        )

    def _save(self, step: int, metrics: dict[str, list[object]]) -> None:
        """Saves a checkpoint that is worth keeping, and removes old ones."""
        callbacks.check_finite_weights(self.model)
        is_chief = distribute.is_chief(self.model.distribute_strategy)
        done = dataclasses.replace(self.start, step=step, metrics=metrics)
        checkpoints.save(self.directory, self.parts, done, is_chief=is_chief)
        if is_chief:
            every = self.chosen.keep_every
            checkpoints.prune(
                self.directory,
                self.chosen.keep_checkpoints,
                every and every * self.start.epoch_steps,
            )

    def _stop(self, step: int) -> None:
        """Ends the process, saved as it is."""
        progress.end_live_line()
        print(
            f"preempted    saved at step {step}; --resume goes on from there",
            flush=True,
        )
        raise preemption.Preempted


def _metrics_of(model: tf.keras.Model) -> dict[str, list[object]]:
    """What the metrics of the epoch have added up to so far."""
    return {
        metric.name: [
            tf.convert_to_tensor(variable).numpy().tolist()
            for variable in metric.variables
        ]
        for metric in model.metrics
    }


def _add_to_metrics(
    model: tf.keras.Model, added_up: dict[str, list[object]]
) -> None:
    """Adds what was saved: all our metrics are sums and counts."""
    for metric in model.metrics:
        values = added_up.get(metric.name, [])
        for variable, value in zip(metric.variables, values, strict=False):
            variable.assign(
                tf.convert_to_tensor(variable)
                + tf.constant(value, variable.dtype)
            )
