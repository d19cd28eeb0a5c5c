"""From settings to models and losses."""

from __future__ import annotations

import tensorflow as tf

from supcon_tf import config, losses, models


def encoder(settings: config.PretrainSettings) -> models.Encoder:
    """A built encoder with initial weights, of resolved settings."""
    made = models.Encoder(
        settings.architecture,
        settings.stem,
        settings.width,
        settings.image_mean,
        settings.image_std,
        normalize=settings.normalize_representation,
        synchronized_bn=_synchronizes(settings),
        zero_init_residual=settings.zero_init_residual,
    )
    made.build((None, settings.image_size, settings.image_size, 3))
    return made


def _synchronizes(settings: config.PretrainSettings) -> bool:
    """Whether BN spans the replicas; a loop over chunks cannot have it."""
    return settings.gradient_cache_chunks == 1


def has_classifier(settings: config.PretrainSettings) -> bool:
    """Whether stage 1 trains a classifier, of whatever objective."""
    beside = settings.online_classifier or settings.is_joint
    return beside or not settings.has_projections


def uses_cosines(settings: config.PretrainSettings) -> bool:
    """Whether the classifier of stage 1 takes cosines."""
    return settings.objective == "max_margin"


def model(
    settings: config.PretrainSettings, num_classes: int
) -> models.SupConModel | models.ClassifierModel:
    """The built model of stage 1 with initial weights, of resolved settings."""
    if settings.has_projections:
        made = _supcon_model(settings, num_classes)
    else:
        made = models.ClassifierModel(
            encoder(settings), num_classes, cosine=uses_cosines(settings)
        )
    side = settings.image_size
    made.build((None, settings.num_views, side, side, 3))
    return made


def _supcon_model(
    settings: config.PretrainSettings, num_classes: int
) -> models.SupConModel:
    """With a classifier beside the projections, and a queue, if asked for."""
    head = models.ProjectionHead(
        settings.projection_dim,
        settings.hidden_dims,
        use_batch_norm=settings.projection_batch_norm,
        synchronized_bn=_synchronizes(settings),
    )
    parts = encoder(settings), head
    options = {"gradient_cache_chunks": settings.gradient_cache_chunks}
    if has_classifier(settings):
        options["classifier"] = tf.keras.layers.Dense(
            num_classes, dtype="float32", name="classifier"
        )
    if settings.is_joint:
        options["classifier_weight"] = settings.classifier_weight
    if not settings.queue_size:
        return models.SupConModel(*parts, **options)
    queue = losses.ProjectionQueue(settings.queue_size, settings.projection_dim)
    return models.MomentumSupConModel(
        *parts, queue, settings.encoder_momentum, **options
    )


_PARTS = (
    "encoder",
    "projection_head",
    "classifier",
    "momentum_encoder",
    "momentum_head",
    "queue",
)


def checkpointed(model: tf.keras.Model) -> dict[str, tf.Module]:
    """The parts of a stage's model under their names in a checkpoint."""
    if isinstance(model, models.LinearClassifier):  # whose encoder is frozen
        return {"classifier": model.classifier}
    parts = {name: getattr(model, name, None) for name in _PARTS}
    return {name: part for name, part in parts.items() if part is not None}


def loss(
    settings: config.PretrainSettings, model: tf.keras.Model | None = None
) -> tf.keras.losses.Loss:
    """The loss of stage 1.

    Args:
      settings: resolved settings.
      model: that of stage 1, whose queue, if it has one, the loss shares.
    """
    shared = {"cross_replica": settings.cross_replica}
    return {
        "supcon": lambda: losses.SupConLoss(
            settings.temperature,
            settings.formulation,
            settings.denominator,
            settings.anchor_views,
            settings.positives_cap,
            settings.scale_by_temperature,
            queue=getattr(model, "queue", None),
            **shared,
        ),
        "simclr": lambda: losses.SimCLRLoss(
            settings.temperature, settings.scale_by_temperature, **shared
        ),
        "npairs": lambda: losses.NPairsLoss(**shared),
        "triplet": lambda: losses.TripletLoss(
            settings.triplet_margin, settings.triplet_mining, **shared
        ),
        "ce": lambda: losses.CrossEntropyLoss(settings.label_smoothing),
        "max_margin": lambda: losses.MaxMarginLoss(
            settings.softmax_margin, settings.softmax_scale
        ),
    }[settings.loss]()


def chance(settings: config.PretrainSettings, replicas: int) -> float | None:
    """The loss of equal projections, where the objective has tau and A(i)."""
    if settings.loss not in ("supcon", "simclr"):
        return None
    shares = 1 if settings.cross_replica else replicas
    contrasts = settings.batch_size // shares * settings.num_views - 1
    contrasts += settings.queue_size  # once it is full
    return losses.chance_loss(
        contrasts, settings.temperature, settings.scale_by_temperature
    )
