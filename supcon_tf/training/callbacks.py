"""Callbacks of a run: records of epochs, warnings, and stops on NaN."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Iterator

import tensorflow as tf

from supcon_tf import exceptions, run_files
from supcon_tf.disk import files
from supcon_tf.keras_2 import keras
from supcon_tf.training import console, progress

_REMEDY = (
    "lower --learning_rate or lengthen --warmup_epochs; earlier checkpoints "
    "are kept"
)


class EpochRecords(keras.callbacks.Callback):
    """Keeps the figures of every epoch, in metrics.jsonl and as curves.

    A line of metrics.jsonl is a JSON object, null for NaN and infinity. The
    curves are TensorBoard's scalars over the number of the epoch, in
    tensorboard/train/ of the run. When training begins they are written anew
    from metrics.jsonl, so that those of a resumed run have every epoch once.

    Put it behind the callbacks that add to the logs.

    Args:
      run: the directory of the records.
      start_epoch: finished epochs at which the run goes on; lines of later
        epochs are removed when training begins.
    """

    def __init__(self, run: run_files.RunDirectory, start_epoch: int = 0):
        super().__init__()
        self.run = run
        self.start_epoch = start_epoch

    def on_train_begin(self, logs: dict | None = None) -> None:
        lines = run_files.read_metrics(self.run.metrics_file, leave_out=True)
        # Two processes may have written an epoch: the later line counts.
        epochs = {figures["epoch"]: figures for figures in lines}
        numbers = [n for n in sorted(epochs) if n <= self.start_epoch]
        records = [epochs[number] for number in numbers]
        if self.run.metrics_file.exists():
            json_lines = [json.dumps(figures) + "\n" for figures in records]
            files.write_atomically(self.run.metrics_file, "".join(json_lines))
        directory = self.run.tensorboard / "train"
        for file in files.children(directory, "events.*"):
            file.unlink()
        self._writer = tf.summary.create_file_writer(str(directory))
        for figures in records:
            self._draw(figures.pop("epoch"), figures)

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        figures = {
            name: float(value) if math.isfinite(value) else None
            for name, value in logs.items()
        }
        path = self.run.metrics_file
        with files.room_for(path), path.open("a") as file:
            file.write(json.dumps({"epoch": epoch + 1, **figures}) + "\n")
        self._draw(epoch + 1, logs)
        self._writer.flush()

    def on_train_end(self, logs: dict | None = None) -> None:
        self._writer.close()

    def _draw(self, epoch: int, figures: dict[str, float | None]) -> None:
        with self._writer.as_default(step=epoch):
            for name, value in figures.items():
                if value is not None:
                    tf.summary.scalar(name, value)


class StopOnNonFiniteLoss(keras.callbacks.Callback):
    """Ends the run at the first step whose loss is NaN or infinite.

    Raises FloatingPointError, which names the step. Checks `loss` and
    `..._loss`: other metrics may be NaN without examples. A step that
    mixed_float16 skips has a finite loss.
    """

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        for name, value in logs.items():
            is_loss = name == "loss" or name.endswith("_loss")
            if is_loss and not math.isfinite(value):
                _stop(self.model, f"{name} is {value}")


def check_finite_weights(model: keras.Model) -> None:
    """Checks that the variables of model and optimizer are finite.

    The gradient of a finite loss may not be finite, and a checkpoint may come
    before the loss of the next step. All workers must call this: they average
    the statistics of batch norm.

    Raises:
      FloatingPointError: a variable holds NaN or infinity; it is named.
    """
    # A method of older optimizers, such as LAMB; the property of the newer
    # ones may be called too.
    variables = [*model.variables, *model.optimizer.variables()]
    variables = [v for v in variables if v.dtype.is_floating]
    finite = _are_finite([tf.convert_to_tensor(v) for v in variables]).numpy()
    for variable, is_finite in zip(variables, finite, strict=True):
        if not is_finite:
            _stop(model, f"{variable.name} is not finite")


@tf.function
def _are_finite(values: list[tf.Tensor]) -> tf.Tensor:
    """Whether each tensor is finite everywhere, [len(values)] bool."""
    return tf.stack([tf.reduce_all(tf.math.is_finite(v)) for v in values])


class _Warning(keras.callbacks.Callback):
    """Prints a warning once per run, after some steps."""

    def __init__(self, after_steps: int = 100):
        super().__init__()
        self.after_steps = after_steps
        self.warned = False


class CollapseWarning(_Warning):
    """Warns once per run of a collapse or a loss at chance level.

    Reads `loss/chance` and `mean_cosine` of an epoch, if logged, so put it
    after `progress.Figures`.

    Args:
      after_steps: optimizer steps before the first judgement: a fresh encoder
        looks collapsed too, and figures are means over the epoch.
    """

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        step = _steps_taken(self.model)
        if self.warned or step < self.after_steps:
            return
        cosine, to_chance = logs.get("mean_cosine"), logs.get("loss/chance")
        if cosine is not None and cosine > 0.99:
            symptom = (
                f"projections collapsed, their mean cosine is {cosine:.4f}"
            )
        elif to_chance is not None and abs(to_chance - 1) < 0.01:
            symptom = f"loss at chance level, loss/chance is {to_chance:.4f}"
        else:
            return
        self.warned = True
        console.print_line(
            "warning",
            f"{symptom} after {step} steps: try a learning rate "
            "ten times as large or as small, and milder views (--crop_area, "
            "--jitter_strength); docs/guides/training.md, Does it learn?",
        )


class InputBoundWarning(_Warning):
    """Warns once per run that the steps wait for data.

    Reads `data_wait` of an epoch, so put it after `progress.DataWait`.

    Args:
      after_steps: steps of this `fit` before the first judgement: early steps
        wait for threads that start and buffers that fill.
    """

    _steps = 0

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        self._steps += 1

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        share = logs["data_wait"]
        # Without a wait of a quarter the run would be a third faster: less is
        # not worth a line.
        if self.warned or share <= 0.25 or self._steps < self.after_steps:
            return
        self.warned = True
        console.print_line(
            "input-bound",
            f"{100 * share:.0f} % of the time spent waiting for "
            "data: more CPU cores, a faster disk, smaller image files, a "
            "smaller --image_size, or less work per view (--augmentation, "
            "--warp_probability, --blur_probability)",
        )


@contextlib.contextmanager
def trying_rates() -> Iterator[None]:
    """Makes the errors of a training that diverges name --learning_rates.

    Tools that try several rates have no --learning_rate, and do not keep the
    checkpoints of a training.
    """
    try:
        yield
    except exceptions.Diverged as error:
        message = str(error).replace(_REMEDY, "lower --learning_rates")
        raise exceptions.Diverged(message) from error


def _stop(model: keras.Model, symptom: str) -> None:
    progress.end_live_line()
    step = _steps_taken(model)
    raise exceptions.Diverged(f"{symptom} at step {step}: {_REMEDY}")


def _steps_taken(model: keras.Model) -> int:
    """Optimizer steps so far; the counter is mirrored on several replicas."""
    return int(tf.convert_to_tensor(model.optimizer.iterations))
