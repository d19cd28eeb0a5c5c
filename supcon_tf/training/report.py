"""What a run prints before it starts."""

from __future__ import annotations

import importlib.metadata
import platform

import tensorflow as tf

from supcon_tf import config, data, models


def print_header(images: data.Source, size: int) -> None:
    """Prints versions, devices and the data set."""
    _print_line(
        "versions",
        f"supcon_tf {importlib.metadata.version('supcon_tf')}, TensorFlow "
        f"{tf.__version__}, Python {platform.python_version()}",
    )
    strategy = tf.distribute.get_strategy()
    gpus = len(tf.config.list_logical_devices("GPU"))
    _print_line(
        "devices",
        f"{gpus} GPU, {len(tf.config.list_logical_devices('CPU'))} CPU; "
        f"{strategy.num_replicas_in_sync} replica(s), "
        f"{tf.keras.mixed_precision.global_policy().name}",
    )
    skipped = images.num_skipped
    _print_line(
        "data",
        f"{images.name}: {images.num_examples:,} {images.split} images of "
        f"{len(images.class_names)} classes, views of {size} px"
        + (f"; {skipped} bad files skipped" if skipped else ""),
    )


def print_pretraining(
    chosen: config.PretrainSettings,
    model: models.SupConModel | models.ClassifierModel,
    *,
    steps: int,
    learning_rate: float,
    chance: float | None,
) -> None:
    """Prints batch, encoder, optimizer, loss and its chance level if any."""
    replicas = tf.distribute.get_strategy().num_replicas_in_sync
    _print_line(
        "batch",
        f"{chosen.batch_size} images x {chosen.num_views} views, "
        f"{chosen.batch_size // replicas} images per replica; {steps} steps "
        f"per epoch, {chosen.epochs} epochs",
    )
    encoder = model.encoder
    _print_line(
        "encoder",
        f"{chosen.architecture}, width {chosen.width}, "
        f"stem {encoder.resolved_stem or 'none'}, "
        f"{encoder.count_params():,} parameters, "
        f"{encoder.representation_dim}-d representation",
    )
    if encoder.resolved_stem == "cifar" and chosen.image_size > 64:
        _print_line(
            "note",
            f"the cifar stem keeps images of {chosen.image_size} px at full "
            "size: --stem=imagenet needs a sixteenth of the memory and time",
        )
    if encoder.resolved_stem == "imagenet" and chosen.image_size <= 64:
        _print_line(
            "note",
            f"the imagenet stem shrinks images of {chosen.image_size} px to "
            f"{-(-chosen.image_size // 32)}: --stem=cifar keeps their detail",
        )
    print_optimizer(chosen, learning_rate)
    _print_line("loss", _describe_loss(chosen, chance))


def _describe_loss(
    chosen: config.PretrainSettings, chance: float | None
) -> str:
    """Objective, its numbers, and the chance level where there is one."""
    temperature = f"temperature {chosen.temperature}"
    numbers = {
        "supcon": f"L_{chosen.formulation}, {temperature}",
        "simclr": temperature,
        "npairs": "temperature 1",
        "triplet": f"{chosen.triplet_mining} triplets, squared distance, "
        f"margin {chosen.triplet_margin}",
        "ce": "classifier on the representation",
        "max_margin": "cosine classifier on the representation, margin "
        f"{chosen.softmax_margin}, scale {chosen.softmax_scale}",
    }[chosen.loss]
    text = f"{chosen.objective}: {numbers}"
    if chosen.mixing != "none":
        text += f", {chosen.mixing} of images and labels"
    if chance is not None:
        text += (
            f"; chance level {chance:.4f}: where it stays there, lower the "
            "learning rate or lengthen the warm-up"
        )
    return text


def print_optimizer(
    chosen: config.PretrainSettings | config.LinearSettings,
    learning_rate: float,
) -> None:
    """Prints the optimizer with the learning rate that it resolves to."""
    _print_line(
        "optimizer",
        f"SGD, momentum {chosen.momentum}, weight decay "
        f"{chosen.weight_decay:g}; learning rate {learning_rate:g} "
        f"({chosen.learning_rate:g} per 256, {chosen.learning_rate_scaling} "
        f"scaling), warm-up {chosen.warmup_epochs:g} epochs, cosine decay",
    )


def print_done(what: str, where: object) -> None:
    """Prints what a tool has written."""
    _print_line(what, where)


def _print_line(name: str, text: object) -> None:
    """Prints a named line at once, also into a log file."""
    print(f"{name:<12} {text}", flush=True)
