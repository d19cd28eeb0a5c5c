"""The training loop of a stage: Keras' `fit`, resumed where it was."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from supcon_tf import config, distribute
from supcon_tf.training import (
    checkpoints,
    devices,
    monitoring,
    report,
    run_directory,
    saving,
    waiting,
)

# From (first step, (index, count) of this worker) to its batches.
MakeBatches = Callable[[int, tuple[int, int]], tf.data.Dataset]


def open_run(
    run: run_directory.RunDirectory,
    chosen: config.PretrainSettings | config.LinearSettings,
    class_names: tuple[str, ...],
    strategy: tf.distribute.Strategy,
) -> bool:
    """Starts a run in its directory, or finds the one to go on with.

    Args:
      run: the directory.
      chosen: the settings, resolved.
      class_names: of the data.
      strategy: of the run; its chief writes.

    Returns:
      Whether the run goes on.

    Raises:
      ValueError: the directory is taken, or its run has other settings or
        classes.
    """
    if distribute.is_chief(strategy):
        resumes = chosen.resume and run.settings_file.exists()
        if resumes:
            run.check_same(chosen)
            run.check_classes(class_names)
            checkpoints.remove_partial(run.checkpoints)
        else:
            run.check_free(chosen.overwrite)
            run.create(chosen, class_names)
    devices.wait_for_all(strategy)
    return chosen.resume and bool(checkpoints.steps_in(run.checkpoints))


def fit(
    chosen: config.PretrainSettings | config.LinearSettings,
    run: run_directory.RunDirectory,
    model: tf.keras.Model,
    parts: dict[str, tf.Module],
    make_batches: MakeBatches,
    *,
    epoch_steps: int,
    resumes: bool,
    chance: float | None = None,
) -> None:
    """Trains a compiled model to the last epoch, from wherever the run is.

    Args:
      chosen: the settings of the stage.
      run: its directory, opened.
      model: compiled under its strategy.
      parts: what a checkpoint holds, by name, optimizer included.
      make_batches: makes the endless batches.
      epoch_steps: steps of an epoch.
      resumes: whether to go on from the newest checkpoint.
      chance: loss of equal projections, if the objective has one.

    Raises:
      ValueError: the newest checkpoint is damaged or does not fit.
      FloatingPointError: a loss or a weight is no longer finite.
      OSError: a checkpoint could not be written.
      Preempted: SIGTERM came; the run is saved.
    """
    start = checkpoints.Progress(0, epoch_steps)
    strategy = model.distribute_strategy
    with strategy.scope():
        model.optimizer.build(model.trainable_variables)
        if resumes:
            start = _restore(run, parts, epoch_steps)
    if not chosen.epochs:
        checkpoints.save(
            run.checkpoints,
            parts,
            start,
            is_chief=distribute.is_chief(strategy),
        )
    if start.epoch >= chosen.epochs:
        return
    wait = waiting.DataWait()
    saver = saving.Saver(run.checkpoints, parts, chosen, start, chosen.epochs)
    watchers = monitoring.make_callbacks(
        chosen, run, steps=epoch_steps, chance=chance, wait=wait, start=start
    )
    with saver.notice:
        model.fit(
            devices.distributed(
                strategy,
                lambda shard: wait.attach(make_batches(start.step, shard)),
            ),
            epochs=chosen.epochs,
            steps_per_epoch=epoch_steps,
            verbose=monitoring.verbosity(),
            callbacks=[*watchers, saver],
        )


def _restore(
    run: run_directory.RunDirectory,
    parts: dict[str, tf.Module],
    epoch_steps: int,
) -> checkpoints.Progress:
    """Restores the newest checkpoint, and says so."""
    path = checkpoints.path_of(
        run.checkpoints, checkpoints.steps_in(run.checkpoints)[-1]
    )
    progress = checkpoints.read_progress(path)
    if progress.epoch_steps != epoch_steps:
        raise ValueError(
            f"--resume must find the data of {run.path}, got {epoch_steps} "
            f"steps per epoch (was {progress.epoch_steps})"
        )
    checkpoints.restore(path, **parts)
    report.print_done("resumed", f"{path}, {progress.epoch} epochs done")
    return progress
