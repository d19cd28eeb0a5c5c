"""What a run reports and records while it trains."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import tensorflow as tf

from supcon_tf import config, run_files
from supcon_tf.training import (
    callbacks,
    checkpoints,
    progress,
    tensorboard,
    waiting,
)


def make_callbacks(
    chosen: config.PretrainSettings | config.LinearSettings,
    run: run_files.RunDirectory,
    *,
    steps: int,
    chance: float | None = None,
    wait: waiting.DataWait | None = None,
    start: checkpoints.Progress | None = None,
    measures: Sequence[tf.keras.callbacks.Callback] = (),
    views: tf.data.Dataset | None = None,
    is_chief: bool = True,
) -> list[tf.keras.callbacks.Callback]:
    """Checks, figures, what shows them, warnings and files, in that order.

    Args:
      chosen: the settings of the stage.
      run: its directory.
      steps: steps of an epoch.
      chance: loss of equal projections, if the objective has one.
      wait: attached to the batches, if they come from a pipeline.
      start: where the run goes on; None at its start.
      measures: callbacks that add more figures to the logs of an epoch.
      views: batches whose first is drawn for TensorBoard; None draws none.
      is_chief: whether this worker writes the files.
    """
    return [
        callbacks.StopOnNonFiniteLoss(),
        progress.Figures(chosen.batch_size, chance),
        *([wait] if wait else []),
        *measures,
        progress.ProgressBar(),
        *_warnings(chosen, steps, wait),
        *(_recorders(chosen, run, start, views) if is_chief else []),
    ]


def verbosity() -> int:
    """A progress bar on a terminal, one line per epoch in a log."""
    return 1 if sys.stdout.isatty() else 2


def _warnings(
    chosen: config.PretrainSettings | config.LinearSettings,
    steps: int,
    wait: waiting.DataWait | None,
) -> list[tf.keras.callbacks.Callback]:
    """What says that a run is in trouble."""
    made = []
    if isinstance(chosen, config.PretrainSettings):
        made.append(callbacks.CollapseWarning(_settled_after(chosen, steps)))
    if wait:
        made.append(callbacks.InputBoundWarning())
    return made


def _settled_after(chosen: config.PretrainSettings, steps: int) -> int:
    """Steps after which a healthy run has left the chance level.

    Two epochs past the warm-up, so that the epoch's means hold nothing of it,
    and 100 steps, so that a handful of large batches is not judged.
    """
    return max(100, round((chosen.warmup_epochs + 2) * steps))


def _recorders(
    chosen: config.PretrainSettings | config.LinearSettings,
    run: run_files.RunDirectory,
    start: checkpoints.Progress | None,
    views: tf.data.Dataset | None,
) -> list[tf.keras.callbacks.Callback]:
    """What writes the files of a run."""
    made = [
        callbacks.MetricsFile(run.metrics_file, start.epoch if start else 0),
        tensorboard.Scalars(run.tensorboard, run.metrics_file),
    ]
    if views is not None:
        made.append(tensorboard.Views(run.tensorboard, views))
    if isinstance(chosen, config.PretrainSettings) and chosen.profile:
        made.append(tensorboard.Profile(run.tensorboard, *chosen.profile))
    return made
