"""What a run reports and records while it trains."""

from __future__ import annotations

import sys

import tensorflow as tf

from supcon_tf import config
from supcon_tf.training import callbacks, checkpoints, run_directory, waiting


def make_callbacks(
    chosen: config.PretrainSettings | config.LinearSettings,
    run: run_directory.RunDirectory,
    *,
    steps: int,
    chance: float | None = None,
    wait: waiting.DataWait | None = None,
    start: checkpoints.Progress | None = None,
) -> list[tf.keras.callbacks.Callback]:
    """Checks, figures and files of a stage, in that order."""
    settled = max(100, round((chosen.warmup_epochs + 2) * steps))
    return [
        callbacks.StopOnNonFiniteLoss(),
        callbacks.EpochFigures(steps * chosen.batch_size, chance),
        callbacks.CollapseWarning(settled),
        *([wait, callbacks.InputBoundWarning()] if wait else []),
        callbacks.MetricsFile(run.metrics_file),
        tf.keras.callbacks.TensorBoard(str(run.tensorboard), write_graph=False),
    ]


def verbosity() -> str | int:
    """A progress bar on a terminal, one line per epoch in a log."""
    return 1 if sys.stdout.isatty() else 2
