"""A pretrained network, own images: the classifier that suits them best."""

from __future__ import annotations

import dataclasses

import numpy as np
import tensorflow as tf

from supcon_tf import (
    config,
    data,
    distribute,
    exceptions,
    files,
    models,
    run_files,
    text_table,
)
from supcon_tf.data import subsets
from supcon_tf.finetuning import candidates, tuning
from supcon_tf.training import (
    checkpoints,
    console,
    devices,
    initial,
    input_pipeline,
    loop,
    materials,
)

# What a network has where no weights are given, as its library publishes them.
_WEIGHTS = {"keras": "imagenet", "keras_hub": "preset"}
# What a training step costs beside a representation, per view: forth and back.
_STEP_COST = 3.5


def finetune_images(
    settings: config.FinetuneSettings,
    choose: candidates.Choose = candidates.choose,
) -> run_files.RunDirectory:
    """Makes a classifier of images from a pretrained network.

    A linear classifier on the frozen network; trainings of both from there on,
    by SupCon and cross-entropy, at some learning rates; means of the frozen and
    the tuned weights. Validation images, held out from the training images,
    choose among them, and in doubt for the frozen network. The classifier of
    the chosen network is then fitted to all training images. The test images
    are not used.

    Args:
      settings: of the network, the images and the trainings.
      choose: from the frozen network and the tuned ones to the one that is
        kept.

    Example:
      >>> from supcon_tf import config, finetuning
      >>> own = config.FinetuneSettings(
      ...     "runs/tuned", data_dir="photos", init_from="runs/mine",
      ...     image_size=16, learning_rates=(0.01,), epochs=1, overwrite=True,
      ... )
      >>> run = finetuning.finetune_images(own)
      >>> [row["name"] for row in run.finetuning()["candidates"]][:2]
      ['frozen', 'tuned at 0.01']

    Returns:
      The run directory, with a checkpoint of the network and its classifier,
      and finetune.json.

    Raises:
      ValueError: run_dir is taken or holds another run, there are no such
        weights, or the data cannot be read, or have too few images.

    References:
      https://arxiv.org/abs/2202.10054 (LP-FT),
      https://arxiv.org/abs/2109.01903 (WiSE-FT).
    """
    run = run_files.RunDirectory(settings.run_dir)
    exceptions.require(
        not (settings.resume and run.exists() and run.tool != "finetune"),
        "--resume must go on with a run of tools/finetune.py",
        f"{run.path}, one of tools/{run.tool}.py",
    )
    settings = _with_network(loop.check_run(run, settings), run)
    strategy = devices.set_up(settings)
    images = input_pipeline.source(settings, "train")
    # What is wrong with the test split is found now, not after the training.
    test = input_pipeline.source(settings, "test")
    part, held = _parts(settings, images, test)
    settings = _with_numbers(settings, images, part, strategy)
    with strategy.scope():
        _print_start(settings, images, test, held)
        search = tuning.Tuning(settings, run, part, held)
        with data.reading(lambda: (images,)):
            frozen = search.frozen()
        settings = search.settings = _within(settings, part, search.seconds)
        made_of = materials.of_training(images)
        opened = loop.open_run(
            settings, run, images, strategy, test.skipped, made_of
        )
        with opened as is_complete:
            if not is_complete:
                tuned = _tuned(search, frozen)
                chosen = choose(frozen, tuned)
                _finish(run, search, images, chosen, [frozen, *tuned])
    if distribute.is_chief(strategy):
        run.trainings.rmtree(missing_ok=True)
    console.print_line("fine-tuned", run.latest_checkpoint())
    return run


def _with_network(
    settings: config.FinetuneSettings, run: run_files.RunDirectory
) -> config.FinetuneSettings:
    """The settings with a network and where its weights are.

    Raises:
      ValueError: there is no such network.
    """
    if None is settings.weights is settings.init_from:
        library = settings.architecture.partition(":")[0]
        exceptions.require(
            library in _WEIGHTS,
            "--weights must name the file of the weights of a network that is "
            "not keras:NAME or keras_hub:PRESET",
            f"none for {settings.architecture}",
        )
        settings = dataclasses.replace(settings, weights=_WEIGHTS[library])
    if settings.resume and run.exists() and not settings.learning_rates:
        rates = run.recorded(type(settings)).learning_rates
        settings = dataclasses.replace(settings, learning_rates=rates)
    return initial.resolved(settings, run)


def _parts(
    settings: config.FinetuneSettings, images: data.Source, test: data.Source
) -> tuple[data.Source, data.Source]:
    """The images that are trained on, and the validation images.

    Raises:
      ValueError: the images are not enough, or have several labels.
    """
    exceptions.require(
        not images.is_multi_label,
        "--data_dir must have one label per image for fine-tuning; "
        "tools/pretrain.py takes several",
        f"{len(images.class_names)} labels",
    )
    labels = subsets.labels_of(images)
    sizes = np.bincount(labels, minlength=len(images.class_names))
    exceptions.require(
        (sizes >= 2).sum() >= 2,
        f"{images.name} must have two classes or more of two training images "
        "or more each, one to train on and one to choose by",
        f"{len(labels)} training images of "
        f"{exceptions.listed([*images.class_names])}",
    )
    if data.has_validation(settings.dataset, settings.data_dir):
        parts = images, input_pipeline.source(settings, "validation")
    else:
        fraction, seed = settings.validation_fraction, settings.seed
        parts = data.train_and_validation(images, fraction, seed)
    for other in (test, parts[1]):
        exceptions.require(
            images.class_names == other.class_names,
            f"the {other.split} images must be of the classes that are trained "
            "on",
            exceptions.listed([*other.class_names]),
        )
    return parts


def _with_numbers(
    settings: config.FinetuneSettings,
    images: data.Source,
    part: data.Source,
    strategy: tf.distribute.Strategy,
) -> config.FinetuneSettings:
    """The settings with the size of the views, and the batch."""
    size = settings.image_size or settings.default_image_size(images.image_size)
    settings = dataclasses.replace(settings, image_size=size)
    if ":" in settings.architecture:
        models.check_named(settings.architecture, size)
    settings = input_pipeline.resolved(settings, images)
    settings = input_pipeline.resolved_batch(
        dataclasses.replace(
            settings,
            # A classifier beside SupCon tells which epoch is the best.
            online_classifier=settings.objective == "supcon",
        ),
        part,
        strategy.num_replicas_in_sync,
    )
    return settings


def _within(
    settings: config.FinetuneSettings, part: data.Source, seconds: float
) -> config.FinetuneSettings:
    """The settings with the epochs and rates that --minutes allows.

    Prints what they are, and about how long they take; `seconds` is what the
    representation of an image takes.
    """
    rates = settings.learning_rates or settings.DEFAULT_RATES
    epochs = settings.epochs
    if epochs is None:
        epochs = settings.default_epochs(part.num_examples)
    views = 1 if settings.objective == "ce" else 2
    minutes = seconds * part.num_examples * views * _STEP_COST / 60  # an epoch
    if settings.minutes is not None:
        total = int(settings.minutes / minutes)
        if total < len(rates) * min(epochs, settings.LEAST_EPOCHS):
            rates = rates[:1]
        epochs = min(epochs, total // len(rates))
    text = "no tuning: the network stays frozen"
    if epochs:
        text = (
            f"about {minutes * epochs * len(rates):.2g} minutes for "
            f"{len(rates)} trainings of {epochs} epochs, by the time that the "
            "representations took"
        )
    console.print_line("estimate", text)
    return dataclasses.replace(settings, epochs=epochs, learning_rates=rates)


def _tuned(
    search: tuning.Tuning, frozen: candidates.Candidate
) -> list[candidates.Candidate]:
    """The networks of all trainings; those that diverge are left out."""
    found = []
    if search.settings.epochs:
        for number in range(len(search.settings.learning_rates)):
            try:
                found += search.train(number, frozen)
            except FloatingPointError as error:
                console.print_line("diverged", error)
    return found


def _finish(
    run: run_files.RunDirectory,
    search: tuning.Tuning,
    images: data.Source,
    chosen: candidates.Candidate,
    judged: list[candidates.Candidate],
) -> None:
    """Fits the classifier of the chosen network to all images; writes both."""
    model, judge = search.model, search.judge
    judge.encoder.set_weights(chosen.weights)
    kernel, bias = judge.fit(chosen.l2, images)
    model.classifier.set_weights([kernel, bias])
    is_chief = distribute.is_chief(tf.distribute.get_strategy())
    if is_chief:
        record = {
            "training_images": judge.part.num_examples,
            "validation_images": judge.held.num_examples,
            "candidates": [x.figures(judged[0]) for x in judged],
            "chosen": chosen.name,
        }
        files.write_json(run.finetuning_file, record)
        if chosen.number is not None:
            training = run_files.RunDirectory(search.path(chosen.number))
            files.write_atomically(
                run.metrics_file, training.metrics_file.read_text()
            )
        print(finetune_table(record), flush=True)
    steps = max(search.settings.epochs, 1)
    checkpoints.save(
        run.checkpoints,
        {"encoder": judge.encoder, "classifier": model.classifier},
        checkpoints.Progress(steps, 1, made_of=materials.of_training(images)),
        is_chief=is_chief,
    )
    devices.wait_for_all(tf.distribute.get_strategy())


def finetune_table(record: dict[str, object]) -> str:
    """What finetune.json says, as a table: frozen, tuned, mean, chosen.

    The gain is of NLL over the frozen network, with its standard error.

    Example:
      >>> from supcon_tf import finetuning
      >>> frozen = {"name": "frozen", "validation": {"top_1": 0.5, "nll": 1.0}}
      >>> print(finetuning.finetune_table({
      ...     "candidates": [frozen], "chosen": "frozen",
      ...     "validation_images": 8,
      ... }))
      by 8 validation images   top-1     NLL  gain
      frozen                  0.5000  1.0000     -
      chosen: frozen
    """
    known = record["candidates"]
    shown = [known[0]]
    for is_mean in (False, True):
        kind = [x for x in known[1:] if x["is_mean"] == is_mean]
        if kind:
            shown.append(min(kind, key=lambda x: x["validation"]["nll"]))
    rows = [
        (
            f"by {record['validation_images']} validation images",
            "top-1",
            "NLL",
            "gain",
        )
    ]
    for row in shown:
        figures, gain = row["validation"], "-"
        if row is not known[0]:
            gain = f"{row['gain']:.3f} ± {row['gain_standard_error']:.3f}"
        rows.append(
            (
                row["name"],
                f"{figures['top_1']:.4f}",
                f"{figures['nll']:.4f}",
                gain,
            )
        )
    is_in_doubt = len(known) > 1 and record["chosen"] == known[0]["name"]
    why = ", as the best gain is not above two standard errors" * is_in_doubt
    return f"{text_table.text_table(rows)}\nchosen: {record['chosen']}{why}"


def _print_start(
    settings: config.FinetuneSettings,
    images: data.Source,
    test: data.Source,
    held: data.Source,
) -> None:
    """Prints data, network and what chooses."""
    console.print_header(images, settings.image_size, settings)
    console.print_duplicates(test, images)
    console.print_line(
        "network",
        f"{settings.architecture}, weights of "
        f"{settings.weights or settings.init_from}",
    )
    console.print_line(
        "validation",
        f"{held.num_examples:,} images choose; the {test.num_examples:,} test "
        "images are measured once, at the end",
    )
