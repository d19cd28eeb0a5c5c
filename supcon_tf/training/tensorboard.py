"""Files for TensorBoard beside the curves: a grid of views, and a profile."""

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

    The grid has a row for each of the first eight images of the first batch,
    views [batch, views, height, width, 3] uint8 and labels.
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
    """Rows of images as one image, white where a row has no image.

    A row is [columns, height, width, 3] uint8, of any number of columns.
    `right` and `below` are the gaps right of each image and below it, pixels.

    Returns:
      [rows * (height + below), most columns * (width + right), 3] uint8.
    """
    height, width = rows[0].shape[1:3]
    shape = len(rows), max(map(len, rows)), height + below, width + right, 3
    cells = np.full(shape, 255, np.uint8)  # [rows, columns, H, W, 3]
    for cell, row in zip(cells, rows, strict=True):
        cell[: len(row), :height, :width] = row
    cells = cells.swapaxes(1, 2)  # [rows, H, columns, W, 3]
    return cells.reshape(shape[0] * shape[2], -1, 3)


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
        self._is_profiling = False
        self._start_if_due()

    def on_train_batch_begin(
        self, batch: int, logs: dict | None = None
    ) -> None:
        # The marks of steps that divide a profile surround both calls of Keras:
        # from begin to end, the outer steps would have no mark.
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
            self._is_profiling = True

    def _stop_if_due(self, ends: bool = False) -> None:
        """Stops after the last step, and writes a profile of any steps."""
        if self._is_profiling and (ends or self._step == self.last):
            self._is_profiling = False
            tf.profiler.experimental.stop(save=self._step >= self.first)
