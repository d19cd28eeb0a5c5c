"""What a run shows while it trains: figures, and the line that shows them."""

from __future__ import annotations

import datetime
import shutil
import sys
import time

import tensorflow as tf

# In a line that is too short for all of them, the first are shown.
_LIVE = (
    "loss",
    "loss/chance",
    "contrastive_accuracy",
    "accuracy",
    "images/s",
    "data_wait",
    "learning_rate",
)
_BAR = 10  # characters
_SECONDS_PER_LOOK = 0.5  # at the learning rate, which is on the device
_SECONDS_PER_LINE = 0.1


class Figures(tf.keras.callbacks.Callback):
    """Adds loss/chance, learning rate and images/s to the logs.

    To those of every step, as they are then, and to those of the epoch. Put it
    before the callbacks that read them. images/s counts the steps that this
    `fit` takes of the epoch, all but its first, which traces.

    Args:
      images_per_step: images of a global batch.
      chance: loss of equal projections, `losses.chance_loss`; None leaves
        loss/chance out.
    """

    def __init__(self, images_per_step: int, chance: float | None = None):
        super().__init__()
        self.images_per_step = images_per_step
        self.chance = chance
        self._has_traced = False
        self._steps = 0
        self._began = 0.0
        self._traced_at: float | None = None
        self._learning_rate = 0.0
        self._looked = 0.0

    def on_train_begin(self, logs: dict | None = None) -> None:
        """Expects a first step that traces."""
        self._has_traced = False

    def on_epoch_begin(self, epoch: int, logs: dict | None = None) -> None:
        """Starts the clock."""
        self._steps = 0
        self._began = time.perf_counter()
        self._traced_at = None

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        """Adds the figures of the epoch so far."""
        now = time.perf_counter()
        self._steps += 1
        if not self._has_traced:
            self._has_traced = True
            self._traced_at = now
        if now - self._looked > _SECONDS_PER_LOOK:
            self._look()
        self._add(logs, now)

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        """Adds the figures of the epoch."""
        self._look()
        self._add(logs, time.perf_counter())

    def _look(self) -> None:
        """Reads the learning rate, mirrored on several replicas."""
        rate = self.model.optimizer.learning_rate
        self._learning_rate = float(tf.convert_to_tensor(rate))
        self._looked = time.perf_counter()

    def _add(self, logs: dict, now: float) -> None:
        """Adds the figures to `logs`."""
        if self.chance:
            logs["loss/chance"] = logs["loss"] / self.chance
        logs["learning_rate"] = self._learning_rate
        steps, began = self._steps, self._began
        if self._traced_at and steps > 1:
            steps, began = steps - 1, self._traced_at
        logs["images/s"] = steps * self.images_per_step / (now - began)


class ProgressBar(tf.keras.callbacks.ProgbarLogger):
    """Keras' progress bar, for many figures.

    A line per epoch with everything in its logs. With `fit(verbose=1)`, until
    the epoch ends, also a bar, the time left and the figures of the last step,
    as many as fit the terminal: a longer line would not overwrite itself.
    Values are shown as they are; Keras' own bar would average images/s and the
    like over the steps. It takes the place of that one, so put it behind the
    callbacks that add to the logs.
    """

    def __init__(self) -> None:
        super().__init__("steps")
        self._label = ""
        self._steps = 0
        self._began = 0.0
        self._first_ended = 0.0
        self._written = 0.0
        self._width = 0

    def on_epoch_begin(self, epoch: int, logs: dict | None = None) -> None:
        """Starts a line."""
        self._label = f"{epoch + 1}/{self.epochs}"
        self._steps = 0
        self._began = time.perf_counter()
        self._written = 0.0
        self._width = 0

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        """Writes the line anew."""
        if self.verbose != 1:
            return
        now = time.perf_counter()
        self._steps += 1
        if self._steps == 1:
            self._first_ended = now
        if now - self._written < _SECONDS_PER_LINE:
            return
        self._written = now
        columns = shutil.get_terminal_size().columns
        self._write(_fitting(self._head(batch + 1, now), logs, columns - 1))

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        """Ends the line with everything that is known of the epoch."""
        if not self.verbose:
            return
        seconds = time.perf_counter() - self._began
        figures = [_text(name, logs[name]) for name in _in_order(logs)]
        line = f"{'epoch':<12} {self._label}  {_clock(seconds)}"
        self._write("  ".join([line, *figures]))
        print(flush=True)

    def _head(self, done: int, now: float) -> str:
        """Epoch, steps, bar and the time left."""
        head = f"epoch {self._label}"
        if not self.target:
            return f"{head}  {done}"
        equals = _BAR * done // self.target
        bar = ("=" * equals + ">" + "." * _BAR)[:_BAR]
        head += f"  {done:>{len(str(self.target))}}/{self.target} [{bar}]"
        if self._steps == 1:  # it traces
            return head
        step = (now - self._first_ended) / (self._steps - 1)
        return f"{head} {_clock(step * (self.target - done))} left"

    def _write(self, line: str) -> None:
        """Writes over what stands in the line."""
        start = "\r" if self._width else ""
        print(start + line.ljust(self._width), end="", flush=True)
        self._width = len(line)


def end_live_line() -> None:
    """Starts a new line where a bar may stand; call it to say an error."""
    if sys.stdout.isatty():
        print(flush=True)


def _fitting(line: str, logs: dict, columns: int) -> str:
    """The line with the first figures, as many as there is room for."""
    for name in _in_order(logs):
        longer = f"{line}  {_text(name, logs[name])}"
        if name not in _LIVE or len(longer) > columns:
            break
        line = longer
    return line[:columns]


def _in_order(logs: dict) -> list[str]:
    """Names of the figures, most important first."""
    first = [name for name in _LIVE if name in logs]
    return first + [name for name in logs if name not in _LIVE]


def _text(name: str, value: float) -> str:
    """A figure: four digits, of constant width."""
    if abs(value) >= 1000:
        return f"{name} {value:,.0f}"
    return f"{name} {value:#.4g}"


def _clock(seconds: float) -> str:
    """Hours, minutes and seconds."""
    return str(datetime.timedelta(seconds=round(seconds)))
