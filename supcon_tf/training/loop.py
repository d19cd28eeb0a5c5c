"""The training loop of a stage: Keras' `fit`, resumed where it was."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence

import tensorflow as tf

from supcon_tf import (
    config,
    data,
    distribute,
    exceptions,
    locks,
    run_files,
)
from supcon_tf.keras_2 import keras
from supcon_tf.settings import adopt
from supcon_tf.training import (
    builders,
    callbacks,
    chance,
    checkpoints,
    console,
    devices,
    materials,
    preemption,
    progress,
    saving,
    tensorboard,
)

# From (first step, (index, count) of this worker) to its batches; cached, since
# a pipeline takes a second to make.
MakeBatches = Callable[[int, tuple[int, int]], tf.data.Dataset]

# What the collectives of a worker raise when another one is gone.
_LOST = (
    tf.errors.UnavailableError,
    tf.errors.AbortedError,
    tf.errors.DeadlineExceededError,
)


def check_run(
    run: run_files.RunDirectory, settings: devices.StageSettings
) -> devices.StageSettings:
    """The settings, with what they leave to the run as it has it already.

    Raises:
      ValueError: the directory is taken, by a run or by a process that works
        on it, or cannot be written: found before anything is read.
    """
    locks.check(run.path, locks.TRAINING)
    if settings.resume and run.exists():
        recorded = run.recorded(type(settings))
        paths = vars(settings) | {"run_dir": recorded.run_dir}
        moved = run_files.moved_data(paths, settings.run_dir)
        console.print_moved(moved)
        return dataclasses.replace(adopt(settings, recorded), **moved)
    run.check_free(settings.overwrite)
    return settings


@contextlib.contextmanager
def open_run(
    settings: devices.StageSettings,
    run: run_files.RunDirectory,
    images: data.Source,
    strategy: tf.distribute.Strategy,
    skipped: Sequence[str] = (),
    made_of: Mapping[str, object] | None = None,
) -> Iterator[bool]:
    """Starts a run in its directory, or finds the one to go on with.

    One that goes on may have more epochs than it was begun with. `strategy` is
    the one whose chief writes, and `made_of` what `materials` found; the others
    are those of `fit`. While it is entered, no other process can open the run.

    Yields:
      Whether the run goes on.

    Raises:
      ValueError: the directory is taken, or its run has other settings,
        classes or images, or is of another checkpoint.
    """
    with contextlib.ExitStack() as stack:
        if distribute.is_chief(strategy):
            stack.enter_context(locks.held(run.path, locks.TRAINING))
            _open(settings, run, images, skipped, made_of or {})
        with _peers_may_be_lost(strategy):  # the chief, by what it found above
            devices.wait_for_all(strategy)
        yield settings.resume and bool(run_files.steps_in(run.checkpoints))


def _open(
    settings: devices.StageSettings,
    run: run_files.RunDirectory,
    images: data.Source,
    skipped: Sequence[str],
    made_of: Mapping[str, object],
) -> None:
    """What the chief writes as a run is opened, or why it cannot be."""
    unread = (*images.skipped, *skipped)
    if settings.resume and run.exists():
        run.check_same(settings)
        run.complete(images.class_names, images.ids, unread)
        run.check_classes(images.class_names)
        run.check_images(images.ids)
        materials.check(run, made_of)
        epochs = getattr(run.recorded(type(settings)), "epochs", None)
        run.record(settings)  # files that have moved, a larger number of epochs
        if epochs is not None and settings.epochs > epochs:
            console.print_line(
                "extended",
                f"from {epochs} to {settings.epochs} epochs: the schedule is "
                "that of a run of so many, so the learning rate goes on where "
                "such a run would be now, not where this one was",
            )
        checkpoints.remove_partial(run.checkpoints)
        checkpoints.remove_partial(run.best)
    else:
        run.check_free(settings.overwrite)
        run.create(settings, images.class_names, images.ids, unread)


def fit(
    settings: devices.StageSettings,
    run: run_files.RunDirectory,
    images: data.Source,
    model: keras.Model,
    make_batches: MakeBatches,
    *,
    steps: int | None = None,
    skipped: Sequence[str] = (),
    measures: Sequence[keras.callbacks.Callback] = (),
    views: MakeBatches | None = None,
    made_of: Mapping[str, object] | None = None,
) -> None:
    """Opens a run, and trains to its last epoch from wherever it is.

    Args:
      settings: those of the stage, resolved.
      run: its directory.
      images: that it trains on.
      model: compiled under the strategy.
      make_batches: makes the endless batches.
      steps: of an epoch; None for those that its images make.
      skipped: files of other splits that could not be read.
      measures: callbacks that add figures to the logs of an epoch.
      views: makes those whose first is drawn for TensorBoard; None draws none.
      made_of: what its checkpoints record beside classes and images; see
        `origins.recorded`.

    Raises:
      ValueError: as `open_run`; the newest checkpoint is damaged or no fit.
      FloatingPointError: a loss or a weight is no longer finite.
      ValueError: or a file of the images is lost; the run is saved before.
      OSError: a checkpoint could not be written.
      Preempted: a signal came, and the run is saved; or a worker is gone.
    """
    strategy = model.distribute_strategy
    parts = builders.checkpointed(model) | {"optimizer": model.optimizer}
    own = distribute.shard(strategy)
    make_batches(0, own)  # wrong ones begin no run
    made_of = materials.of_training(images) | {**(made_of or {})}
    opened = open_run(settings, run, images, strategy, skipped, made_of)
    with opened as resumes:
        steps = steps or data.steps_per_epoch(images, settings.batch_size)
        start = _start(run, model, parts, steps, resumes, made_of)
        if start.epoch < settings.epochs:
            saver = saving.Saver(run.checkpoints, parts, settings, start)
            shown = views and views(0, own)
            _fit(
                settings,
                run,
                images,
                model,
                make_batches,
                saver,
                measures,
                shown,
            )
        elif not resumes:
            is_chief = distribute.is_chief(strategy)
            checkpoints.save(run.checkpoints, parts, start, is_chief=is_chief)


def _fit(
    settings: devices.StageSettings,
    run: run_files.RunDirectory,
    images: data.Source,
    model: keras.Model,
    make_batches: MakeBatches,
    saver: saving.Saver,
    measures: Sequence[keras.callbacks.Callback],
    views: tf.data.Dataset | None,
) -> None:
    """Trains from where the saver starts; the others are those of `fit`."""
    strategy, start = model.distribute_strategy, saver.start
    wait = progress.DataWait()
    watchers = make_callbacks(
        settings, run, strategy, start, wait, measures, views, images
    )
    # Several workers make the batches of each replica themselves.
    workers = distribute.num_workers(strategy)
    replicas = strategy.num_replicas_in_sync // workers if workers > 1 else 1
    batches = devices.distributed(
        strategy,
        lambda shard: wait.attach(make_batches(start.step, shard), replicas),
    )
    with saver.notice, _peers_may_be_lost(strategy):
        try:
            with data.reading(lambda: (images,)):
                model.fit(
                    batches,
                    epochs=settings.epochs,
                    steps_per_epoch=start.epoch_steps,
                    verbose=progress.verbosity(),
                    callbacks=[*watchers, saver],
                )
        except exceptions.FileLost as error:
            progress.end_live_line()
            step = saver.save_last()
            raise exceptions.FileLost(
                f"{error}: saved at step {step}; once the data are as they "
                "were, --resume goes on from there"
            ) from error


def _start(
    run: run_files.RunDirectory,
    model: keras.Model,
    parts: dict[str, tf.Module],
    epoch_steps: int,
    resumes: bool,
    made_of: Mapping[str, object],
) -> checkpoints.Progress:
    """Makes the model ready for its first step here, restored if it resumes."""
    # The logs of a step are equal on all workers: Keras would add them up.
    model.distribute_reduction_method = "first"
    with model.distribute_strategy.scope():
        # Keras' loss scaling around TFA's LAMB has no `build` of its own.
        optimizer = getattr(model.optimizer, "inner_optimizer", model.optimizer)
        optimizer.build(model.trainable_variables)
        if not resumes:
            return checkpoints.Progress(0, epoch_steps, made_of=made_of)
        path = run.latest_checkpoint()
        done = checkpoints.read_progress(path)
        exceptions.require(
            done.epoch_steps == epoch_steps,
            f"--resume must find the data of {run.path}",
            f"{epoch_steps} steps per epoch (was {done.epoch_steps})",
        )
        checkpoints.restore(path, **parts)
    console.print_line("resumed", f"{path}, {done.epoch} epochs done")
    return dataclasses.replace(done, made_of=done.made_of | made_of)


def make_callbacks(
    settings: devices.StageSettings,
    run: run_files.RunDirectory,
    strategy: tf.distribute.Strategy,
    start: checkpoints.Progress,
    wait: progress.DataWait | None = None,
    measures: Sequence[keras.callbacks.Callback] = (),
    views: tf.data.Dataset | None = None,
    images: data.Source | None = None,
) -> list[keras.callbacks.Callback]:
    """Checks, figures, what shows them, warnings and files, in that order.

    The strategy's chief writes the files; `wait` is attached to the batches, if
    they come from a pipeline; the others are those of `fit`.
    """
    pretrains = isinstance(settings, config.PretrainSettings)
    replicas = strategy.num_replicas_in_sync
    of_chance = chance.level(settings, replicas, images) if pretrains else None
    made = [
        callbacks.StopOnNonFiniteLoss(),
        progress.Figures(settings.batch_size, of_chance),
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
    made.append(callbacks.EpochRecords(run, start.epoch))
    if views is not None:
        made.append(tensorboard.Views(run.tensorboard, views))
    if pretrains and settings.profile:
        made.append(tensorboard.Profile(run.tensorboard, *settings.profile))
    return made


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
