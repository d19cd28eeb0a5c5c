"""What a run reports and keeps, epoch by epoch."""

from __future__ import annotations

import json
import math
import pathlib
import time

import tensorflow as tf


class EpochFigures(tf.keras.callbacks.Callback):
    """Adds learning rate, images/s and loss/chance to the epoch's figures.

    Put it before the callbacks that read them; Keras' progress bar shows them
    too.

    Args:
      images_per_epoch: images that one epoch trains on.
      chance: loss of equal projections, `losses.chance_loss`; None leaves
        loss/chance out.
    """

    def __init__(self, images_per_epoch: int, chance: float | None = None):
        super().__init__()
        self.images_per_epoch = images_per_epoch
        self.chance = chance
        self.started = 0.0

    def on_epoch_begin(self, epoch: int, logs: dict | None = None) -> None:
        """Starts the clock."""
        self.started = time.perf_counter()

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        """Adds the figures to `logs`."""
        seconds = time.perf_counter() - self.started
        if self.chance:
            logs["loss/chance"] = logs["loss"] / self.chance
        rate = self.model.optimizer.learning_rate  # mirrored on several GPUs
        logs["learning_rate"] = float(tf.convert_to_tensor(rate))
        logs["images/s"] = self.images_per_epoch / seconds


class MetricsFile(tf.keras.callbacks.Callback):
    """Appends one JSON object per epoch to a file.

    Args:
      path: the file, metrics.jsonl of a run directory.
    """

    def __init__(self, path: pathlib.Path):
        super().__init__()
        self.path = path

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        """Writes the epoch, counted from 1, and its figures."""
        figures = {name: float(value) for name, value in logs.items()}
        with self.path.open("a") as file:
            file.write(json.dumps({"epoch": epoch + 1, **figures}) + "\n")


class StopOnNonFiniteLoss(tf.keras.callbacks.Callback):
    """Ends the run at the first step whose loss is NaN or infinite."""

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        """Raises FloatingPointError naming the step."""
        if not math.isfinite(logs["loss"]):
            step = int(self.model.optimizer.iterations)
            raise FloatingPointError(
                f"loss is {logs['loss']} at step {step}: lower "
                "--learning_rate or lengthen --warmup_epochs; checkpoints of "
                "earlier epochs are kept"
            )


class Checkpoints(tf.keras.callbacks.Callback):
    """Saves a checkpoint every few epochs and after the last one.

    Args:
      manager: saves; its checkpoint's `epoch` variable is set to the number
        of finished epochs.
      every: epochs between checkpoints.
      epochs: epochs of the run.
    """

    def __init__(
        self, manager: tf.train.CheckpointManager, every: int, epochs: int
    ):
        super().__init__()
        self.manager = manager
        self.every = every
        self.epochs = epochs

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        """Saves where it is due."""
        done = epoch + 1
        if done % self.every == 0 or done == self.epochs:
            self.manager.checkpoint.epoch.assign(done)
            self.manager.save(done)
