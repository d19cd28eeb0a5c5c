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
    )
    made.build((None, chosen.image_size, chosen.image_size, 3))
    return made


def model(
    chosen: config.PretrainSettings, num_classes: int
) -> models.SupConModel | models.ClassifierModel:
    """The built model of stage 1, as its objective needs it."""
    if chosen.has_projections:
        return supcon_model(chosen)
    return classifier_model(chosen, num_classes)


def classifier_model(
    chosen: config.PretrainSettings, num_classes: int
) -> models.ClassifierModel:
    """The built model of a one-stage baseline with initial weights."""
    made = models.ClassifierModel(
        encoder(chosen), num_classes, cosine=chosen.objective == "max_margin"
    )
    side = chosen.image_size
    made.build((None, chosen.num_views, side, side, 3))
    return made


def checkpointed(
    model: models.SupConModel | models.ClassifierModel,
) -> dict[str, tf.keras.layers.Layer]:
    """The parts of a model of stage 1 under their names in a checkpoint."""
    if isinstance(model, models.ClassifierModel):
        return {"encoder": model.encoder, "classifier": model.classifier}
    return {
        "encoder": model.encoder,
        "projection_head": model.projection_head,
    }


def supcon_model(chosen: config.PretrainSettings) -> models.SupConModel:
    """The built model of stage 1 with initial weights."""
    head = models.ProjectionHead(
        chosen.projection_dim,
        chosen.hidden_dims,
        use_batch_norm=chosen.projection_batch_norm,
    )
    model = models.SupConModel(encoder(chosen), head)
    side = chosen.image_size
    model.build((None, chosen.num_views, side, side, 3))
    return model


def loss(chosen: config.PretrainSettings) -> tf.keras.losses.Loss:
    """The loss of stage 1."""
    return {
        "supcon": _supcon_loss,
        "simclr": lambda chosen: losses.SimCLRLoss(
            chosen.temperature,
            chosen.scale_by_temperature,
            cross_replica=chosen.cross_replica,
        ),
        "npairs": lambda chosen: losses.NPairsLoss(chosen.cross_replica),
        "triplet": lambda chosen: losses.TripletLoss(
            chosen.triplet_margin, chosen.triplet_mining, chosen.cross_replica
        ),
        "ce": lambda chosen: losses.CrossEntropyLoss(),
        "max_margin": lambda chosen: losses.MaxMarginLoss(
            chosen.softmax_margin, chosen.softmax_scale
        ),
    }[chosen.loss](chosen)


def _supcon_loss(chosen: config.PretrainSettings) -> losses.SupConLoss:
    """Eq. 2 or Eq. 3, with every option."""
    return losses.SupConLoss(
        temperature=chosen.temperature,
        formulation=chosen.formulation,
        denominator=chosen.denominator,
        anchor_views=chosen.anchor_views,
        positives_cap=chosen.positives_cap,
        scale_by_temperature=chosen.scale_by_temperature,
        cross_replica=chosen.cross_replica,
    )
