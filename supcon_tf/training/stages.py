"""The two stages of the paper: pretraining, and the linear classifier."""

from __future__ import annotations

import dataclasses
import functools

import tensorflow as tf

from supcon_tf import config, data, exceptions, losses, models, run_files
from supcon_tf.training import (
    builders,
    checkpoints,
    console,
    devices,
    input_pipeline,
    loop,
    memory,
    monitoring,
    nearest_neighbors,
    optimization,
    representations,
    runs,
)


def pretrain(chosen: config.PretrainSettings) -> run_files.RunDirectory:
    """Stage 1: trains the encoder with the SupCon loss or a compared one.

    Everything that can be wrong with settings, directory and data is found
    before the first step. SIGTERM and Ctrl-C end the process with
    `preemption.EXIT_CODE` once the step under way is saved.

    Args:
      chosen: the settings.

    Returns:
      The run directory, with a checkpoint of the last epoch.

    Raises:
      ValueError: run_dir is taken or holds another run, the data cannot be
        read as images of classes, or the batch does not fit the data or the
        replicas.
    """
    run = run_files.RunDirectory(chosen.run_dir)
    chosen = loop.check_run(run, chosen)
    strategy = devices.set_up(chosen)
    images = input_pipeline.source(
        chosen, "train", devices.file_shard(chosen, strategy)
    )
    test = None
    # A bad file of the test split is found now, not after the training.
    if chosen.dataset == "folder" or chosen.knn_every:
        test = input_pipeline.source(chosen, "test")
    _check_learnable(chosen, images)
    chosen = input_pipeline.resolved(chosen, images)
    chosen = input_pipeline.resolved_batch(
        chosen, images, strategy.num_replicas_in_sync
    )
    with strategy.scope():
        model = _compiled_model(chosen, images)
    measures = []
    if chosen.knn_every:
        bank = images
        if images.shard is not None:  # of the files of this worker
            bank = input_pipeline.source(chosen, "train")
        every, size = chosen.knn_every, chosen.image_size
        measures = [nearest_neighbors.KnnAccuracy(bank, test, every, size)]
    batches = local = _batches(chosen, images)
    if chosen.data_service:  # whose batches are for training alone
        local = _batches(dataclasses.replace(chosen, data_service=None), images)
    loop.fit(
        chosen,
        run,
        images,
        model,
        batches,
        skipped=test.skipped if test else (),
        measures=measures,
        views=local(0, devices.shard(strategy)),
    )
    console.print_line("pretrained", run.latest_checkpoint())
    return run


def _check_learnable(
    chosen: devices.StageSettings, images: data.Source
) -> None:
    """Raises ValueError for labels that say nothing."""
    uses_labels = getattr(chosen, "objective", "") != "simclr"
    if uses_labels and len(images.class_names) < 2:
        raise exceptions.InvalidValue(
            f"{images.name} must have two classes or more for labels to teach "
            f"anything, got {', '.join(images.class_names)}; without labels "
            "--objective=simclr learns"
        )


def _compiled_model(
    chosen: config.PretrainSettings, images: data.Source
) -> models.SupConModel | models.ClassifierModel:
    """The model of stage 1; prints what is known at its start."""
    steps = data.steps_per_epoch(images, chosen.batch_size)
    model = builders.model(chosen, len(images.class_names))
    model.compile(
        optimization.optimizer(chosen, steps),
        builders.loss(chosen, model),
        losses.diagnostics(chosen.cross_replica)
        if chosen.has_projections
        else [],
        jit_compile=chosen.jit_compile or None,
    )
    console.print_pretraining(chosen, model, images)
    available = memory.available_bytes()
    if too_large := memory.warning(chosen, model.encoder, available):
        console.print_line("warning", too_large)
    return model


def _batches(
    chosen: config.PretrainSettings, images: data.Source
) -> loop.MakeBatches:
    """The training batches of stage 1, mixed if its settings say so."""
    mix = input_pipeline.mixing(chosen, len(images.class_names))
    size, num_views = chosen.image_size, chosen.num_views
    return functools.cache(
        functools.partial(
            input_pipeline.views, chosen, images, size, num_views, mix
        )
    )


def train_linear(chosen: config.LinearSettings) -> run_files.RunDirectory:
    """Stage 2: trains a linear classifier on the frozen encoder of a run.

    It starts from random weights, also where stage 1 trained a classifier: so
    after cross-entropy this is the two-stage training of Suppl. Table 3.

    Args:
      chosen: the settings; data and encoder are those of the run.

    Returns:
      The stage's directory, with a checkpoint of the classifier.

    Raises:
      ValueError: run_dir is no pretrained run, the stage's name is taken, or
        the data has other classes than the run.
    """
    run = runs.Run.open(chosen.run_dir)
    stage = run.files.stage(chosen.name)
    chosen = loop.check_run(stage, chosen)
    checkpoint = run.checkpoint
    strategy = devices.set_up(chosen)
    images = input_pipeline.source(
        run.settings, "train", devices.file_shard(chosen, strategy)
    )
    run.files.check_classes(images.class_names)
    _check_learnable(chosen, images)
    chosen = input_pipeline.resolved_batch(
        chosen, images, strategy.num_replicas_in_sync
    )
    size = run.settings.image_size
    with strategy.scope():
        encoder = run.encoder
        # A classifier of stage 1 began with the draw that would come next.
        tf.keras.utils.set_random_seed(chosen.seed + 1)
        classifier = models.LinearClassifier(encoder, len(images.class_names))
        classifier.build((None, size, size, 3))
        console.print_header(images, size, chosen)
        console.print_line("encoder", checkpoint)
    fit = _fit_on_views
    if chosen.views_are_constant:
        fit = _fit_on_representations
    fit(chosen, stage, images, classifier, size)
    console.print_line("classifier", stage.latest_checkpoint())
    return stage


def _fit_on_views(
    chosen: config.LinearSettings,
    stage: run_files.RunDirectory,
    images: data.Source,
    classifier: models.LinearClassifier,
    size: int,
) -> None:
    """Trains on one augmented view per image and epoch."""
    steps = data.steps_per_epoch(images, chosen.batch_size)
    with classifier.distribute_strategy.scope():
        _compile(chosen, classifier, steps)

    @functools.cache
    def batches(start_step: int, shard: tuple[int, int]) -> tf.data.Dataset:
        views = input_pipeline.views(
            chosen, images, size, 1, start_step=start_step, shard=shard
        )
        return views.map(lambda view, labels: (view[:, 0], labels))

    loop.fit(chosen, stage, images, classifier, batches)


def _fit_on_representations(
    chosen: config.LinearSettings,
    stage: run_files.RunDirectory,
    images: data.Source,
    classifier: models.LinearClassifier,
    size: int,
) -> None:
    """Trains on representations, which without augmentation never change.

    It takes seconds, so it is saved at its end only.
    """
    inputs, labels = representations.represent(
        classifier.encoder,
        images,
        batch_size=chosen.batch_size,
        image_size=size,
    )
    steps = -(-len(labels) // chosen.batch_size)
    model = tf.keras.Sequential([classifier.classifier])
    _compile(chosen, model, steps)
    strategy = classifier.distribute_strategy
    loop.open_run(chosen, stage, images, strategy)
    start = checkpoints.Progress(0, steps)
    model.fit(
        inputs,
        labels,
        batch_size=chosen.batch_size,
        epochs=chosen.epochs,
        verbose=0,  # an epoch takes milliseconds
        callbacks=monitoring.make_callbacks(chosen, stage, strategy, start),
    )
    checkpoints.save(
        stage.checkpoints,
        builders.checkpointed(classifier) | {"optimizer": model.optimizer},
        checkpoints.Progress(chosen.epochs * steps, steps),
    )


def _compile(
    chosen: config.LinearSettings, model: tf.keras.Model, steps: int
) -> None:
    """Cross-entropy on logits, the classifier being all that trains."""
    model.compile(
        optimization.optimizer(chosen, steps),
        losses.CrossEntropyLoss(chosen.label_smoothing),
        metrics=["accuracy"],
        jit_compile=chosen.jit_compile or None,
    )
    console.print_linear(chosen)
