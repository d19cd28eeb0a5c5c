"""What a run reports and keeps, epoch by epoch."""

from __future__ import annotations

import json
import math
import pathlib
import sys
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
            step = _steps_taken(self.model)
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


class CollapseWarning(tf.keras.callbacks.Callback):
    """Says once per run that nothing is being learned, and what to do.

    Looks at `loss/chance` and `mean_cosine` of an epoch, so put it after
    `EpochFigures`; a figure that is not there is not judged. A fresh encoder
    looks collapsed too, hence the wait.

    Args:
      after_steps: optimizer steps before the first judgement; give the
        warm-up and at least an epoch more, since figures are means over the
        epoch.
    """

    def __init__(self, after_steps: int = 100):
        super().__init__()
        self.after_steps = after_steps
        self.warned = False

    def on_train_begin(self, logs: dict | None = None) -> None:
        """Starts a run that has not been warned."""
        self.warned = False

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        """Prints the warning where it is due."""
        step = _steps_taken(self.model)
        if self.warned or step < self.after_steps:
            return
        cosine, to_chance = logs.get("mean_cosine"), logs.get("loss/chance")
        if cosine is not None and cosine > 0.99:
            seen = f"projections collapsed, their mean cosine is {cosine:.4f}"
        elif to_chance is not None and abs(to_chance - 1) < 0.01:
            seen = f"loss at chance level, loss/chance is {to_chance:.4f}"
        else:
            return
        self.warned = True
        _print_line(
            f"warning      {seen} after {step} steps: lower --learning_rate, "
            "lengthen --warmup_epochs or check --temperature"
        )


class InputBoundWarning(tf.keras.callbacks.Callback):
    """Says once per run that the steps wait for data, and what to do.

    Looks at `data_wait` of an epoch, so put it after `waiting.DataWait`.

    Args:
      after_steps: optimizer steps before the first judgement: the first ones
        wait for threads that start and buffers that fill.
    """

    def __init__(self, after_steps: int = 100):
        super().__init__()
        self.after_steps = after_steps
        self.warned = False

    def on_train_begin(self, logs: dict | None = None) -> None:
        """Starts a run that has not been warned."""
        self.warned = False

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        """Prints the warning where it is due."""
        share = logs["data_wait"]
        # Without a wait of a quarter the run would be a third faster: less is
        # not worth a line.
        if self.warned or share <= 0.25:
            return
        if _steps_taken(self.model) < self.after_steps:
            return
        self.warned = True
        _print_line(
            f"input-bound  {100 * share:.0f} % of the time spent waiting for "
            "data: more CPU cores, a faster disk, smaller image files, a "
            "smaller --image_size, or less work per view (--augmentation, "
            "--warp_probability, --blur_probability)"
        )


def _print_line(line: str) -> None:
    """Prints a line of its own at once, below any progress bar."""
    if sys.stdout.isatty():
        print()
    print(line, flush=True)


def _steps_taken(model: tf.keras.Model) -> int:
    """Optimizer steps so far; the counter is mirrored on several replicas."""
    return int(tf.convert_to_tensor(model.optimizer.iterations))
