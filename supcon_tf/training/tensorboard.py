"""What a run writes for TensorBoard beside its curves: views, a profile."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tensorflow as tf
from etils import epath

from supcon_tf.keras_2 import keras
from supcon_tf.training import console

_ROWS = 8  # of the grid of views
_GAP = 2  # pixels between views


class Views(keras.callbacks.Callback):
    """Writes a grid of augmented views, once per run, when training begins.

    Of the first of the batches, views [batch, views, height, width, 3] uint8
    and labels: a row for each of eight images.
    """

    def __init__(self, directory: epath.PathLike, batches: tf.data.Dataset):
        super().__init__()
        self.directory = epath.Path(directory) / "views"
        self.batches = batches

    def on_train_begin(self, logs: dict | None = None) -> None:
        if self.directory.exists():  # by an earlier part of the run
            return
        views, *_ = next(self.batches.as_numpy_iterator())
        grid = mosaic(views[:_ROWS], _GAP, _GAP)[:-_GAP, :-_GAP]
        writer = tf.summary.create_file_writer(str(self.directory))
        with writer.as_default(step=0):
            tf.summary.image("views", grid[np.newaxis])
        writer.close()


def mosaic(
    rows: Sequence[np.ndarray], right: int = 0, below: int = 0
) -> np.ndarray:
    """Images in rows as one image, white where there is none.

    A row is [columns, height, width, 3] uint8, of any number of columns; right
    of each image and below it there are so many pixels.

    Returns:
      [rows * (height + below), most columns * (width + right), 3] uint8.
    """
    height, width = rows[0].shape[1:3]
    shape = len(rows), max(map(len, rows)), height + below, width + right, 3
    cells = np.full(shape, 255, np.uint8)
    for cell, row in zip(cells, rows, strict=True):
        cell[: len(row), :height, :width] = row
    return cells.swapaxes(1, 2).reshape(shape[0] * shape[2], -1, 3)


class Profile(keras.callbacks.Callback):
    """Profiles some steps, for TensorBoard's Profile tab.

    Args:
      directory: tensorboard/ of a run directory.
      first: first step, counted from 1 where this `fit` starts: a resumed run
        traces and fills its buffers anew.
      last: last step.
    """

    def __init__(self, directory: epath.PathLike, first: int, last: int):
        super().__init__()
        self.directory = epath.Path(directory)
        self.first = first
        self.last = last

    def on_train_begin(self, logs: dict | None = None) -> None:
        self._step = 0
        self._runs = False
        self._start_if_due()

    def on_train_batch_begin(
        self, batch: int, logs: dict | None = None
    ) -> None:
        # Keras' mark of a step, which the profile is divided by, surrounds
        # these calls: from begin to end, the outer steps would have none.
        self._stop_if_due()
        self._step += 1

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        self._start_if_due()

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        self._stop_if_due()

    def on_train_end(self, logs: dict | None = None) -> None:
        if self._step < self.first:
            console.print_line(
                "warning",
                f"no profile: {self._step} steps were taken, --profile starts "
                f"at step {self.first}",
            )
        self._stop_if_due(ends=True)

    def _start_if_due(self) -> None:
        if self._step + 1 == self.first:
            tf.profiler.experimental.start(str(self.directory))
            self._runs = True

    def _stop_if_due(self, ends: bool = False) -> None:
        """Writes a profile that has a step, when the last of them is over."""
        if self._runs and (ends or self._step == self.last):
            self._runs = False
            tf.profiler.experimental.stop(save=self._step >= self.first)
