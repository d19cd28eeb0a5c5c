"""The two stages of the paper: pretraining, and the linear classifier."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable

import tensorflow as tf

from supcon_tf import (
    config,
    data,
    distribute,
    exceptions,
    models,
    run_files,
)
from supcon_tf.keras_2 import keras
from supcon_tf.training import (
    builders,
    checkpoints,
    console,
    devices,
    initial,
    input_pipeline,
    jobs,
    loop,
    materials,
    memory,
    representations,
    runs,
)


@devices.restored_policy()
def pretrain(
    settings: config.PretrainSettings,
    load: Callable[[config.PretrainSettings, keras.Model], None] = initial.load,
) -> run_files.RunDirectory:
    """Stage 1: trains the encoder with the SupCon loss or a compared one.

    Settings, directory and data are checked before the first step. A signal
    such as SIGTERM, that of Ctrl-C or that of a closed terminal ends the
    process with `preemption.EXIT_CODE` once the step under way is saved. `load`
    puts the initial weights into the built model.

    Example:
      >>> from supcon_tf import config, training
      >>> settings = config.PretrainSettings(
      ...     "runs/first", dataset="digits", images_per_label=4, batch_size=40,
      ...     architecture="vgg8", width=0.1, augmentation="identity",
      ...     epochs=1, warmup_epochs=0, overwrite=True,
      ... )
      >>> run = training.pretrain(settings)
      >>> run.latest_checkpoint()
      'runs/first/checkpoints/step-00000001'

    Returns:
      The run directory, with a checkpoint of the last epoch.

    Raises:
      ValueError: run_dir is taken or holds another run, the data cannot be
        read as images of classes, or the batch does not fit the data or the
        replicas.
    """
    job = jobs.prepare(settings, _splits, decide=initial.inherited)
    with job.strategy.scope():
        model = _compiled_model(job, load)
    mix = input_pipeline.mixing(job.settings, len(job.train.class_names))
    batches = views = input_pipeline.cached_views(job.settings, job.train, mix)
    if job.settings.data_service:  # its batches are for training alone
        local_settings = dataclasses.replace(job.settings, data_service=None)
        views = input_pipeline.cached_views(local_settings, job.train, mix)
    made_of = materials.parents(job.settings.hierarchy, job.train.class_names)
    loop.fit(
        job,
        model,
        batches,
        measures=_measures(job),
        views=views,
        made_of=made_of,
    )
    console.print_line("pretrained", job.run.latest_checkpoint())
    return job.run


def _splits(
    settings: config.PretrainSettings, strategy: tf.distribute.Strategy
) -> dict[str, data.Source]:
    """Both splits, so that a bad test split is an error before training."""
    shard = devices.file_shard(settings, strategy)
    train = input_pipeline.source(settings, "train", shard)
    test = input_pipeline.source(settings, "test")
    _check_same_classes(train, test)
    if settings.uses_labels:
        _check_learnable(train)
    return {"train": train, "test": test}


def _check_same_classes(train: data.Source, test: data.Source) -> None:
    """Raises ValueError for splits with other classes, but not entirely others.

    A user's function may name the classes that it finds in a split: labels of
    the test split would then be those of other classes.
    """
    names, test_names = train.class_names, test.class_names
    if names == test_names or set(names).isdisjoint(test_names):
        return
    differences = [f"- {name}" for name in names if name not in test_names]
    differences += [f"+ {name}" for name in test_names if name not in names]
    raise exceptions.InvalidValue(
        f"{train.name} must have the same classes in both splits, or others "
        "alone in the test split, got a difference (- only in train, + only in "
        f"test): {exceptions.listed(differences) or 'the order'}"
    )


def _check_learnable(images: data.Source) -> None:
    """Raises ValueError for images of a single class."""
    exceptions.require(
        len(images.class_names) >= 2,
        f"{images.name} must have two classes or more for labels to teach "
        "anything",
        f"{', '.join(images.class_names)}; without labels --objective=simclr "
        "learns",
    )


def _measures(
    job: jobs.Job[config.PretrainSettings],
) -> list[keras.callbacks.Callback]:
    """k-NN accuracy of the test images, if the settings want it."""
    settings, train, test = job.settings, job.train, job.test
    if not settings.knn_every:
        return []
    bank = train
    if bank.shard is not None:  # of the files of this worker
        bank = input_pipeline.source(settings, "train")
    if set(test.class_names).isdisjoint(train.class_names):
        console.print_unseen(test, "k-NN among the test images")
    every, size = settings.knn_every, settings.image_size
    return [representations.KnnAccuracy(bank, test, every, size)]


def _compiled_model(
    job: jobs.Job[config.PretrainSettings],
    load: Callable[[config.PretrainSettings, keras.Model], None],
) -> models.SupConModel | models.ClassifierModel:
    """The compiled model of stage 1; prints the run, the model and the loss."""
    settings, images, steps = job.settings, job.train, job.epoch_steps
    model = builders.model(settings, len(images.class_names))
    if not job.resumes:
        load(settings, model)
    if ":" in settings.architecture:
        models.follow_statistics(model.encoder, steps)
    builders.compile_model(settings, model, steps, images)
    console.print_pretraining(settings, model, images)
    console.print_duplicates(job.test, images)
    if message := memory.warning(settings, model.encoder):
        console.print_line("warning", message)
    return model


@devices.restored_policy()
def train_linear(settings: config.LinearSettings) -> run_files.RunDirectory:
    """Stage 2: trains a linear classifier on the frozen encoder of a run.

    Data and encoder are those of the run. The classifier starts from random
    weights, also if stage 1 trained a classifier: after cross-entropy this is
    the two-stage training of Suppl. Table 3.

    Example:
      >>> from supcon_tf import config, training
      >>> settings = config.LinearSettings(
      ...     "runs/mine", name="short", epochs=1, crop_area=(),
      ...     horizontal_flip=False, overwrite=True,
      ... )
      >>> stage = training.train_linear(settings)
      >>> str(stage.path)
      'runs/mine/short'

    Returns:
      The stage's directory, with a checkpoint of the classifier.

    Raises:
      ValueError: run_dir is no pretrained run, the stage's name is taken, or
        the data has other classes than the run.
    """
    run = runs.Run.open(
        settings.run_dir,
        data_dir=settings.data_dir,
        architecture=settings.architecture,
        dataset=settings.dataset,
    )
    stage = run.files.stage(settings.name)
    job = jobs.prepare(settings, functools.partial(_linear_images, run), stage)
    size, strategy = run.settings.image_size, job.strategy
    constant = settings.views_are_constant
    if constant:  # one device of each worker trains, in seconds
        device = strategy.extended.worker_devices[0]
        strategy = tf.distribute.OneDeviceStrategy(device)
    with strategy.scope():
        encoder = run.encoder
        # Another seed than stage 1: its classifier began with the same draw.
        keras.utils.set_random_seed(job.settings.seed + 1)
        num_classes = len(job.train.class_names)
        classifier = models.LinearClassifier(encoder, num_classes)
        classifier.build((None, size, size, run.settings.channels))
        console.print_header(job.train, size, job.settings)
        console.print_line("encoder", run.checkpoint)
    fit = _fit_on_representations if constant else _fit_on_views
    fit(job, classifier, size, {"encoder": run.identity})
    console.print_line("classifier", stage.latest_checkpoint())
    return stage


def _linear_images(
    run: runs.Run,
    settings: config.LinearSettings,
    strategy: tf.distribute.Strategy,
) -> dict[str, data.Source]:
    """The training images of a run, which must have a checkpoint."""
    run.check_split()
    run.checkpoint  # noqa: B018 - raises if there is none
    shard = devices.file_shard(settings, strategy)
    if settings.views_are_constant:  # every worker trains alone, on all images
        shard = None
    images = run.source("train", shard)
    _check_learnable(images)
    exceptions.require(
        not images.is_multi_label
        or not (settings.label_smoothing or settings.logit_adjustment),
        "--label_smoothing and --logit_adjustment must be left out for images "
        "of several labels",
        f"{settings.label_smoothing} and {settings.logit_adjustment}",
    )
    return {"train": images}


def _fit_on_views(
    job: jobs.Job[config.LinearSettings],
    classifier: models.LinearClassifier,
    size: int,
    made_of: dict[str, object],
) -> None:
    """Trains on one augmented view per image and epoch."""
    with job.strategy.scope():
        _compile(job, classifier, job.epoch_steps)

    @functools.cache
    def batches(start_step: int, shard: tuple[int, int]) -> tf.data.Dataset:
        views = input_pipeline.views(
            job.settings, job.train, size, 1, start_step=start_step, shard=shard
        )
        return views.map(lambda view, *labels: (view[:, 0], *labels))

    loop.fit(job, classifier, batches, made_of=made_of)


def _fit_on_representations(
    job: jobs.Job[config.LinearSettings],
    classifier: models.LinearClassifier,
    size: int,
    made_of: dict[str, object],
) -> None:
    """Trains on representations, which are constant without augmentation.

    The training takes seconds, and is saved at its end alone. Several workers
    do the same, and the chief saves.
    """
    settings, images = job.settings, job.train
    with data.reading(lambda: (images,)):
        inputs, labels = representations.represent(
            classifier.encoder,
            images,
            batch_size=settings.batch_size,
            image_size=size,
        )
    steps = -(-len(labels) // settings.batch_size)
    model = keras.Sequential([classifier.classifier])
    _compile(job, model, steps)
    made_of = materials.fingerprints(images) | made_of
    start = checkpoints.Progress(0, steps)
    with loop.open_run(job, made_of):
        if settings.epochs:  # newer Keras refuses to train for none
            model.fit(
                inputs,
                labels,
                sample_weight=images.weights,
                batch_size=settings.batch_size,
                epochs=settings.epochs,
                verbose=0,  # an epoch takes milliseconds
                callbacks=loop.make_callbacks(job, start),
            )
        checkpoints.save(
            job.run.checkpoints,
            builders.checkpointed(classifier) | {"optimizer": model.optimizer},
            checkpoints.Progress(
                settings.epochs * steps, steps, made_of=made_of
            ),
            is_chief=distribute.is_chief(job.strategy),
        )
        devices.wait_for_all(job.strategy)


def _compile(
    job: jobs.Job[config.LinearSettings], model: keras.Model, steps: int
) -> None:
    """Compiles the classifier with cross-entropy on logits."""
    settings, accuracy = job.settings, "accuracy"
    if job.train.is_multi_label:
        accuracy = keras.metrics.MeanMetricWrapper(_are_right, accuracy)
    model.compile(
        builders.optimizer(settings, steps),
        builders.classification_loss(settings, job.train),
        metrics=[accuracy],
        jit_compile=settings.jit_compile or None,
    )
    console.print_linear(settings)


def _are_right(labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    """1 where (probability >= 0.5) == label, [N, classes] float32.

    Keras' BinaryAccuracy takes > 0.5; evaluation and export take >=.
    """
    return tf.cast((logits >= 0) == (labels > 0), tf.float32)
