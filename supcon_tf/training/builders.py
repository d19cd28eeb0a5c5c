"""From settings to models, losses and optimizers."""

from __future__ import annotations

import json
import os

import numpy as np
import tensorflow as tf
from etils import epath

from supcon_tf import (
    config,
    data,
    exceptions,
    keras_2,
    losses,
    models,
    optimizers,
    text,
)
from supcon_tf.data import hierarchy, subsets
from supcon_tf.disk import files
from supcon_tf.host import trust
from supcon_tf.keras_2 import keras


def encoder(settings: config.PretrainSettings) -> keras.Model:
    """A built encoder with random weights, of resolved settings."""
    side = settings.image_size
    options = {
        "normalize": settings.normalize_representation,
        # A loop over chunks cannot synchronize replicas.
        "synchronized_bn": settings.gradient_cache_chunks == 1,
    }
    if ":" in settings.architecture:
        network = models.named_encoder(
            settings.architecture,
            side,
            settings.channels,
            settings.pooling,
            settings.lora_rank,
            **options,
        )
    else:
        network = models.Encoder(
            settings.architecture,
            settings.stem,
            settings.width,
            settings.image_mean,
            settings.image_std,
            zero_init_residual=settings.zero_init_residual,
            stem_padding=settings.stem_padding,
            **options,
        )
    network.build((None, side, side, settings.channels))
    return network


def text_encoder(
    settings: config.FinetuneTextSettings,
    model: str | os.PathLike[str],
    *,
    pretrained: bool,
) -> text.TextEncoder:
    """A built language model, with the weights of `model` or with random ones.

    Its representations are not normalised, for the classifier.

    Raises:
      ValueError: `model` is no directory or name of a model.
    """
    options = {
        "pooling": settings.pooling,
        "normalize": False,
        "dropout": settings.dropout,
    }
    if pretrained:
        return text.TextEncoder.from_pretrained(model, **options)
    file = epath.Path(model) / "config.json"
    with files.readable(file):
        network_config = json.loads(file.read_text())
    network = text.TextEncoder(network_config, **options)
    network.build((None, None, 2))
    return network


def uses_cosines(settings: config.ObjectiveSettings) -> bool:
    """Whether the classifier of stage 1 takes cosines."""
    return settings.traits.takes == "cosines"


def model(
    settings: config.PretrainSettings, num_classes: int
) -> models.SupConModel | models.ClassifierModel:
    """The built model of stage 1 with initial weights, of resolved settings."""
    base, head, side = encoder(settings), None, settings.image_size
    # Each new layer draws a seed: an unused head would change the weights.
    if settings.has_projections:
        head = models.ProjectionHead(
            settings.projection_dim,
            settings.hidden_dims,
            settings.projection_batch_norm,
            settings.gradient_cache_chunks == 1,
            settings.projection_bias,
        )
    shape = side, side, settings.channels
    return _built_model(settings, base, head, num_classes, shape)


def text_model(
    settings: config.FinetuneTextSettings,
    encoder: text.TextEncoder,
    num_classes: int,
) -> models.SupConModel | models.ClassifierModel:
    """The built model of an objective on a language model."""
    head, dim = None, settings.projection_dim
    if settings.has_projections:
        head = models.NoProjectionHead()
        if dim:
            head = models.ProjectionHead(dim, settings.hidden_dims)
    return _built_model(settings, encoder, head, num_classes, (None, 2))


def _built_model(
    settings: config.ObjectiveSettings,
    encoder: keras.Model,
    head: keras.Model | None,
    num_classes: int,
    shape: tuple[int | None, ...],
) -> models.SupConModel | models.ClassifierModel:
    """The built model of an objective, of views of this shape.

    `head` is None for an objective without projections.
    """
    if head is not None:
        model = _supcon_model(settings, encoder, head, num_classes)
    else:
        model = models.ClassifierModel(
            encoder, num_classes, cosine=uses_cosines(settings)
        )
    model.build((None, settings.num_views, *shape))
    return model


def _supcon_model(
    settings: config.ObjectiveSettings,
    encoder: keras.Model,
    head: keras.Model,
    num_classes: int,
) -> models.SupConModel:
    """A model with projections, and the settings' classifier and queue."""
    dim = head.output_dim or encoder.representation_dim
    options = {
        "gradient_cache_chunks": settings.gradient_cache_chunks,
        "multi_label": bool(settings.multi_label),
    }
    if settings.traits.has_centres:
        options["centres"] = models.ClassCentres(num_classes, dim)
    if settings.has_classifier:
        options["classifier"] = models.layers.classifier(num_classes)
    if settings.is_joint:
        options["classifier_weight"] = settings.classifier_weight
    if not settings.queue_size:
        return models.SupConModel(encoder, head, **options)
    queue = losses.ProjectionQueue(settings.queue_size, dim)
    return models.MomentumSupConModel(
        encoder, head, queue, settings.encoder_momentum, **options
    )


def compile_model(
    settings: config.PretrainSettings | config.FinetuneTextSettings,
    model: keras.Model,
    epoch_steps: int,
    images: data.Source | None = None,
) -> None:
    """Freezes the layers of --freeze, and compiles a model of stage 1.

    The model must have its initial weights.

    Raises:
      ValueError: as `models.freeze`; or the loss uses class shares, and a class
        has no images or the workers have files of their own.
    """
    if settings.freeze or settings.freeze_batch_norm:
        models.freeze(
            model.encoder, settings.freeze, settings.freeze_batch_norm
        )
    optimizer_ = optimizer(settings, epoch_steps)
    if settings.layer_decay < 1:
        shares = models.learning_rate_shares(
            model.encoder, settings.layer_decay
        )
        optimizer_.set_learning_rate_shares(shares)
    if settings.is_joint and settings.logit_adjustment:
        offsets = settings.logit_adjustment * np.log(_class_shares(images))
        model.logit_offsets = offsets.tolist()
    metrics = []
    if settings.has_projections:
        metrics = losses.diagnostics(
            settings.cross_replica,
            bool(settings.multi_label),
            settings.has_soft_labels,
            ignore_labels=settings.traits.labels == "none",
            unsupervised_classes=_unsupervised_classes(settings, images),
        )
    model.compile(
        optimizer_,
        loss(settings, model, images),
        metrics,
        jit_compile=settings.jit_compile or None,
    )


def checkpointed(model: keras.Model) -> dict[str, tf.Module]:
    """The parts of a stage's model under their names in a checkpoint."""
    if isinstance(model, models.LinearClassifier):  # the encoder is frozen
        return {"classifier": model.classifier}
    names = ("encoder", "projection_head", "classifier", "centres")
    names += ("momentum_encoder", "momentum_head", "queue")
    parts = {name: getattr(model, name, None) for name in names}
    return {name: part for name, part in parts.items() if part is not None}


def loss(
    settings: config.ObjectiveSettings,
    model: keras.Model | None = None,
    images: data.Source | None = None,
) -> keras.losses.Loss:
    """The loss of stage 1, with the queue of `model` if it has one.

    `images` are the training images, whose classes some losses use.

    Raises:
      ValueError: the settings name a hierarchy that lacks a class, or the
        function of a user returns no loss.
    """
    if trust.names_module(settings.loss):
        return _loss_by_function(settings)
    common = {"cross_replica": settings.cross_replica}
    return {
        "supcon": lambda: _supcon_loss(settings, model, images),
        "simclr": lambda: losses.SimCLRLoss(
            settings.temperature, settings.scale_by_temperature, **common
        ),
        "npairs": lambda: losses.NPairsLoss(**common),
        "bcl": lambda: losses.BalancedSupConLoss(
            model.centres,
            settings.temperature,
            settings.scale_by_temperature,
            **common,
        ),
        "paco": lambda: losses.PaCoLoss(
            model.centres,
            settings.temperature,
            settings.scale_by_temperature,
            alpha=settings.paco_alpha,
            class_shares=_class_shares(images),
            **common,
        ),
        "triplet": lambda: losses.TripletLoss(**common),
        "ce": lambda: classification_loss(settings, images),
        "max_margin": losses.MaxMarginLoss,
    }[settings.loss]()


def _loss_by_function(settings: config.ObjectiveSettings) -> keras.losses.Loss:
    """The loss that a user's `function(settings)` returns."""
    user_loss = trust.import_function(settings.loss, "objective")(settings)
    keras_2.refuse_keras_3(objective=user_loss)
    exceptions.require(
        isinstance(user_loss, keras.losses.Loss),
        f"`objective` {settings.loss} must return a keras.losses.Loss",
        type(user_loss),
    )
    return user_loss


def _supcon_loss(
    settings: config.ObjectiveSettings,
    model: keras.Model | None,
    images: data.Source | None,
) -> losses.SupConLoss:
    options = {
        name: getattr(settings, name)
        for name in (
            *("temperature", "formulation", "denominator", "positives_cap"),
            *("scale_by_temperature", "cross_replica"),
            *("margin", "hardness", "spread"),
        )
    }
    if settings.hierarchy is not None:
        names = images.class_names
        ancestors = hierarchy.read_ancestors(settings.hierarchy, names)
        return losses.HierarchicalSupConLoss(
            ancestors=ancestors.tolist(), **options
        )
    # Not a rule of the settings: an older run may have recorded one view.
    exceptions.require(
        settings.num_views > 1 or not settings.unsupervised_classes,
        "--num_views must be at least 2 with --unsupervised_classes, whose "
        "only positives are their own other views",
        settings.num_views,
    )
    return losses.SupConLoss(
        queue=getattr(model, "queue", None),
        positives=settings.kind_of_positives,
        unsupervised_classes=_unsupervised_classes(settings, images),
        **options,
    )


def _unsupervised_classes(
    settings: config.ObjectiveSettings, images: data.Source | None
) -> list[int]:
    """The labels of --unsupervised_classes."""
    labels = []
    for name in settings.unsupervised_classes:
        exceptions.require(
            name in images.class_names,
            "--unsupervised_classes must be some of "
            f"{exceptions.listed(images.class_names)}",
            name,
        )
        labels.append(images.class_names.index(name))
    return labels


def classification_loss(
    settings: config.ObjectiveSettings | config.LinearSettings,
    images: data.Source | None = None,
) -> keras.losses.Loss:
    """Cross-entropy of one label, or of each of several.

    Raises:
      ValueError: the settings use class shares, and a class has no images or
        the workers have files of their own.
    """
    if images is not None and images.is_multi_label:
        return losses.BinaryCrossEntropyLoss()
    options = {}
    if settings.logit_adjustment and images is not None:
        options = {
            "class_shares": _class_shares(images),
            "logit_adjustment": settings.logit_adjustment,
        }
    return losses.CrossEntropyLoss(settings.label_smoothing, **options)


def _class_shares(images: data.Source) -> list[float]:
    """The share of each class among the training images."""
    exceptions.require(
        images.shard is None,
        "--auto_shard must be element for a loss by the shares of classes, as "
        "a worker reads the labels of its own files alone",
        "file",
    )
    labels = subsets.labels_of(images)
    counts = np.bincount(labels, minlength=len(images.class_names))
    exceptions.require(
        counts.all(),
        "every class must have training images for a loss by their shares",
        f"none of {images.class_names[counts.argmin()]}",
    )
    return (counts / counts.sum()).tolist()


def optimizer(
    settings: config.OptimizerSettings, epoch_steps: int
) -> keras.optimizers.Optimizer | keras.optimizers.legacy.Optimizer:
    """The optimizer of a stage with its schedule."""
    rate, decay = schedule(settings, epoch_steps), settings.weight_decay
    momentum, epsilon = settings.momentum, settings.epsilon
    clip = {"global_clipnorm": settings.clip_norm}
    if settings.optimizer == "lamb":  # imports TensorFlow Addons
        from supcon_tf.optimizers import lamb

        return lamb.LAMB(rate, epsilon=epsilon, weight_decay=decay, **clip)
    return {
        "lars": lambda: optimizers.LARS(rate, momentum, l2=decay, **clip),
        "sgd": lambda: optimizers.SGD(
            rate, momentum, settings.nesterov, l2=decay, **clip
        ),
        "rmsprop": lambda: optimizers.RMSProp(
            rate, momentum=momentum, epsilon=epsilon, l2=decay, **clip
        ),
        "adam": lambda: optimizers.Adam(
            rate, epsilon=epsilon, l2=decay, **clip
        ),
        "adamw": lambda: optimizers.AdamW(
            rate, weight_decay=decay, epsilon=epsilon, **clip
        ),
    }[settings.optimizer]()


def schedule(
    settings: config.OptimizerSettings, epoch_steps: int
) -> optimizers.Warmup:
    """The learning rate of a stage, its epochs counted in optimizer steps."""

    def steps(epochs: float) -> int:
        return round(epochs * epoch_steps)

    peak, rate = peak_learning_rate(settings), settings.decay_rate
    warmup = steps(settings.warmup_epochs) if settings.epochs else 0
    return {
        "cosine": lambda: optimizers.WarmupCosine(
            peak, steps(max(settings.epochs, 1)), warmup
        ),
        "linear": lambda: optimizers.WarmupLinear(
            peak, steps(max(settings.epochs, 1)), warmup
        ),
        "exponential": lambda: optimizers.WarmupExponential(
            peak, max(steps(settings.decay_epochs), 1), rate, warmup
        ),
        "step": lambda: optimizers.WarmupStep(
            peak, map(steps, settings.decay_boundaries), rate, warmup
        ),
        "constant": lambda: optimizers.Warmup(peak, warmup),
    }[settings.schedule]()


def peak_learning_rate(settings: config.OptimizerSettings) -> float:
    """The highest learning rate of a stage, resolved for its batch."""
    return optimizers.scaled_learning_rate(
        settings.learning_rate,
        settings.batch_size,
        settings.learning_rate_scaling,
    )
