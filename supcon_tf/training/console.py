"""The lines that a tool prints on its data, model, loss and optimizer."""

from __future__ import annotations

import collections
import importlib.metadata
import platform
import re
import unicodedata
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

import supcon_tf
from supcon_tf import (
    config,
    data,
    distribute,
    exceptions,
    keras_2,
    models,
    run_files,
)
from supcon_tf.data import subsets
from supcon_tf.host import cores
from supcon_tf.keras_2 import keras
from supcon_tf.training import builders, chance


def print_line(name: str, text: object) -> None:
    """Prints a named line at once, also into a log file."""
    print(f"{name:<12} {text}", flush=True)


def print_moved(paths: Mapping[str, str]) -> None:
    """Prints the paths of data that have moved with their run, if any.

    `paths` are by the names of their settings.
    """
    if paths:
        text = ", ".join(f"{name} {path}" for name, path in paths.items())
        print_line("moved", f"{text}: together with the run")


def print_header(
    source: data.Source,
    size: int | None,
    settings: config.DeviceSettings | None = None,
) -> None:
    """Prints versions, devices as `settings` uses them, and the data set.

    `size` is the side of the views, pixels; None for texts.
    """
    print_line("versions", ", ".join(f"{k} {v}" for k, v in versions().items()))
    print_line("devices", _describe_devices(settings))
    print_slow_precision(keras.mixed_precision.global_policy().name)
    print_line(
        "data",
        f"{source.name}: {source.num_examples:,} {source.split} "
        f"{_noun(source)} of {len(source.class_names)} classes"
        + ", with several labels" * source.is_multi_label
        + (f", views of {size} px" if size else "")
        + files_text(source),
    )
    unused = getattr(settings, "unused_parameters", ())
    if unused:
        print_line(
            "note",
            f"{', '.join(f'--{name}' for name in unused)} without effect: the "
            f"policy of the views is --augmentation={settings.augmentation}",
        )
    if source.note:
        print_line("note", source.note)
    if similar := _similar_names(source.class_names):
        print_line(
            "note",
            "classes whose names differ in case, spaces, Unicode form or a "
            f"final .0 alone: {similar}; give the labels of one class one "
            "spelling",
        )
    _print_contradictions(source)


def files_text(source: data.Source) -> str:
    """The files of a split that are not used, or not as they are shown."""
    return (
        _count_text("bad files skipped", source.skipped)
        + _count_text("other files ignored", source.ignored)
        + _count_text(
            "images that EXIF turns where they are shown, used as they are "
            "stored",
            source.turned,
        )
    )


def _print_contradictions(source: data.Source) -> None:
    """Prints the examples that have a copy of another label, if any."""
    positions = subsets.contradictions(source)
    if len(positions):
        print_line(
            "note",
            f"{len(positions):,} of {source.num_examples:,} {source.split} "
            f"{_noun(source)} have a copy, byte for byte, of another label: "
            f"{_names(source, positions)}; correct the labels, or remove the "
            "copies",
        )


def print_duplicates(test: data.Source, train: data.Source) -> None:
    """Prints the test examples that are training examples too, if any."""
    duplicates = subsets.duplicates(test, train)
    if len(duplicates):
        noun, change, tool = _noun(test), "size", ""
        if noun == "texts":  # whose training has no such flag
            change, tool = "spelling", " of tools/evaluate.py"
        print_line(
            "duplicates",
            f"{len(duplicates):,} of {test.num_examples:,} test {noun} are, "
            f"byte for byte, training {noun}: {_names(test, duplicates)}; "
            f"--drop_duplicates{tool} leaves them out of the test split "
            f"(copies in another {change} are not found)",
        )


def print_pretrained_on(test: data.Source, run: run_files.RunDirectory) -> None:
    """Prints the test images of a transfer that the run was trained on."""
    if test.digests is None:
        return
    positions = np.flatnonzero(np.isin(test.digests, run.trained_on.digests()))
    if len(positions):
        print_line(
            "note",
            f"{len(positions):,} of {test.num_examples:,} test images are, "
            f"byte for byte, training images of {run.path}: "
            f"{_names(test, positions)}; the encoder has seen them, so remove "
            "them from the test images for a number of new images",
        )


def print_validation_copies(
    validation: data.Source, train: data.Source
) -> None:
    """Prints the validation examples that are training examples, if any."""
    positions = subsets.duplicates(validation, train)
    if len(positions):
        print_line(
            "note",
            f"{len(positions):,} of {validation.num_examples:,} validation "
            f"{_noun(train)} are, byte for byte, training {_noun(train)}: "
            f"{_names(validation, positions)}; they choose the best epoch too",
        )


def print_choosing_copies(test: data.Source, validation: data.Source) -> None:
    """Prints the test examples that are validation examples, if any."""
    positions = subsets.duplicates(test, validation)
    if len(positions):
        noun = _noun(test)
        print_line(
            "note",
            f"{len(positions):,} of {test.num_examples:,} test {noun} are, "
            f"byte for byte, validation {noun}: {_names(test, positions)}; "
            f"they choose, so that their figures are none of new {noun}",
        )


def print_unseen(test: data.Source, measured: str) -> None:
    """Prints that training sees no test class, and the measure taken then."""
    names = test.class_names
    print_line(
        "note",
        f"training sees none of the {len(names)} test classes, such as "
        f"{names[0]}: {measured}",
    )


def _count_text(noun: str, names: tuple[str, ...]) -> str:
    """The count of files or images, and the first of their names."""
    return f"; {len(names)} {noun}: {exceptions.listed(names, 3)}" * bool(names)


def _noun(source: data.Source) -> str:
    return "images" if source.texts is None else "texts"


def _names(source: data.Source, positions: np.ndarray) -> str:
    """The ids of the first three examples; without ids their positions."""
    ids = source.ids or range(source.num_examples)
    return exceptions.listed([str(ids[row]) for row in positions], 3)


def _similar_names(names: Sequence[str]) -> str:
    """Names that equal another one but for what a person overlooks.

    Case, spaces, the Unicode form, and the .0 that pandas gives integers.
    """
    names_by_key = collections.defaultdict(list)
    for name in names:
        plain = unicodedata.normalize("NFKC", name).casefold()
        plain = re.sub(r"[\s_]+", " ", plain).strip()
        key = re.sub(r"^(-?\d+)\.0+$", r"\1", plain)
        names_by_key[key].append(repr(name))
    groups = [
        " and ".join(group) for group in names_by_key.values() if len(group) > 1
    ]
    return exceptions.listed(groups, 3)


def versions() -> dict[str, str]:
    """Versions of the packages that compute, by name."""
    package = keras_2.PACKAGE
    return {
        "supcon_tf": supcon_tf.__version__,
        "TensorFlow": tf.__version__,
        "Keras": f"{importlib.metadata.version(package)} ({package})",
        "Python": platform.python_version(),
    }


def _describe_devices(settings: config.DeviceSettings | None) -> str:
    """Strategy, replicas, workers, devices, precision and compilation."""
    strategy = tf.distribute.get_strategy()
    counts = ", ".join(
        f"{len(devices)} {kind}"
        for kind in ("TPU", "GPU", "CPU")
        if (devices := tf.config.list_logical_devices(kind))
    )
    # CollectiveAllReduce is TensorFlow's internal name.
    name = type(strategy).__name__.replace("CollectiveAllReduce", "MultiWorker")
    text = (
        f"{name}: {strategy.num_replicas_in_sync} replica(s), "
        f"{distribute.num_workers(strategy)} worker(s), {counts} in all; "
        f"{keras.mixed_precision.global_policy().name}"
    )
    if settings is not None:
        text += f", XLA {'on' if settings.jit_compile else 'off'}"
        text += f", determinism {'on' if settings.deterministic else 'off'}"
    return text


def print_slow_precision(policy: str) -> None:
    """Prints a note if this machine has no instructions for the precision.

    `policy` is the name of a policy of Keras, as --precision takes it.
    """
    dtype = policy.removeprefix("mixed_")
    if not cores.lack_instructions(dtype):
        return
    if tf.config.list_physical_devices("GPU"):
        return
    if tf.config.list_logical_devices("TPU"):
        return
    print_line(
        "note",
        f"this processor has no {dtype} instructions, so that {policy} takes "
        "many times as long as float32: leave out --precision",
    )


def print_pretraining(
    settings: config.PretrainSettings,
    model: models.SupConModel | models.ClassifierModel,
    images: data.Source,
) -> None:
    """Prints `print_header`, batch, encoder, optimizer and loss of a run."""
    replicas = tf.distribute.get_strategy().num_replicas_in_sync
    batch = (
        f"{settings.batch_size} images x {settings.num_views} views, "
        f"{settings.batch_size // replicas} images per replica"
    )
    if settings.images_per_class:
        classes = settings.batch_size // settings.images_per_class
        batch += f", {settings.images_per_class} of each of {classes} classes"
    if settings.gradient_cache_chunks > 1:
        batch += f", in {settings.gradient_cache_chunks} chunks"
    encoder, size = model.encoder, settings.image_size
    stem = getattr(encoder, "resolved_stem", None)
    architecture = settings.architecture
    if ":" not in architecture:  # one of this package
        architecture += f", width {settings.width}, stem {stem or 'none'}"
    start = settings.weights or settings.init_from or "random weights"
    if settings.init_head:
        start += ", with the projection head"
    _print_training(settings, encoder, images, size, batch, architecture, start)
    _print_unusual_stem(stem, size)


def print_finetuning(
    settings: config.FinetuneTextSettings,
    model: models.SupConModel | models.ClassifierModel,
    train: data.Source,
) -> None:
    """Prints the lines of `print_pretraining` for a run on texts."""
    batch = (
        f"{settings.batch_size} texts x {settings.num_views} views of at most "
        f"{settings.max_length} tokens"
    )
    kind = model.encoder.config["model_type"]
    _print_training(
        settings, model.encoder, train, None, batch, kind, settings.model
    )


def _print_training(
    settings: config.ObjectiveSettings,
    encoder: keras.Model,
    examples: data.Source,
    size: int | None,
    batch: str,
    architecture: str,
    start: str,
) -> None:
    """Prints the lines of a training; the last arguments are texts."""
    print_header(examples, size, settings)
    steps = data.steps_per_epoch(examples, settings.batch_size)
    print_line(
        "batch", f"{batch}; {steps} steps per epoch, {settings.epochs} epochs"
    )
    print_line(
        "encoder",
        f"{architecture}, {encoder.count_params():,} parameters, "
        f"{encoder.representation_dim}-d representation",
    )
    print_start(settings, encoder, start)
    print_optimizer(settings)
    print_line("loss", _describe_loss(settings, examples))


def _print_unusual_stem(stem: str | None, size: int) -> None:
    """Prints a note on a stem that is unusual for the size of the images."""
    notes = {
        "cifar": f"the cifar stem keeps images of {size} px at full size: "
        "--stem=imagenet needs a sixteenth of the memory and time",
        "imagenet": f"the imagenet stem shrinks images of {size} px to "
        f"{-(-size // 32)}: --stem=cifar keeps their detail",
    }
    if stem in notes and stem != models.encoder.usual_stem(size):
        print_line("note", notes[stem])


def print_start(
    settings: config.FreezingSettings, encoder: keras.Model, start: str
) -> None:
    """Prints the initial weights of a training, and the share that trains."""
    if settings.freeze or settings.freeze_batch_norm:
        moving, total = (
            sum(weight.shape.num_elements() for weight in weights)
            for weights in (encoder.trainable_weights, encoder.weights)
        )
        start += f"; {moving:,} of {total:,} parameters train"
    if settings.layer_decay < 1:
        count = len(models.ordered_layers(encoder))
        start += (
            f"; learning rate times {settings.layer_decay:g} from layer to "
            f"layer, of {count}"
        )
    print_line("start", start)


def _describe_loss(
    settings: config.ObjectiveSettings, examples: data.Source
) -> str:
    """Objective, its numbers, and the chance level where there is one."""
    summary = settings.traits.summary.format_map(vars(settings))
    text = f"{settings.objective}: {summary}"
    if settings.is_joint:
        share = settings.classifier_weight
        text += f", weight {1 - share:g}; cross-entropy, weight {share:g}"
    if settings.queue_size:
        text += (
            f", queue of {settings.queue_size:,} by a momentum encoder, "
            f"{settings.encoder_momentum:g}"
        )
    text += _describe_smoothing(settings.label_smoothing)
    if settings.mixing != "none":
        text += f", {settings.mixing} of images and labels"
        if settings.has_projections:
            text += f", {settings.kind_of_positives} positives"
    replicas = tf.distribute.get_strategy().num_replicas_in_sync
    level = chance.level(settings, replicas, examples)
    if level is not None:
        text += (
            f"; chance level {level:.4f}; what to expect of the first epochs: "
            "docs/guides/training.md, Does it learn?"
        )
    return text


def _describe_smoothing(share: float) -> str:
    return f", label smoothing {share:g}" if share else ""


def print_linear(settings: config.LinearSettings) -> None:
    """Prints optimizer and loss of stage 2."""
    print_optimizer(settings)
    smoothing = _describe_smoothing(settings.label_smoothing)
    print_line("loss", f"cross-entropy{smoothing}")


def print_optimizer(settings: config.OptimizerSettings) -> None:
    """Prints the optimizer and its resolved learning rate."""
    peak = builders.peak_learning_rate(settings)
    scaling = settings.learning_rate_scaling
    source = f"{settings.learning_rate:g} per 256, {scaling} scaling"
    if scaling == "none":
        source = "whatever the batch"
    momentum = f"momentum {settings.momentum:g}"
    epsilon = f"epsilon {settings.epsilon}"
    numbers = {
        "lars": momentum,
        "sgd": ("Nesterov " if settings.nesterov else "") + momentum,
        "rmsprop": f"{momentum}, {epsilon}",
    }.get(settings.optimizer, epsilon)
    ratio = f"times {settings.decay_rate:g}"
    epochs = ", ".join(f"{epoch:g}" for epoch in settings.decay_boundaries)
    schedule = {
        "cosine": "cosine decay",
        "linear": "linear decay",
        "exponential": f"then {ratio} every {settings.decay_epochs:g} epochs",
        "step": f"then {ratio} at epochs {epochs}",
        "constant": "then constant",
    }[settings.schedule]
    decay = f"weight decay {settings.weight_decay:g}"
    if settings.clip_norm is not None:
        decay += f", gradient norm at most {settings.clip_norm:g}"
    print_line(
        "optimizer",
        f"{settings.optimizer}, {numbers}, {decay}; "
        f"learning rate {peak:g} ({source}), "
        f"warm-up {settings.warmup_epochs:g} epochs, {schedule}",
    )
