"""The training loop of a stage: Keras' `fit`, resumed where it was."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence

import tensorflow as tf

from supcon_tf import (
    config,
    data,
    distribute,
    exceptions,
    run_files,
    settings,
)
from supcon_tf.training import (
    checkpoints,
    console,
    devices,
    monitoring,
    preemption,
    progress,
    saving,
    waiting,
)

StageSettings = config.PretrainSettings | config.LinearSettings

# From (first step, (index, count) of this worker) to its batches; cached, for
# to make a pipeline takes a second.
MakeBatches = Callable[[int, tuple[int, int]], tf.data.Dataset]

# What the collectives of a worker raise when another one is gone.
_LOST = (
    tf.errors.UnavailableError,
    tf.errors.AbortedError,
    tf.errors.DeadlineExceededError,
)


def check_run(
    run: run_files.RunDirectory, chosen: StageSettings
) -> StageSettings:
    """Finds, before anything is read, what forbids to train in a directory.

    Args:
      run: the directory.
      chosen: the settings.

    Returns:
      The settings, with what they leave to the run as it has it already.

    Raises:
      ValueError: the directory is taken or cannot be written.
    """
    if not chosen.resume or not run.settings_file.exists():
        run.check_free(chosen.overwrite)
        return chosen
    return settings.adopt(chosen, run.recorded(type(chosen)))


def open_run(
    run: run_files.RunDirectory,
    chosen: StageSettings,
    images: data.Source,
    strategy: tf.distribute.Strategy,
    skipped: tuple[str, ...] = (),
) -> bool:
    """Starts a run in its directory, or finds the one to go on with.

    Args:
      run: the directory.
      chosen: the settings, resolved.
      images: that it trains on.
      strategy: of the run; its chief writes.
      skipped: files of other splits that could not be read.

    Returns:
      Whether the run goes on.

    Raises:
      ValueError: the directory is taken, or its run has other settings,
        classes or images.
    """
    if distribute.is_chief(strategy):
        resumes = chosen.resume and run.settings_file.exists()
        if resumes:
            run.check_same(chosen)
            run.check_classes(images.class_names)
            run.check_images(images.ids)
            _extend(run, chosen)
            checkpoints.remove_partial(run.checkpoints)
        else:
            run.check_free(chosen.overwrite)
            unread = (*images.skipped, *skipped)
            run.create(chosen, images.class_names, images.ids, unread)
    with _peers_may_be_lost(strategy):  # the chief, by what it found above
        devices.wait_for_all(strategy)
    return chosen.resume and bool(run_files.steps_in(run.checkpoints))


def _extend(run: run_files.RunDirectory, chosen: StageSettings) -> None:
    """Lets a run have more epochs than it was begun with, and says so."""
    before = run.recorded(type(chosen))
    if chosen.epochs > before.epochs:
        run.record(chosen)
        console.print_line(
            "extended",
            f"from {before.epochs} to {chosen.epochs} epochs: the schedule is "
            "that of a run of so many, so the learning rate goes on where such "
            "a run would be now, not where this one was",
        )


def fit(
    chosen: StageSettings,
    run: run_files.RunDirectory,
    model: tf.keras.Model,
    parts: dict[str, tf.Module],
    make_batches: MakeBatches,
    *,
    epoch_steps: int,
    resumes: bool,
    chance: float | None = None,
    measures: Sequence[tf.keras.callbacks.Callback] = (),
    views: tf.data.Dataset | None = None,
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
      measures: callbacks that add figures to the logs of an epoch.
      views: batches whose first is drawn for TensorBoard; None draws none.

    Raises:
      ValueError: the newest checkpoint is damaged or does not fit.
      FloatingPointError: a loss or a weight is no longer finite.
      OSError: a checkpoint could not be written.
      Preempted: SIGTERM or Ctrl-C came, and the run is saved; or another
        worker is gone.
    """
    strategy = model.distribute_strategy
    is_chief = distribute.is_chief(strategy)
    start = _start(run, model, parts, epoch_steps, resumes)
    if start.epoch >= chosen.epochs:
        if not resumes:
            checkpoints.save(run.checkpoints, parts, start, is_chief=is_chief)
        return
    wait = waiting.DataWait()
    saver = saving.Saver(run.checkpoints, parts, chosen, start, chosen.epochs)
    watchers = monitoring.make_callbacks(
        chosen,
        run,
        steps=epoch_steps,
        chance=chance,
        wait=wait,
        start=start,
        measures=measures,
        views=views,
        is_chief=is_chief,
    )
    batches = devices.distributed(
        strategy,
        lambda shard: _timed(wait, make_batches(start.step, shard), strategy),
    )
    with saver.notice, _peers_may_be_lost(strategy):
        model.fit(
            batches,
            epochs=chosen.epochs,
            steps_per_epoch=epoch_steps,
            verbose=monitoring.verbosity(),
            callbacks=[*watchers, saver],
        )


def _start(
    run: run_files.RunDirectory,
    model: tf.keras.Model,
    parts: dict[str, tf.Module],
    epoch_steps: int,
    resumes: bool,
) -> checkpoints.Progress:
    """Makes the model ready for its first step here, restored if it resumes."""
    # The logs of a step are equal on all workers: Keras would add them up.
    model.distribute_reduction_method = "first"
    with model.distribute_strategy.scope():
        # Keras' loss scaling around TFA's LAMB has no `build` of its own.
        optimizer = getattr(model.optimizer, "inner_optimizer", model.optimizer)
        optimizer.build(model.trainable_variables)
        if resumes:
            return _restore(run, parts, epoch_steps)
    return checkpoints.Progress(0, epoch_steps)


def _timed(
    wait: waiting.DataWait,
    batches: tf.data.Dataset,
    strategy: tf.distribute.Strategy,
) -> tf.data.Dataset:
    """Batches that note when they leave the pipeline."""
    workers = distribute.num_workers(strategy)
    # Several workers make the batches of each replica themselves.
    replicas = strategy.num_replicas_in_sync // workers if workers > 1 else 1
    return wait.attach(batches, replicas)


@contextlib.contextmanager
def _peers_may_be_lost(strategy: tf.distribute.Strategy) -> Iterator[None]:
    """Ends the process as one to be started again when a worker is gone."""
    try:
        yield
    except _LOST as error:
        if distribute.num_workers(strategy) == 1:
            raise
        progress.end_live_line()
        console.print_line(
            "lost", "another worker; --resume goes on from the last checkpoint"
        )
        raise preemption.Preempted from error


def _restore(
    run: run_files.RunDirectory,
    parts: dict[str, tf.Module],
    epoch_steps: int,
) -> checkpoints.Progress:
    """Restores the newest checkpoint, and says so."""
    path = run_files.path_of(
        run.checkpoints, run_files.steps_in(run.checkpoints)[-1]
    )
    done = checkpoints.read_progress(path)
    if done.epoch_steps != epoch_steps:
        raise exceptions.InvalidValue(
            f"--resume must find the data of {run.path}, got {epoch_steps} "
            f"steps per epoch (was {done.epoch_steps})"
        )
    checkpoints.restore(path, **parts)
    console.print_line("resumed", f"{path}, {done.epoch} epochs done")
    return done
