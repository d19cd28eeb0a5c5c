"""Saves a run while it trains, and lets it go on where it was."""

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

    It keeps `parts`, the position in the sequence of batches, and what the
    metrics of an interrupted epoch had added up to. Put it behind the callbacks
    that write an epoch's figures.

    Args:
      directory: of the run's checkpoints.
      parts: by name.
      settings: how many epochs, how often, and how many stay.
      start: where the run is; `fit` must be given the batches from there on.
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
        self._added_up = start.metrics
        self._last = start.step, start.step  # that is done, that is saved

    def on_train_begin(self, logs: dict | None = None) -> None:
        # Asks for the method below.
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
        self.model._training_state = None

    def on_epoch_begin(self, epoch: int, logs: dict | None = None) -> None:
        self.epoch = epoch

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        if self._added_up:
            self._add_up()
        # The end of the epoch saves, when its figures are written.
        if batch + 1 < self.start.epoch_steps:
            self._step_is_done(batch + 1)

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        self._step_is_done(self.start.epoch_steps)

    def _step_is_done(self, steps: int) -> None:
        """Saves where that is due, so many steps into the epoch; may stop."""
        step = self.epoch * self.start.epoch_steps + steps
        epochs, rest = divmod(step, self.start.epoch_steps)
        ends = epochs == self.settings.epochs
        self._last = step, self._last[1]
        # All workers must save the same step.
        preempted = not ends and devices.any_worker(
            self.model.distribute_strategy, self.notice.came
        )
        every = self.settings.checkpoint_steps
        of_steps = every and step % every == 0
        of_epochs = ends or epochs % self.settings.checkpoint_every == 0
        if of_steps or preempted or (of_epochs and not rest):
            self._save(step, self._metrics() if rest else {})
        if preempted:
            progress.end_live_line()
            console.print_line(
                "preempted",
                f"saved at step {step}; --resume goes on from there",
            )
            raise preemption.Preempted

    def save_last(self) -> int:
        """Saves the last step that is done, if it is not; returns it.

        Several workers must save together, and one alone cannot: there, what
        is saved stays.
        """
        step, saved = self._last
        if distribute.num_workers(self.model.distribute_strategy) > 1:
            return saved
        if step > saved:
            within = step % self.start.epoch_steps
            self._save(step, self._metrics() if within else {})
        return step

    def _save(self, step: int, metrics: dict[str, list[object]]) -> None:
        callbacks.check_finite_weights(self.model)
        is_chief = distribute.is_chief(self.model.distribute_strategy)
        done = dataclasses.replace(self.start, step=step, metrics=metrics)
        checkpoints.save(self.directory, self.parts, done, is_chief=is_chief)
        self._last = step, step
        if is_chief:
            checkpoints.prune(
                self.directory,
                self.settings.keep_checkpoints,
                (self.settings.keep_every or 0) * self.start.epoch_steps,
            )

    def _metrics(self) -> dict[str, list[object]]:
        """What the metrics of the epoch have added up to so far."""
        return {
            metric.name: [
                tf.convert_to_tensor(variable).numpy().tolist()
                for variable in metric.variables
            ]
            for metric in self.model.metrics
        }

    def _add_up(self) -> None:
        """Adds what was saved: all our metrics are sums and counts."""
        for metric in self.model.metrics:
            values = self._added_up.get(metric.name, [])
            for variable, value in zip(metric.variables, values, strict=False):
                variable.assign(
                    tf.convert_to_tensor(variable)
                    + tf.constant(value, variable.dtype)
                )
        self._added_up = {}
