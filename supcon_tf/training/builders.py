"""From settings to models and losses."""

from __future__ import annotations

import functools
from collections.abc import Callable

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


def model(
    chosen: config.PretrainSettings, num_classes: int
) -> models.SupConModel | models.ClassifierModel:
    """The built model of stage 1, as its objective needs it."""
    if not chosen.has_projections:
        return classifier_model(chosen, num_classes)
    if has_classifier(chosen):
        return supcon_model(chosen, num_classes)
    return supcon_model(chosen)


def has_classifier(chosen: config.PretrainSettings) -> bool:
    """Whether stage 1 trains a classifier, of whatever objective."""
    beside = chosen.online_classifier or chosen.is_joint
    return beside or not chosen.has_projections


def uses_cosines(chosen: config.PretrainSettings) -> bool:
    """Whether the classifier of stage 1 takes cosines."""
    return chosen.objective == "max_margin"


def classifier_model(
    chosen: config.PretrainSettings, num_classes: int
) -> models.ClassifierModel:
    """The built model of a one-stage baseline with initial weights."""
    made = models.ClassifierModel(
        encoder(chosen), num_classes, cosine=uses_cosines(chosen)
    )
    side = chosen.image_size
    made.build((None, chosen.num_views, side, side, 3))
    return made


def checkpointed(
    model: models.SupConModel | models.ClassifierModel,
) -> dict[str, tf.Module]:
    """The parts of a model of stage 1 under their names in a checkpoint."""
    if isinstance(model, models.ClassifierModel):
        return {"encoder": model.encoder, "classifier": model.classifier}
    parts = {
        "encoder": model.encoder,
        "projection_head": model.projection_head,
    }
    if model.classifier is not None:
        parts["classifier"] = model.classifier
    if isinstance(model, models.MomentumSupConModel):
        parts["momentum_encoder"] = model.momentum_encoder
        parts["momentum_head"] = model.momentum_head
        parts["queue"] = model.queue
    return parts


def supcon_model(
    chosen: config.PretrainSettings, num_classes: int | None = None
) -> models.SupConModel:
    """The built model of stage 1 with initial weights.

    Args:
      chosen: resolved settings.
      num_classes: of the classifier beside the projections; None for none.
    """
    head = models.ProjectionHead(
        chosen.projection_dim,
        chosen.hidden_dims,
        use_batch_norm=chosen.projection_batch_norm,
        synchronized_bn=_synchronizes(chosen),
    )
    model = _supcon_class(chosen)(
        encoder(chosen),
        head,
        classifier=_classifier(num_classes),
        classifier_weight=chosen.classifier_weight if chosen.is_joint else None,
        gradient_cache_chunks=chosen.gradient_cache_chunks,
    )
    side = chosen.image_size
    model.build((None, chosen.num_views, side, side, 3))
    return model


def _supcon_class(
    chosen: config.PretrainSettings,
) -> Callable[..., models.SupConModel]:
    """The model's class; with a queue, given it and the encoder's momentum."""
    if not chosen.queue_size:
        return models.SupConModel
    return functools.partial(
        models.MomentumSupConModel,
        queue=losses.ProjectionQueue(chosen.queue_size, chosen.projection_dim),
        encoder_momentum=chosen.encoder_momentum,
    )


def _classifier(num_classes: int | None) -> tf.keras.layers.Dense | None:
    """The classifier beside the projections, if any."""
    if num_classes is None:
        return None
    return tf.keras.layers.Dense(
        num_classes, dtype="float32", name="classifier"
    )


def _synchronizes(chosen: config.PretrainSettings) -> bool:
    """Whether BN spans the replicas; a loop over chunks cannot have it."""
    return chosen.gradient_cache_chunks == 1


def loss(
    chosen: config.PretrainSettings, model: tf.keras.Model | None = None
) -> tf.keras.losses.Loss:
    """The loss of stage 1.

    Args:
      chosen: resolved settings.
      model: that of stage 1, whose queue, if it has one, the loss shares.
    """
    queue = getattr(model, "queue", None)
    return {
        "supcon": lambda chosen: _supcon_loss(chosen, queue),
        "simclr": lambda chosen: losses.SimCLRLoss(
            chosen.temperature,
            chosen.scale_by_temperature,
            cross_replica=chosen.cross_replica,
        ),
        "npairs": lambda chosen: losses.NPairsLoss(chosen.cross_replica),
        "triplet": lambda chosen: losses.TripletLoss(
            chosen.triplet_margin, chosen.triplet_mining, chosen.cross_replica
        ),
        "ce": lambda chosen: losses.CrossEntropyLoss(chosen.label_smoothing),
        "max_margin": lambda chosen: losses.MaxMarginLoss(
            chosen.softmax_margin, chosen.softmax_scale
        ),
    }[chosen.loss](chosen)


def _supcon_loss(
    chosen: config.PretrainSettings, queue: losses.ProjectionQueue | None
) -> losses.SupConLoss:
    """Eq. 2 or Eq. 3, with every option."""
    return losses.SupConLoss(
        temperature=chosen.temperature,
        formulation=chosen.formulation,
        denominator=chosen.denominator,
        anchor_views=chosen.anchor_views,
        positives_cap=chosen.positives_cap,
        scale_by_temperature=chosen.scale_by_temperature,
        cross_replica=chosen.cross_replica,
        queue=queue,
    )
