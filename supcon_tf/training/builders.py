"""From settings to models and losses."""

from __future__ import annotations

import tensorflow as tf

from supcon_tf import config, losses, models


def encoder(chosen: config.PretrainSettings) -> models.Encoder:
    """A built encoder with initial weights, of resolved settings."""
    made = models.Encoder(
        chosen.architecture,
        chosen.stem,
        chosen.width,
        chosen.image_mean,
        chosen.image_std,
        normalize=chosen.normalize_representation,
        synchronized_bn=_synchronizes(chosen),
    )
    made.build((None, chosen.image_size, chosen.image_size, 3))
    return made


def _synchronizes(chosen: config.PretrainSettings) -> bool:
    """Whether BN spans the replicas; a loop over chunks cannot have it."""
    return chosen.gradient_cache_chunks == 1


def has_classifier(chosen: config.PretrainSettings) -> bool:
    """Whether stage 1 trains a classifier, of whatever objective."""
    beside = chosen.online_classifier or chosen.is_joint
    return beside or not chosen.has_projections


def uses_cosines(chosen: config.PretrainSettings) -> bool:
    """Whether the classifier of stage 1 takes cosines."""
    return chosen.objective == "max_margin"


def model(
    chosen: config.PretrainSettings, num_classes: int
) -> models.SupConModel | models.ClassifierModel:
    """The built model of stage 1 with initial weights, of resolved settings."""
    if chosen.has_projections:
        made = _supcon_model(chosen, num_classes)
    else:
        made = models.ClassifierModel(
            encoder(chosen), num_classes, cosine=uses_cosines(chosen)
        )
    side = chosen.image_size
    made.build((None, chosen.num_views, side, side, 3))
    return made


def _supcon_model(
    chosen: config.PretrainSettings, num_classes: int
) -> models.SupConModel:
    """With a classifier beside the projections, and a queue, if asked for."""
    head = models.ProjectionHead(
        chosen.projection_dim,
        chosen.hidden_dims,
        use_batch_norm=chosen.projection_batch_norm,
        synchronized_bn=_synchronizes(chosen),
    )
    parts = encoder(chosen), head
    options = {"gradient_cache_chunks": chosen.gradient_cache_chunks}
    if has_classifier(chosen):
        options["classifier"] = tf.keras.layers.Dense(
            num_classes, dtype="float32", name="classifier"
        )
    if chosen.is_joint:
        options["classifier_weight"] = chosen.classifier_weight
    if not chosen.queue_size:
        return models.SupConModel(*parts, **options)
    queue = losses.ProjectionQueue(chosen.queue_size, chosen.projection_dim)
    return models.MomentumSupConModel(
        *parts, queue, chosen.encoder_momentum, **options
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
    chosen: config.PretrainSettings, model: tf.keras.Model | None = None
) -> tf.keras.losses.Loss:
    """The loss of stage 1.

    Args:
      chosen: resolved settings.
      model: that of stage 1, whose queue, if it has one, the loss shares.
    """
    shared = {"cross_replica": chosen.cross_replica}
    return {
        "supcon": lambda: losses.SupConLoss(
            chosen.temperature,
            chosen.formulation,
            chosen.denominator,
            chosen.anchor_views,
            chosen.positives_cap,
            chosen.scale_by_temperature,
            queue=getattr(model, "queue", None),
            **shared,
        ),
        "simclr": lambda: losses.SimCLRLoss(
            chosen.temperature, chosen.scale_by_temperature, **shared
        ),
        "npairs": lambda: losses.NPairsLoss(**shared),
        "triplet": lambda: losses.TripletLoss(
            chosen.triplet_margin, chosen.triplet_mining, **shared
        ),
        "ce": lambda: losses.CrossEntropyLoss(chosen.label_smoothing),
        "max_margin": lambda: losses.MaxMarginLoss(
            chosen.softmax_margin, chosen.softmax_scale
        ),
    }[chosen.loss]()


def chance(chosen: config.PretrainSettings, replicas: int) -> float | None:
    """The loss of equal projections, where the objective has tau and A(i)."""
    if chosen.loss not in ("supcon", "simclr"):
        return None
    shares = 1 if chosen.cross_replica else replicas
    contrasts = chosen.batch_size // shares * chosen.num_views - 1
    contrasts += chosen.queue_size  # once it is full
    return losses.chance_loss(
        contrasts, chosen.temperature, chosen.scale_by_temperature
    )
