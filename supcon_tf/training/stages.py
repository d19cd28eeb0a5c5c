"""The two stages of the paper: pretraining, and the linear classifier."""

from __future__ import annotations

import sys

import tensorflow as tf

from supcon_tf import config, data, distribute, losses, models
from supcon_tf.training import (
    builders,
    callbacks,
    input_pipeline,
    optimization,
    report,
    representations,
    restoring,
    run_directory,
    waiting,
)


def pretrain(chosen: config.PretrainSettings) -> run_directory.RunDirectory:
    """Stage 1: trains the encoder with the SupCon loss or a compared one.

    Everything that can be wrong with settings, directory and data is found
    before the first step.

    Args:
      chosen: the settings.

    Returns:
      The run directory, with a checkpoint of the last epoch.

    Raises:
      ValueError: run_dir is taken, the data cannot be read as images of
        classes, or the batch does not fit the data or the replicas.
    """
    run = run_directory.RunDirectory(chosen.run_dir)
    run.check_free(chosen.overwrite)
    strategy = distribute.make_strategy(chosen.strategy)
    _check_batch(chosen, strategy.num_replicas_in_sync)
    images = input_pipeline.source(chosen, "train")
    chosen = input_pipeline.resolved(chosen, images)
    steps = data.steps_per_epoch(images, chosen.batch_size)
    views = _views(chosen, images)
    tf.keras.utils.set_random_seed(chosen.seed)
    chance = _chance(chosen, strategy.num_replicas_in_sync)
    with strategy.scope():
        model = builders.model(chosen, len(images.class_names))
        optimizer = optimization.optimizer(chosen, steps)
        model.compile(optimizer, builders.loss(chosen), _metrics(chosen))
        report.print_header(images, chosen.image_size)
        report.print_pretraining(
            chosen,
            model,
            steps=steps,
            learning_rate=_peak(optimizer),
            chance=chance,
        )
        run.create(chosen, images.class_names)
        manager = _checkpoint_manager(
            run, **builders.checkpointed(model), optimizer=optimizer
        )
    if chosen.epochs:
        wait = waiting.DataWait()
        model.fit(
            wait.attach(views),
            epochs=chosen.epochs,
            steps_per_epoch=steps,
            verbose=_verbosity(),
            callbacks=_callbacks(chosen, run, manager, steps, chance, wait),
        )
    else:
        manager.save(0)
    report.print_done("pretrained", run.latest_checkpoint())
    return run


def _views(
    chosen: config.PretrainSettings, images: data.Source
) -> tf.data.Dataset:
    """The training batches of stage 1, mixed if its settings say so."""
    mix = input_pipeline.mixing(chosen, len(images.class_names))
    return input_pipeline.views(
        chosen, images, chosen.image_size, chosen.num_views, mix
    )


def _callbacks(
    chosen: config.PretrainSettings,
    run: run_directory.RunDirectory,
    manager: tf.train.CheckpointManager,
    steps: int,
    chance: float | None,
    wait: waiting.DataWait,
) -> list[tf.keras.callbacks.Callback]:
    """Checks, figures, files and checkpoints of stage 1, in that order."""
    return [
        callbacks.StopOnNonFiniteLoss(),
        callbacks.EpochFigures(steps * chosen.batch_size, chance),
        callbacks.CollapseWarning(_settled_after(chosen, steps)),
        wait,
        callbacks.InputBoundWarning(),
        *_recorders(run),
        callbacks.Checkpoints(manager, chosen.checkpoint_every, chosen.epochs),
    ]


def _peak(optimizer: tf.keras.optimizers.Optimizer) -> float:
    """Highest learning rate of an optimizer made by `builders`."""
    return optimizer.get_config()["learning_rate"]["config"]["peak"]


def train_linear(chosen: config.LinearSettings) -> run_directory.RunDirectory:
    """Stage 2: trains a linear classifier on the frozen encoder of a run.

    Args:
      chosen: the settings; data and encoder are those of the run.

    Returns:
      The stage's directory, with a checkpoint of the classifier.

    Raises:
      ValueError: run_dir is no pretrained run, the stage's name is taken, or
        the data has other classes than the run.
    """
    run = run_directory.RunDirectory(chosen.run_dir)
    pretrained = run.pretrain_settings()
    stage = run.stage(chosen.name)
    stage.check_free(chosen.overwrite)
    checkpoint = run.latest_checkpoint()
    images = input_pipeline.source(pretrained, "train")
    run.check_classes(images.class_names)
    size = pretrained.image_size
    tf.keras.utils.set_random_seed(chosen.seed)
    classifier = models.LinearClassifier(
        restoring.restored_encoder(run), len(images.class_names)
    )
    classifier.build((None, size, size, 3))
    report.print_header(images, size)
    report.print_done("encoder", checkpoint)
    stage.create(chosen, images.class_names)
    if _views_are_constant(chosen):
        _fit_on_representations(chosen, stage, classifier, images, size)
    else:
        _fit_on_views(chosen, stage, classifier, images, size)
    manager = _checkpoint_manager(stage, classifier=classifier.classifier)
    manager.checkpoint.epoch.assign(chosen.epochs)
    manager.save(chosen.epochs)
    report.print_done("classifier", stage.latest_checkpoint())
    return stage


def _fit_on_views(
    chosen: config.LinearSettings,
    stage: run_directory.RunDirectory,
    classifier: models.LinearClassifier,
    images: data.Source,
    size: int,
) -> None:
    """Trains on one augmented view per image and epoch."""
    steps = data.steps_per_epoch(images, chosen.batch_size)
    views = input_pipeline.views(chosen, images, size, 1)
    wait = waiting.DataWait()
    _fit_linear(
        chosen,
        stage,
        classifier,
        steps,
        [wait, callbacks.InputBoundWarning()],
        x=wait.attach(views.map(lambda view, labels: (view[:, 0], labels))),
        steps_per_epoch=steps,
        verbose=_verbosity(),
    )


def _fit_on_representations(
    chosen: config.LinearSettings,
    stage: run_directory.RunDirectory,
    classifier: models.LinearClassifier,
    images: data.Source,
    size: int,
) -> None:
    """Trains on representations, which without augmentation never change."""
    inputs, labels = representations.represent(
        classifier.encoder,
        images,
        batch_size=chosen.batch_size,
        image_size=size,
    )
    steps = -(-len(labels) // chosen.batch_size)
    _fit_linear(
        chosen,
        stage,
        tf.keras.Sequential([classifier.classifier]),
        steps,
        [],  # in memory, nothing to wait for
        x=inputs,
        y=labels,
        batch_size=chosen.batch_size,
        verbose=0,  # an epoch takes milliseconds
    )


def _fit_linear(
    chosen: config.LinearSettings,
    stage: run_directory.RunDirectory,
    model: tf.keras.Model,
    steps: int,
    on_input: list[tf.keras.callbacks.Callback],
    **inputs: object,
) -> None:
    """Cross-entropy on logits, the classifier being all that trains."""
    optimizer = optimization.optimizer(chosen, steps)
    model.compile(
        optimizer,
        tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    report.print_optimizer(chosen, _peak(optimizer))
    history = model.fit(
        **inputs,
        epochs=chosen.epochs,
        callbacks=[
            callbacks.StopOnNonFiniteLoss(),
            callbacks.EpochFigures(steps * chosen.batch_size),
            *on_input,
            *_recorders(stage),
        ],
    ).history
    if chosen.epochs:
        report.print_done(
            "training",
            f"{chosen.epochs} epochs, loss {history['loss'][-1]:.4f}, "
            f"accuracy {history['accuracy'][-1]:.4f} on the training views",
        )


def _views_are_constant(chosen: config.LinearSettings) -> bool:
    """Whether an image looks the same in every epoch."""
    return (
        chosen.augmentation == "identity"
        and not chosen.crop_area
        and not chosen.horizontal_flip
    )


def _check_batch(chosen: config.PretrainSettings, replicas: int) -> None:
    """Raises ValueError for a batch that replicas cannot share equally."""
    if chosen.batch_size % replicas:
        raise ValueError(
            f"--batch_size must be a multiple of the {replicas} replicas, "
            f"got {chosen.batch_size}"
        )


def _chance(chosen: config.PretrainSettings, replicas: int) -> float | None:
    """The loss of equal projections, where the objective has tau and A(i)."""
    if chosen.loss not in ("supcon", "simclr"):
        return None
    shares = 1 if chosen.cross_replica else replicas
    contrasts = chosen.batch_size // shares * chosen.num_views - 1
    return losses.chance_loss(
        contrasts, chosen.temperature, chosen.scale_by_temperature
    )


def _metrics(
    chosen: config.PretrainSettings,
) -> list[tf.keras.metrics.Metric]:
    """Diagnostics of the projections, where the objective has any."""
    if not chosen.has_projections:
        return []
    return losses.diagnostics(chosen.cross_replica)


def _settled_after(chosen: config.PretrainSettings, steps: int) -> int:
    """Steps after which a healthy run has left the chance level.

    Two epochs past the warm-up, so that the epoch's means hold nothing of it,
    and 100 steps, so that a handful of large batches is not judged.
    """
    return max(100, round((chosen.warmup_epochs + 2) * steps))


def _checkpoint_manager(
    run: run_directory.RunDirectory, **parts: tf.Module
) -> tf.train.CheckpointManager:
    """Manages the checkpoints of a run, each with its number of epochs."""
    checkpoint = tf.train.Checkpoint(
        epoch=tf.Variable(0, dtype=tf.int64), **parts
    )
    return tf.train.CheckpointManager(
        checkpoint, str(run.checkpoints), max_to_keep=3, checkpoint_name="epoch"
    )


def _recorders(
    run: run_directory.RunDirectory,
) -> list[tf.keras.callbacks.Callback]:
    """The files that learning curves come from."""
    return [
        callbacks.MetricsFile(run.metrics_file),
        tf.keras.callbacks.TensorBoard(str(run.tensorboard), write_graph=False),
    ]


def _verbosity() -> str | int:
    """A progress bar on a terminal, one line per epoch in a log."""
    return 1 if sys.stdout.isatty() else 2
