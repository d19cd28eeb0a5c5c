"""The training loop of a stage: Keras' `fit`, from a checkpoint on."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence

import tensorflow as tf

from supcon_tf import config, data, distribute, exceptions, run_files
from supcon_tf.disk import locks
from supcon_tf.keras_2 import keras
from supcon_tf.training import (
    builders,
    callbacks,
    chance,
    checkpoints,
    console,
    devices,
    jobs,
    materials,
    preemption,
    progress,
    saving,
    tensorboard,
)

# From (first step, (index, count) of this worker) to its batches; callers cache
# it, since a pipeline takes a second to make.
MakeBatches = Callable[[int, tuple[int, int]], tf.data.Dataset]

# Errors of a worker's collectives when another worker is gone.
_LOST = (
    tf.errors.UnavailableError,
    tf.errors.AbortedError,
    tf.errors.DeadlineExceededError,
)


@contextlib.contextmanager
def open_run(
    job: jobs.Job, made_of: Mapping[str, object] | None = None
) -> Iterator[bool]:
    """Starts the run of a job, or resumes it, under a lock on the run.

    A resumed run may have more epochs than before. The chief of the strategy
    writes; `made_of` is that of `materials`.

    Yields:
      Whether the run is resumed.

    Raises:
      ValueError: the directory is taken, or its run has other settings,
        classes or images, or is of another checkpoint.
    """
    with contextlib.ExitStack() as stack:
        if distribute.is_chief(job.strategy):
            stack.enter_context(locks.held(job.run.path, locks.TRAINING))
            _open(job, made_of or {})
        # The other workers lose a chief that has just refused the run.
        with _peers_may_be_lost(job.strategy):
            devices.wait_for_all(job.strategy)
        yield job.resumes


def _open(job: jobs.Job, made_of: Mapping[str, object]) -> None:
    """Writes the first files of a new run, or checks those of a resumed run.

    Raises:
      ValueError: as `open_run`.
    """
    settings, run, train = job.settings, job.run, job.train
    unread = (*train.skipped, *(job.test.skipped if job.test else ()))
    if not (settings.resume and run.exists()):
        run.check_free(settings.overwrite)
        run.create(
            settings, train.class_names, train.ids, unread, train.digests
        )
        return
    # A sweep's cell, or a run that began after `prepare`, has none in the job.
    recorded = job.recorded or run.recorded(type(settings))
    run.check_same(settings, recorded)
    run.check_classes(train.class_names)
    run.trained_on.check_same(train.ids)
    materials.check(run, made_of)
    run.record(settings)  # files that have moved, a larger number of epochs
    has_epochs = isinstance(settings, config.OptimizerSettings)
    if has_epochs and settings.epochs > recorded.epochs:
        console.print_line(
            "extended",
            f"from {recorded.epochs} to {settings.epochs} epochs: the schedule "
            "is that of a run of so many, so the learning rate goes on where "
            "such a run would be now, not where this one was",
        )
    checkpoints.remove_partial(run.checkpoints)
    checkpoints.remove_partial(run.best)


def fit(
    job: jobs.Job,
    model: keras.Model,
    make_batches: MakeBatches,
    *,
    steps: int | None = None,
    measures: Sequence[keras.callbacks.Callback] = (),
    views: MakeBatches | None = None,
    made_of: Mapping[str, object] | None = None,
) -> None:
    """Opens a run, and trains from its newest checkpoint to its last epoch.

    Args:
      job: of the stage.
      model: compiled under the strategy of the job.
      make_batches: makes the endless batches.
      steps: of an epoch; None for a pass over the examples.
      measures: callbacks that add figures to the logs of an epoch.
      views: makes batches, of which TensorBoard gets the first; None for none.
      made_of: records of its checkpoints beside classes and images; see
        `origins.recorded`.

    Raises:
      ValueError: as `open_run`; the newest checkpoint is damaged or does not
        fit; a file of the images is lost, after the run was saved.
      FloatingPointError: a loss or a weight is no longer finite.
      OSError: a checkpoint cannot be written.
      Preempted: a signal came, and the run is saved; or a worker is gone.
    """
    parts = builders.checkpointed(model) | {"optimizer": model.optimizer}
    shard = distribute.shard(job.strategy)
    make_batches(0, shard)  # wrong ones begin no run
    made_of = materials.fingerprints(job.train) | {**(made_of or {})}
    settings, folder = job.settings, job.run.checkpoints
    with open_run(job, made_of) as resumes:
        steps = steps or job.epoch_steps
        start = _start(job.run, model, parts, steps, resumes, made_of)
        if start.epoch < settings.epochs:
            saver = saving.Saver(folder, parts, settings, start)
            first_views = views and views(0, shard)
            _fit(job, model, make_batches, saver, measures, first_views)
        elif not resumes:
            is_chief = distribute.is_chief(job.strategy)
            checkpoints.save(folder, parts, start, is_chief=is_chief)
            with _peers_may_be_lost(job.strategy):
                devices.wait_for_all(job.strategy)


def _fit(
    job: jobs.Job,
    model: keras.Model,
    make_batches: MakeBatches,
    saver: saving.Saver,
    measures: Sequence[keras.callbacks.Callback],
    views: tf.data.Dataset | None,
) -> None:
    """Trains from `saver.start` on; the other arguments are those of `fit`."""
    strategy, start = job.strategy, saver.start
    wait = progress.DataWait()
    watchers = make_callbacks(job, start, wait, measures, views)
    # Of several workers, each makes the batches of its replicas.
    workers = distribute.num_workers(strategy)
    replicas = strategy.num_replicas_in_sync // workers if workers > 1 else 1
    batches = devices.distributed(
        strategy,
        lambda shard: wait.attach(make_batches(start.step, shard), replicas),
    )
    with saver.notice, _peers_may_be_lost(strategy):
        try:
            with data.reading(lambda: (job.train,)):
                model.fit(
                    batches,
                    epochs=job.settings.epochs,
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
    """Builds the optimizer; restores a resumed run. Returns the position."""
    # The logs of a step are equal on all workers: Keras would add them up.
    model.distribute_reduction_method = "first"
    with model.distribute_strategy.scope():
        # Keras' loss scaling around TFA's LAMB has no `build` of its own.
        optimizer = getattr(model.optimizer, "inner_optimizer", model.optimizer)
        optimizer.build(model.trainable_variables)
        if not resumes:
            return checkpoints.Progress(0, epoch_steps, made_of=made_of)
        path = run.latest_checkpoint()
        saved = checkpoints.read_progress(path)
        exceptions.require(
            saved.epoch_steps == epoch_steps,
            f"--resume must find the data of {run.path}",
            f"{epoch_steps} steps per epoch (was {saved.epoch_steps})",
        )
        checkpoints.restore(path, **parts)
    console.print_line("resumed", f"{path}, {saved.epoch} epochs done")
    return dataclasses.replace(saved, made_of=saved.made_of | made_of)


def make_callbacks(
    job: jobs.Job,
    start: checkpoints.Progress,
    wait: progress.DataWait | None = None,
    measures: Sequence[keras.callbacks.Callback] = (),
    views: tf.data.Dataset | None = None,
) -> list[keras.callbacks.Callback]:
    """The callbacks: checks, figures, progress bar, warnings, files, in order.

    The strategy's chief writes the files. `wait` is attached to the batches of
    a pipeline. The other arguments are those of `fit`.
    """
    settings, chance_level = job.settings, None
    pretrains = isinstance(settings, config.PretrainSettings)
    if pretrains:
        replicas = job.strategy.num_replicas_in_sync
        chance_level = chance.level(settings, replicas, job.train)
    watchers = [
        callbacks.StopOnNonFiniteLoss(),
        progress.Figures(settings.batch_size, chance_level),
        *([wait] if wait else []),
        *measures,
        progress.ProgressBar(),
    ]
    if pretrains:
        # Two epochs past the warm-up, so that the epoch's means are without
        # it, and 100 steps, so that a handful of batches is not judged.
        settled_steps = round((settings.warmup_epochs + 2) * start.epoch_steps)
        watchers.append(callbacks.CollapseWarning(max(100, settled_steps)))
    if wait:
        watchers.append(callbacks.InputBoundWarning())
    if not distribute.is_chief(job.strategy):
        return watchers
    watchers.append(callbacks.EpochRecords(job.run, start.epoch))
    folder = job.run.tensorboard
    if views is not None:
        watchers.append(tensorboard.Views(folder, views))
    if pretrains and settings.profile:
        watchers.append(tensorboard.Profile(folder, *settings.profile))
    return watchers


@contextlib.contextmanager
def _peers_may_be_lost(strategy: tf.distribute.Strategy) -> Iterator[None]:
    """Raises `Preempted`, for a restart, where another worker is gone."""
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
