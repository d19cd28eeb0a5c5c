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
    jobs,
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
    job = jobs.prepare(settings, _splits, decide=_network_fields)
    if ":" in job.settings.architecture:
        models.check_named(job.settings.architecture, job.settings.image_size)
    with job.strategy.scope():
        _print_start(job)
        search = tuning.Tuning(job)
        with data.reading(lambda: (job.train,)):
            frozen = search.frozen()
        # How long it may take is known once the network has been timed.
        job = search.job = _within_minutes(job, search.seconds)
        opened = loop.open_run(job, materials.of_training(job.train))
        with opened as is_complete:
            if not is_complete:
                tuned = _tuned(search, frozen)
                chosen = choose(frozen, tuned)
                _finish(search, chosen, [frozen, *tuned])
    if distribute.is_chief(job.strategy):
        job.run.trainings.rmtree(missing_ok=True)
    console.print_line("fine-tuned", job.run.latest_checkpoint())
    return job.run


def _network_fields(
    settings: config.FinetuneSettings,
    run: run_files.RunDirectory,
    recorded: config.FinetuneSettings | None,
) -> dict[str, object]:
    """The network, where its weights are, and how it is tuned.

    Raises:
      ValueError: there is no such network.
    """
    # A classifier beside SupCon tells which epoch is the best.
    fields = {"online_classifier": settings.objective == "supcon"}
    if None is settings.weights is settings.init_from:
        library = settings.architecture.partition(":")[0]
        exceptions.require(
            library in _WEIGHTS,
            "--weights must name the file of the weights of a network that is "
            "not keras:NAME or keras_hub:PRESET",
            f"none for {settings.architecture}",
        )
        fields["weights"] = _WEIGHTS[library]
    if recorded is not None and not settings.learning_rates:
        fields["learning_rates"] = recorded.learning_rates
    return fields | initial.inherited(settings, run, recorded)


def _splits(
    settings: config.FinetuneSettings, strategy: tf.distribute.Strategy
) -> dict[str, data.Source]:
    """All splits: what is wrong with the test split is an error now.

    Raises:
      ValueError: the images are not enough, or have several labels.
    """
    images = input_pipeline.source(settings, "train")
    test = input_pipeline.source(settings, "test")
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
        part = images
        validation = input_pipeline.source(settings, "validation")
    else:
        fraction, seed = settings.validation_fraction, settings.seed
        part, validation = data.train_and_validation(images, fraction, seed)
    for other in (test, validation):
        exceptions.require(
            images.class_names == other.class_names,
            f"the {other.split} images must be of the classes that are trained "
            "on",
            exceptions.listed([*other.class_names]),
        )
    held_out = {"validation": validation, "test": test}
    return {"train": images, "part": part, **held_out}


def _within_minutes(
    job: jobs.Job[config.FinetuneSettings], seconds: float
) -> jobs.Job[config.FinetuneSettings]:
    """The job with the epochs and rates that --minutes allows.

    Prints what they are, and about how long they take; `seconds` is what the
    representation of an image takes.
    """
    settings, part = job.settings, job.part
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
    allowed = {"epochs": epochs, "learning_rates": rates}
    settings = dataclasses.replace(settings, **allowed)
    return dataclasses.replace(job, settings=settings)


def _tuned(
    search: tuning.Tuning, frozen: candidates.Candidate
) -> list[candidates.Candidate]:
    """The networks of all trainings; those that diverge are left out."""
    tuned, settings = [], search.job.settings
    if settings.epochs:
        for number in range(len(settings.learning_rates)):
            try:
                tuned += search.train(number, frozen)
            except FloatingPointError as error:
                console.print_line("diverged", error)
    return tuned


def _finish(
    search: tuning.Tuning,
    chosen: candidates.Candidate,
    judged: list[candidates.Candidate],
) -> None:
    """Fits the classifier of the chosen network to all images; writes both."""
    job, model, judge = search.job, search.model, search.judge
    run = job.run
    judge.encoder.set_weights(chosen.weights)
    kernel, bias = judge.fit(chosen.l2, job.train)
    model.classifier.set_weights([kernel, bias])
    is_chief = distribute.is_chief(job.strategy)
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
    steps = max(job.settings.epochs, 1)
    checkpoints.save(
        run.checkpoints,
        {"encoder": judge.encoder, "classifier": model.classifier},
        checkpoints.Progress(
            steps, 1, made_of=materials.of_training(job.train)
        ),
        is_chief=is_chief,
    )
    devices.wait_for_all(job.strategy)


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


def _print_start(job: jobs.Job[config.FinetuneSettings]) -> None:
    """Prints data, network and what chooses."""
    settings = job.settings
    console.print_header(job.train, settings.image_size, settings)
    console.print_duplicates(job.test, job.train)
    console.print_line(
        "network",
        f"{settings.architecture}, weights of "
        f"{settings.weights or settings.init_from}",
    )
    console.print_line(
        "validation",
        f"{job.validation.num_examples:,} images choose; the "
        f"{job.test.num_examples:,} test images are measured once, at the end",
    )
