"""Figures of a run while it trains, and the progress bar that prints them."""

from __future__ import annotations

import datetime
import math
import sys
import time

import numpy as np
import tensorflow as tf
import tqdm

from supcon_tf.keras_2 import keras
from supcon_tf.training import console

# Figures of the progress bar, in this order; the line of an epoch has them
# first.
_LIVE = (
    *("loss", "loss/chance", "contrastive_accuracy", "accuracy"),
    *("examples/s", "data_wait", "learning_rate"),
)
_SECONDS_PER_LINE = 1.0  # between epochs, but for the first and the last
_SECONDS_PER_RATE = 0.5  # between copies of the learning rate from the device
# Arrivals in memory. A strategy copies a few batches ahead of the step, so a
# slot is read long before it is used again.
_SLOTS = 256


class Figures(keras.callbacks.Callback):
    """Adds loss/chance, learning rate and examples/s to the logs.

    Every step and every epoch has them. Put it before the callbacks that read
    them. examples/s counts the steps that this `fit` takes of the epoch, all
    but its first, which traces.

    Args:
      images_per_step: images of a global batch.
      chance: loss of equal projections, `losses.chance_loss`; None leaves
        loss/chance out.
    """

    def __init__(self, images_per_step: int, chance: float | None = None):
        super().__init__()
        self.images_per_step = images_per_step
        self.chance = chance
        self._learning_rate = 0.0
        self._rate_time = -math.inf

    def on_train_begin(self, logs: dict | None = None) -> None:
        self._traced_at = None

    def on_epoch_begin(self, epoch: int, logs: dict | None = None) -> None:
        self._steps = 0
        self._epoch_start = time.perf_counter()

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        now = time.perf_counter()
        self._steps += 1
        self._traced_at = self._traced_at or now
        self._add(logs, now)

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        self._rate_time = -math.inf
        self._add(logs, time.perf_counter())

    def _add(self, logs: dict, now: float) -> None:
        if now - self._rate_time > _SECONDS_PER_RATE:
            rate = self.model.optimizer.learning_rate
            # Mirrored on several replicas.
            self._learning_rate = float(tf.convert_to_tensor(rate))
            self._rate_time = now
        if self.chance:
            logs["loss/chance"] = logs["loss"] / self.chance
        logs["learning_rate"] = self._learning_rate
        steps, start = self._steps, self._epoch_start
        if self._traced_at > start and steps > 1:
            steps, start = steps - 1, self._traced_at
        logs["examples/s"] = steps * self.images_per_step / (now - start)


class DataWait(keras.callbacks.Callback):
    """Adds `data_wait`, the share of an epoch spent waiting for data.

    The logs of a step have the share of the epoch so far. A step waits from its
    start until its batch leaves the pipeline, if that comes later. A batch that
    a strategy copies ahead of the step is no wait, nor is a step that is slow
    because it shares its cores with the pipeline. The first step of a run is
    not counted: it traces.

    A step must end before the next one starts. `StopOnNonFiniteLoss` sees to
    that by reading every loss; else the figure of a GPU is an upper bound.

    Fit once, on the dataset of `attach`, and put the callback before those that
    read the figure.
    """

    def __init__(self):
        super().__init__()
        self._arrivals = np.zeros([_SLOTS])
        self._batches_per_step = 1
        self._step = 0

    def attach(
        self, dataset: tf.data.Dataset, batches_per_step: int = 1
    ) -> tf.data.Dataset:
        """Adds a clock to the end of endless batches, which notes each arrival.

        Args:
          dataset: the batches.
          batches_per_step: batches of a step: 1 if they are of all replicas,
            the number of replicas if each gets its own.

        Returns:
          The same batches, without the buffer that tf.data would add behind the
          clock: it might outgrow the slots.
        """
        self._batches_per_step = batches_per_step

        def note(index: np.ndarray) -> np.ndarray:
            self._arrivals[index % _SLOTS] = time.perf_counter()
            return index

        def stamp(index: tf.Tensor, batch: object) -> object:
            # In Python: determinism refuses tf.timestamp.
            tf.numpy_function(note, [index], index.dtype)
            return batch

        options = tf.data.Options()
        options.experimental_optimization.inject_prefetch = False
        numbered = tf.data.Dataset.zip((tf.data.Dataset.counter(), dataset))
        return numbered.map(stamp).with_options(options)

    def on_epoch_begin(self, epoch: int, logs: dict | None = None) -> None:
        self._epoch_start = time.perf_counter()
        self._waited = 0.0

    def on_train_batch_begin(
        self, batch: int, logs: dict | None = None
    ) -> None:
        self._step_start = time.perf_counter()

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        if self._step:
            last = (self._step + 1) * self._batches_per_step - 1
            arrival = float(self._arrivals[last % _SLOTS])
            self._waited += max(0.0, arrival - self._step_start)
        self._step += 1
        self.on_epoch_end(0, logs)  # so far

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        seconds = time.perf_counter() - self._epoch_start
        logs["data_wait"] = self._waited / seconds


class ProgressBar(keras.callbacks.ProgbarLogger):
    """A line per epoch with all its logs, and a bar during the epoch.

    Epochs of less than a second have a line per second: the first, the last and
    some between.

    The bar, of `fit(verbose=1)`, is tqdm's, with the time left and the figures
    of the last step; Keras' own bar would average examples/s over the steps.
    Put it behind the callbacks that add to the logs.
    """

    def __init__(self) -> None:
        super().__init__("steps")
        self._bar: tqdm.tqdm | None = None
        self._line_time = -math.inf  # of the last line
        self._pending_line: str | None = None

    def on_epoch_begin(self, epoch: int, logs: dict | None = None) -> None:
        self._label = f"{epoch + 1}/{self.epochs}"
        self._epoch_start = time.perf_counter()

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        if self.verbose != 1:
            return
        figures = _text({name: logs[name] for name in _LIVE if name in logs})
        if self._bar is not None:
            self._bar.set_postfix_str(figures, refresh=False)
            self._bar.update()
            return
        # The clock of the bar starts after the step that traces.
        self._bar = tqdm.tqdm(
            desc=f"epoch {self._label}",
            bar_format="{desc}  {n_fmt}/{total_fmt} [{bar:10}] {remaining} "
            "left{postfix}",
            initial=batch + 1,
            total=self.target,
            postfix=figures,
            file=sys.stdout,
            leave=False,
            miniters=1,
            smoothing=0,
            dynamic_ncols=True,
        )

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None
        if self.verbose:
            main_figures = {name: logs[name] for name in _LIVE if name in logs}
            seconds = round(time.perf_counter() - self._epoch_start)
            duration = datetime.timedelta(seconds=seconds)
            figures = _text(main_figures | logs)
            self._pending_line = f"{self._label}  {duration}  {figures}"
            now = time.perf_counter()
            if now - self._line_time >= _SECONDS_PER_LINE or (
                epoch + 1 == self.epochs
            ):
                self._print_pending(now)

    def on_train_end(self, logs: dict | None = None) -> None:
        if self._pending_line:  # training was stopped
            self._print_pending(time.perf_counter())

    def _print_pending(self, now: float) -> None:
        console.print_line("epoch", self._pending_line)
        self._line_time, self._pending_line = now, None


def verbosity() -> int:
    """A progress bar on a terminal, one line per epoch in a log."""
    return 1 if sys.stdout.isatty() else 2


def end_live_line() -> None:
    """Starts a new line below a bar; call it before an error is printed."""
    if sys.stdout.isatty():
        print(flush=True)


def _text(figures: dict[str, float]) -> str:
    """Figures of four digits, of constant width."""
    return "  ".join(
        f"{name} {value:,.0f}" if abs(value) >= 1000 else f"{name} {value:#.4g}"
        for name, value in figures.items()
    )
