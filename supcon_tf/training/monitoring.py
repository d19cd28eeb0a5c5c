"""What a run reports and records while it trains."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import tensorflow as tf

from supcon_tf import config, distribute, run_files
from supcon_tf.training import (
    builders,
    callbacks,
    checkpoints,
    devices,
    progress,
    tensorboard,
)


def make_callbacks(
    settings: devices.StageSettings,
    run: run_files.RunDirectory,
    strategy: tf.distribute.Strategy,
    start: checkpoints.Progress,
    wait: progress.DataWait | None = None,
    measures: Sequence[tf.keras.callbacks.Callback] = (),
    views: tf.data.Dataset | None = None,
) -> list[tf.keras.callbacks.Callback]:
    """Checks, figures, what shows them, warnings and files, in that order.

    The strategy's chief writes the files; `wait` is attached to the batches, if
    they come from a pipeline; the others are those of `loop.fit`.
    """
    pretrains = isinstance(settings, config.PretrainSettings)
    replicas = strategy.num_replicas_in_sync
    chance = builders.chance(settings, replicas) if pretrains else None
    made = [
        callbacks.StopOnNonFiniteLoss(),
        progress.Figures(settings.batch_size, chance),
        *([wait] if wait else []),
        *measures,
        progress.ProgressBar(),
    ]
    if pretrains:
        # Two epochs past the warm-up, so that the epoch's means hold nothing
        # of it, and 100 steps, so that a handful of batches is not judged.
        settled = round((settings.warmup_epochs + 2) * start.epoch_steps)
        made.append(callbacks.CollapseWarning(max(100, settled)))
    if wait:
        made.append(callbacks.InputBoundWarning())
    if not distribute.is_chief(strategy):
        return made
    made.append(callbacks.MetricsFile(run.metrics_file, start.epoch))
    made.append(tensorboard.Scalars(run.tensorboard, run.metrics_file))
    if views is not None:
        made.append(tensorboard.Views(run.tensorboard, views))
    if pretrains and settings.profile:
        made.append(tensorboard.Profile(run.tensorboard, *settings.profile))
    return made


def verbosity() -> int:
    """A progress bar on a terminal, one line per epoch in a log."""
    return 1 if sys.stdout.isatty() else 2
