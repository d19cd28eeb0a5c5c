"""The lines that a tool prints: what starts, how, and what was written."""

from __future__ import annotations

import platform

import tensorflow as tf

import supcon_tf
from supcon_tf import config, data, distribute, models
from supcon_tf.training import builders, devices, optimization


def print_line(name: str, text: object) -> None:
    """Prints a named line at once, also into a log file."""
    print(f"{name:<12} {text}", flush=True)


def print_header(
    images: data.Source,
    size: int,
    chosen: devices.StageSettings | None = None,
) -> None:
    """Prints versions, devices as `chosen` uses them, and the data set."""
    print_line(
        "versions", ", ".join(f"{name} {v}" for name, v in versions().items())
    )
    print_line("devices", _describe_devices(chosen))
    print_line(
        "data",
        f"{images.name}: {images.num_examples:,} {images.split} images of "
        f"{len(images.class_names)} classes, views of {size} px"
        + _listed("bad files skipped", images.skipped)
        + _listed("other files ignored", images.ignored),
    )


def _listed(what: str, names: tuple[str, ...]) -> str:
    """How many of something there are, and the first of them by name."""
    if not names:
        return ""
    more = ", ..." if len(names) > 3 else ""
    return f"; {len(names)} {what}: {', '.join(names[:3])}{more}"


def versions() -> dict[str, str]:
    """What computes, by name."""
    return {
        "supcon_tf": supcon_tf.__version__,
        "TensorFlow": tf.__version__,
        "Python": platform.python_version(),
    }


def _describe_devices(
    chosen: devices.StageSettings | None,
) -> str:
    """Strategy, replicas, workers, their devices, and how they compute."""
    strategy = tf.distribute.get_strategy()
    counts = {
        kind: len(tf.config.list_logical_devices(kind))
        for kind in ("TPU", "GPU", "CPU")
    }
    found = ", ".join(f"{n} {kind}" for kind, n in counts.items() if n)
    # TensorFlow's inner name of one of them.
    name = type(strategy).__name__.replace("CollectiveAllReduce", "MultiWorker")
    text = (
        f"{name}: {strategy.num_replicas_in_sync} replica(s), "
        f"{distribute.num_workers(strategy)} worker(s), {found} in all; "
        f"{tf.keras.mixed_precision.global_policy().name}"
    )
    if chosen is not None:
        text += f", XLA {'on' if chosen.jit_compile else 'off'}"
        text += f", determinism {'on' if chosen.deterministic else 'off'}"
    return text


def print_pretraining(
    chosen: config.PretrainSettings,
    model: models.SupConModel | models.ClassifierModel,
    images: data.Source,
) -> None:
    """Prints all of a run: `print_header`, batch, encoder, optimizer, loss."""
    print_header(images, chosen.image_size, chosen)
    replicas = tf.distribute.get_strategy().num_replicas_in_sync
    batch = (
        f"{chosen.batch_size} images x {chosen.num_views} views, "
        f"{chosen.batch_size // replicas} images per replica"
    )
    if chosen.images_per_class:
        classes = chosen.batch_size // chosen.images_per_class
        batch += f", {chosen.images_per_class} of each of {classes} classes"
    if chosen.gradient_cache_chunks > 1:
        batch += f", in {chosen.gradient_cache_chunks} chunks"
    steps = data.steps_per_epoch(images, chosen.batch_size)
    print_line(
        "batch", f"{batch}; {steps} steps per epoch, {chosen.epochs} epochs"
    )
    encoder = model.encoder
    print_line(
        "encoder",
        f"{chosen.architecture}, width {chosen.width}, "
        f"stem {encoder.resolved_stem or 'none'}, "
        f"{encoder.count_params():,} parameters, "
        f"{encoder.representation_dim}-d representation",
    )
    if encoder.resolved_stem == "cifar" and chosen.image_size > 64:
        print_line(
            "note",
            f"the cifar stem keeps images of {chosen.image_size} px at full "
            "size: --stem=imagenet needs a sixteenth of the memory and time",
        )
    if encoder.resolved_stem == "imagenet" and chosen.image_size <= 64:
        print_line(
            "note",
            f"the imagenet stem shrinks images of {chosen.image_size} px to "
            f"{-(-chosen.image_size // 32)}: --stem=cifar keeps their detail",
        )
    print_optimizer(chosen)
    print_line("loss", _describe_loss(chosen, replicas))


def _describe_loss(chosen: config.PretrainSettings, replicas: int) -> str:
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
    if chosen.is_joint:
        text += (
            f", weight {1 - chosen.classifier_weight:g}; cross-entropy, weight "
            f"{chosen.classifier_weight:g}"
        )
    if chosen.queue_size:
        text += (
            f", queue of {chosen.queue_size:,} by a momentum encoder, "
            f"{chosen.encoder_momentum:g}"
        )
    text += _describe_smoothing(chosen)
    if chosen.mixing != "none":
        text += f", {chosen.mixing} of images and labels"
    chance = builders.chance(chosen, replicas)
    if chance is not None:
        text += (
            f"; chance level {chance:.4f}; what to expect of the first epochs: "
            "docs/TRAINING.md, Does it learn?"
        )
    return text


def _describe_smoothing(chosen: devices.StageSettings) -> str:
    share = chosen.label_smoothing
    return f", label smoothing {share:g}" if share else ""


def print_linear(chosen: config.LinearSettings) -> None:
    """Prints optimizer and loss of stage 2."""
    print_optimizer(chosen)
    print_line("loss", "cross-entropy" + _describe_smoothing(chosen))


def print_optimizer(chosen: devices.StageSettings) -> None:
    """Prints the optimizer with the learning rate that it resolves to."""
    peak = optimization.peak_learning_rate(chosen)
    source = (
        f"{chosen.learning_rate:g} per 256, {chosen.learning_rate_scaling} "
        "scaling"
    )
    if chosen.learning_rate_scaling == "none":
        source = "whatever the batch"
    momentum = f"momentum {chosen.momentum:g}"
    epsilon = f"epsilon {optimization.epsilon(chosen)}"
    numbers = {
        "lars": f"{momentum}, trust {chosen.trust_coefficient:g}",
        "sgd": ("Nesterov " if chosen.nesterov else "") + momentum,
        "rmsprop": f"decay {chosen.rmsprop_decay:g}, {momentum}, {epsilon}",
    }.get(chosen.optimizer, epsilon)
    ratio = f"times {chosen.decay_rate:g}"
    epochs = ", ".join(f"{epoch:g}" for epoch in chosen.decay_boundaries)
    schedule = {
        "cosine": "cosine decay",
        "exponential": f"then {ratio} every {chosen.decay_epochs:g} epochs",
        "step": f"then {ratio} at epochs {epochs}",
        "constant": "then constant",
    }[chosen.schedule]
    print_line(
        "optimizer",
        f"{chosen.optimizer}, {numbers}, weight decay {chosen.weight_decay:g}; "
        f"learning rate {peak:g} ({source}), warm-up "
        f"{chosen.warmup_epochs:g} epochs, {schedule}",
    )
