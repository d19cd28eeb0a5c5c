"""Fine-tuning of a pretrained network on the images of a user."""

from __future__ import annotations

import dataclasses

import numpy as np
import tensorflow as tf

from supcon_tf import config, data, distribute, exceptions, models, run_files
from supcon_tf.data import subsets
from supcon_tf.disk import files
from supcon_tf.display import text_table
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

# Default weights of a network, by the library that publishes it.
_WEIGHTS = {"keras": "imagenet", "keras_hub": "preset"}
# Cost of a training step, per view, in costs of a representation: the forward
# and the backward pass.
_STEP_COST = 3.5


@devices.restored_policy()
def finetune_images(
    settings: config.FinetuneSettings,
    choose: candidates.Choose = candidates.choose,
) -> run_files.RunDirectory:
    """Makes a classifier of images from a pretrained network.

    The candidates are the frozen network with a linear classifier; trainings
    that start from both, by SupCon and cross-entropy, at some learning rates;
    means of frozen and tuned weights. Validation images, held out from the
    training images, choose the candidate, in doubt the frozen network. The
    classifier of the chosen network is then fitted to all training images. The
    test images are not used.

    Args:
      settings: of the network, the images and the trainings.
      choose: from the frozen network and the tuned networks to the chosen one.

    Example:
      >>> from supcon_tf import config, finetuning
      >>> settings = config.FinetuneSettings(
      ...     "runs/tuned", data_dir="photos", init_from="runs/mine",
      ...     image_size=16, learning_rates=(0.01,), epochs=1, overwrite=True,
      ... )
      >>> run = finetuning.finetune_images(settings)
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
    reading = data.reading(lambda: (job.train, job.validation))
    with job.strategy.scope(), reading:
        _print_start(job)
        search = tuning.Tuning(job)
        frozen = search.frozen()
        # The time of a representation tells how many epochs fit --minutes.
        job = search.job = _within_minutes(job, search.seconds)
        opened = loop.open_run(job, materials.fingerprints(job.train))
        with opened as is_complete:
            if not is_complete:
                tuned = _train_all(search, frozen)
                chosen = choose(frozen, tuned)
                _finish(search, chosen, frozen, tuned)
    if distribute.is_chief(job.strategy):
        job.run.trainings.rmtree(missing_ok=True)
    console.print_line("fine-tuned", job.run.latest_checkpoint())
    return job.run


def _network_fields(
    settings: config.FinetuneSettings,
    run: run_files.RunDirectory,
    recorded: config.FinetuneSettings | None,
) -> dict[str, object]:
    """The fields of the network, of its weights and of its training.

    Raises:
      ValueError: there is no such network, or a setting is not used.
    """
    if recorded is None:
        settings.check_used()
    # A classifier beside SupCon measures each epoch on validation images.
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
    if recorded is not None:
        fields |= _kept_fields(settings, recorded)
    return fields | initial.inherited(settings, run, recorded)


def _kept_fields(
    settings: config.FinetuneSettings, recorded: config.FinetuneSettings
) -> dict[str, object]:
    """The learning rates and epochs that a resumed run keeps.

    The same command goes on with those that --minutes had left.
    """
    rates = settings.learning_rates or recorded.learning_rates
    epochs = settings.epochs
    if settings.minutes is not None:
        rates = rates[: len(recorded.learning_rates)]
        epochs = min(epochs, recorded.epochs)
    return {"learning_rates": rates, "epochs": epochs}


def _splits(
    settings: config.FinetuneSettings, strategy: tf.distribute.Strategy
) -> dict[str, data.Source]:
    """All splits, so that a bad test split is an error before training.

    Raises:
      ValueError: there are too few images, or they have several labels.
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
        f"{exceptions.listed(images.class_names)}",
    )
    train_part, validation = _hold_out(settings, images)
    for other in (test, validation):
        exceptions.require(
            images.class_names == other.class_names,
            f"the {other.split} images must be of the classes that are trained "
            "on",
            exceptions.listed(other.class_names),
        )
    held_out = {"validation": validation, "test": test}
    return {"train": images, "train_part": train_part, **held_out}


def _hold_out(
    settings: config.FinetuneSettings, images: data.Source
) -> tuple[data.Source, data.Source]:
    """The training images that train, and the validation images."""
    train_part = images
    if data.has_validation(settings.dataset, settings.data_dir):
        validation = input_pipeline.source(settings, "validation")
    else:
        train_part, validation = data.train_and_validation(
            images, settings.validation_fraction, settings.seed
        )
    # A network that was tuned on a copy of an image has learned its label.
    copies = len(subsets.duplicates(validation, train_part))
    exceptions.require(
        copies < validation.num_examples,
        "--data_dir must have validation images that are no copies of training "
        "images",
        f"copies alone, {copies:,}: remove them",
    )
    if copies:
        console.print_line(
            "duplicates",
            f"{copies:,} of {validation.num_examples:,} validation images are, "
            "byte for byte, training images, and do not choose",
        )
        validation = subsets.without_duplicates(validation, train_part)
    return train_part, validation


def _within_minutes(
    job: jobs.Job[config.FinetuneSettings], seconds: float
) -> jobs.Job[config.FinetuneSettings]:
    """The job with the epochs and learning rates that --minutes allows.

    A resumed run keeps its own. Prints the estimate. `seconds` is the time of
    one image's representation.
    """
    settings, num_images = job.settings, job.train_part.num_examples
    rates = settings.learning_rates or settings.DEFAULT_RATES
    epochs = settings.epochs
    if epochs is None:
        epochs = settings.default_epochs(num_images)
    num_views = num_images * (1 if settings.objective == "ce" else 2)
    epoch_minutes = seconds * num_views * _STEP_COST / 60
    # A resumed run has recorded what was left, however long it takes by now.
    if settings.minutes is not None and job.recorded is None:
        num_epochs = int(settings.minutes / epoch_minutes)
        if num_epochs < len(rates) * min(epochs, settings.LEAST_EPOCHS):
            rates = rates[:1]
        epochs = min(epochs, num_epochs // len(rates))
    text = "no tuning: the network stays frozen"
    if epochs:
        text = (
            f"about {epoch_minutes * epochs * len(rates):.2g} minutes for "
            f"{len(rates)} trainings of {epochs} epochs, by the time that the "
            "representations took"
        )
    console.print_line("estimate", text)
    settings = dataclasses.replace(
        settings, epochs=epochs, learning_rates=rates
    )
    return dataclasses.replace(job, settings=settings)


def _train_all(
    search: tuning.Tuning, frozen: candidates.Candidate
) -> list[candidates.Candidate]:
    """The networks of all trainings that do not diverge."""
    networks, settings = [], search.job.settings
    if settings.epochs:
        for number in range(len(settings.learning_rates)):
            try:
                networks += search.train(number, frozen)
            except FloatingPointError as error:
                console.print_line("diverged", error)
    return networks


def _finish(
    search: tuning.Tuning,
    chosen: candidates.Candidate,
    frozen: candidates.Candidate,
    tuned: list[candidates.Candidate],
) -> None:
    """Fits the chosen network's classifier to all images, and saves both."""
    job, judge, run = search.job, search.judge, search.job.run
    classifier = search.model.classifier
    judge.encoder.set_weights(chosen.weights)
    classifier.set_weights(judge.fit(chosen.l2, job.train))
    is_chief = distribute.is_chief(job.strategy)
    if is_chief:
        record = {
            "training_images": judge.train_part.num_examples,
            "validation_images": judge.validation.num_examples,
            "candidates": [
                candidate.figures(frozen) for candidate in (frozen, *tuned)
            ],
            "chosen": chosen.name,
        }
        files.write_json(run.finetuning_file, record)
        if chosen.number is not None:
            training = run_files.RunDirectory(search.path(chosen.number))
            files.write_atomically(
                run.metrics_file, training.metrics_file.read_text()
            )
        print(finetune_table(record), flush=True)
    made_of = materials.fingerprints(job.train)
    steps = max(job.settings.epochs, 1)
    checkpoints.save(
        run.checkpoints,
        {"encoder": judge.encoder, "classifier": classifier},
        checkpoints.Progress(steps, 1, made_of=made_of),
        is_chief=is_chief,
    )
    devices.wait_for_all(job.strategy)


def finetune_table(record: dict[str, object]) -> str:
    """The table of finetune.json: the frozen, best tuned and best mean network.

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
    networks = record["candidates"]
    listed = [networks[0]]
    for is_mean in (False, True):
        group = [row for row in networks[1:] if row["is_mean"] == is_mean]
        if group:
            listed.append(min(group, key=lambda row: row["validation"]["nll"]))
    title = f"by {record['validation_images']} validation images"
    rows = [(title, "top-1", "NLL", "gain")]
    for row in listed:
        figures, gain = row["validation"], "-"
        if row is not networks[0]:
            gain = f"{row['gain']:.3f} ± {row['gain_standard_error']:.3f}"
        numbers = [f"{figures[name]:.4f}" for name in ("top_1", "nll")]
        rows.append((row["name"], *numbers, gain))
    is_in_doubt = len(networks) > 1 and record["chosen"] == networks[0]["name"]
    reason = ", as the best gain is not above two standard errors" * is_in_doubt
    return f"{text_table.text_table(rows)}\nchosen: {record['chosen']}{reason}"


def _print_start(job: jobs.Job[config.FinetuneSettings]) -> None:
    """Prints the data, the network and the validation images."""
    settings = job.settings
    console.print_header(job.train, settings.image_size, settings)
    console.print_duplicates(job.test, job.train)
    console.print_choosing_copies(job.test, job.validation)
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
