"""From settings to models, losses and optimizers."""

from __future__ import annotations

import json
import os

import numpy as np
import tensorflow as tf
from etils import epath

from supcon_tf import config, data, exceptions, files, losses, models, text
from supcon_tf.data import hierarchy, subsets
from supcon_tf.keras_2 import keras
from supcon_tf.training import optimizers, schedules


def encoder(settings: config.PretrainSettings) -> keras.Model:
    """A built encoder with random weights, of resolved settings."""
    side = settings.image_size
    options = {
        "normalize": settings.normalize_representation,
        "synchronized_bn": _synchronizes(settings),
    }
    if ":" in settings.architecture:
        made = models.named_encoder(
            settings.architecture,
            side,
            settings.channels,
            settings.pooling,
            settings.lora_rank,
            **options,
        )
    else:
        made = models.Encoder(
            settings.architecture,
            settings.stem,
            settings.width,
            settings.image_mean,
            settings.image_std,
            zero_init_residual=settings.zero_init_residual,
            stem_padding=settings.stem_padding,
            **options,
        )
    made.build((None, side, side, settings.channels))
    return made


def text_encoder(
    settings: config.FinetuneTextSettings,
    model: str | os.PathLike[str],
    *,
    pretrained: bool,
) -> text.TextEncoder:
    """A built language model, with the weights of `model` or with random ones.

    Those of a run on texts are of no unit length, for its classifier.

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
        known = json.loads(file.read_text())
    made = text.TextEncoder(known, **options)
    made.build((None, None, 2))
    return made


def _synchronizes(settings: config.ObjectiveSettings) -> bool:
    """Whether BN spans the replicas: a loop over chunks cannot have it."""
    return settings.gradient_cache_chunks == 1


def uses_cosines(settings: config.ObjectiveSettings) -> bool:
    """Whether the classifier of stage 1 takes cosines."""
    return settings.traits.takes == "cosines"


def model(
    settings: config.PretrainSettings, num_classes: int
) -> models.SupConModel | models.ClassifierModel:
    """The built model of stage 1 with initial weights, of resolved settings."""
    base, head, side = encoder(settings), None, settings.image_size
    # Each layer that is made draws its seed: none is made that is not used.
    if settings.has_projections:
        head = models.ProjectionHead(
            settings.projection_dim,
            settings.hidden_dims,
            settings.projection_batch_norm,
            _synchronizes(settings),
            settings.projection_bias,
        )
    shape = side, side, settings.channels
    return _on_encoder(settings, base, head, num_classes, shape)


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
    return _on_encoder(settings, encoder, head, num_classes, (None, 2))


def _on_encoder(
    settings: config.ObjectiveSettings,
    encoder: keras.Model,
    head: keras.Model | None,
    num_classes: int,
    shape: tuple[int | None, ...],
) -> models.SupConModel | models.ClassifierModel:
    """The built model of an objective, of views of this shape.

    The head is that of its projections, None without any.
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
    """With a classifier beside the projections, and a queue, if asked for."""
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
    """Freezes what the settings name, and compiles a model of stage 1.

    Its weights must be those that it starts from.

    Raises:
      ValueError: as `models.freeze`; or the loss wants the shares of the
        classes, and one has no images.
    """
    copy = getattr(model, "momentum_encoder", None)
    if settings.freeze or settings.freeze_batch_norm:
        for part in (model.encoder, *([copy] if copy else [])):
            models.freeze(part, settings.freeze, settings.freeze_batch_norm)
    rates = optimizer(settings, epoch_steps)
    if settings.layer_decay < 1:
        shares = models.learning_rate_shares(
            model.encoder, settings.layer_decay
        )
        rates.set_learning_rate_shares(shares)
    if settings.is_joint and settings.logit_adjustment:
        offsets = settings.logit_adjustment * np.log(_class_shares(images))
        model.logit_offsets = offsets.tolist()
    metrics = []
    if settings.has_projections:
        metrics = losses.diagnostics(
            settings.cross_replica,
            bool(settings.multi_label),
            settings.has_soft_labels,
        )
    model.compile(
        rates,
        loss(settings, model, images),
        metrics,
        jit_compile=settings.jit_compile or None,
    )


def checkpointed(model: keras.Model) -> dict[str, tf.Module]:
    """The parts of a stage's model under their names in a checkpoint."""
    if isinstance(model, models.LinearClassifier):  # whose encoder is frozen
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
    """The loss of stage 1, which shares the queue of a model that has one.

    What is trained on, `images`, tells about the classes.

    Raises:
      ValueError: the classes have no parents, and the settings want them.
    """
    shared = {"cross_replica": settings.cross_replica}
    return {
        "supcon": lambda: _supcon_loss(settings, model, images),
        "simclr": lambda: losses.SimCLRLoss(
            settings.temperature, settings.scale_by_temperature, **shared
        ),
        "npairs": lambda: losses.NPairsLoss(**shared),
        "bcl": lambda: losses.BalancedSupConLoss(
            model.centres,
            settings.temperature,
            settings.scale_by_temperature,
            **shared,
        ),
        "paco": lambda: losses.PaCoLoss(
            model.centres,
            settings.temperature,
            settings.scale_by_temperature,
            alpha=settings.paco_alpha,
            class_shares=_class_shares(images),
            **shared,
        ),
        "triplet": lambda: losses.TripletLoss(**shared),
        "ce": lambda: classification_loss(settings, images),
        "max_margin": losses.MaxMarginLoss,
    }[settings.loss]()


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
        found = hierarchy.read_ancestors(settings.hierarchy, names)
        return losses.HierarchicalSupConLoss(
            ancestors=found.tolist(), **options
        )
    if settings.unsupervised_classes:
        options["unsupervised_classes"] = [
            _class_number(images, name)
            for name in settings.unsupervised_classes
        ]
    return losses.SupConLoss(
        queue=getattr(model, "queue", None),
        positives=settings.kind_of_positives,
        **options,
    )


def _class_number(images: data.Source, name: str) -> int:
    names = images.class_names
    exceptions.require(
        name in names,
        f"--unsupervised_classes must be some of {exceptions.listed(names)}",
        name,
    )
    return names.index(name)


def classification_loss(
    settings: config.ObjectiveSettings | config.LinearSettings,
    images: data.Source | None = None,
) -> keras.losses.Loss:
    """Cross-entropy of one label, or of each of several.

    Raises:
      ValueError: the settings want the shares of the classes, and one has no
        images.
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
    """The share of each class of the images that are trained on."""
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
    momentum, small = settings.momentum, settings.epsilon
    clipped = {"global_clipnorm": settings.clip_norm}
    if settings.optimizer == "lamb":  # brings TensorFlow Addons
        from supcon_tf.training import lamb

        return lamb.LAMB(rate, epsilon=small, weight_decay=decay, **clipped)
    return {
        "lars": lambda: optimizers.LARS(rate, momentum, l2=decay, **clipped),
        "sgd": lambda: optimizers.SGD(
            rate, momentum, settings.nesterov, l2=decay, **clipped
        ),
        "rmsprop": lambda: optimizers.RMSProp(
            rate, momentum=momentum, epsilon=small, l2=decay, **clipped
        ),
        "adam": lambda: optimizers.Adam(
            rate, epsilon=small, l2=decay, **clipped
        ),
        "adamw": lambda: optimizers.AdamW(
            rate, weight_decay=decay, epsilon=small, **clipped
        ),
    }[settings.optimizer]()


def schedule(
    settings: config.OptimizerSettings, epoch_steps: int
) -> schedules.Warmup:
    """The learning rate of a stage, its epochs counted in optimizer steps."""

    def steps(epochs: float) -> int:
        return round(epochs * epoch_steps)

    peak, rate = peak_learning_rate(settings), settings.decay_rate
    warmup = steps(settings.warmup_epochs) if settings.epochs else 0
    return {
        "cosine": lambda: schedules.WarmupCosine(
            peak, steps(max(settings.epochs, 1)), warmup
        ),
        "linear": lambda: schedules.WarmupLinear(
            peak, steps(max(settings.epochs, 1)), warmup
        ),
        "exponential": lambda: schedules.WarmupExponential(
            peak, max(steps(settings.decay_epochs), 1), rate, warmup
        ),
        "step": lambda: schedules.WarmupStep(
            peak, map(steps, settings.decay_boundaries), rate, warmup
        ),
        "constant": lambda: schedules.Warmup(peak, warmup),
    }[settings.schedule]()


def peak_learning_rate(settings: config.OptimizerSettings) -> float:
    """The highest learning rate of a stage, resolved for its batch."""
    return schedules.scaled_learning_rate(
        settings.learning_rate,
        settings.batch_size,
        settings.learning_rate_scaling,
    )
