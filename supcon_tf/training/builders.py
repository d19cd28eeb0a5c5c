"""From settings to objects: the one place where both meet."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable

import tensorflow as tf

from supcon_tf import augment, config, data, losses, models
from supcon_tf.training import optimizers, run_directory, schedules


def source(chosen: config.PretrainSettings, split: str) -> data.Source:
    """One split, "train" or "test", of the data set of a run."""
    return data.load(
        chosen.dataset,
        split,
        chosen.data_dir,
        test_fraction=chosen.test_fraction,
        split_seed=chosen.split_seed,
        check_images=chosen.check_images,
        skip_bad_images=chosen.skip_bad_images,
    )


def resolved(
    chosen: config.PretrainSettings, images: data.Source
) -> config.PretrainSettings:
    """Settings that mean the same in later stages, wherever those are run.

    The size of the views becomes a number and a local `data_dir` absolute.

    Raises:
      ValueError: neither the settings nor the images tell the size.
    """
    size = chosen.image_size or images.image_size
    if size is None:
        raise ValueError(
            f"--image_size must be given: the images of {images.name} are not "
            "known to be squares of one size"
        )
    directory = chosen.data_dir
    if directory and "://" not in directory:
        directory = os.path.abspath(directory)
    return dataclasses.replace(chosen, image_size=size, data_dir=directory)


def views(
    chosen: config.PretrainSettings | config.LinearSettings,
    images: data.Source,
    size: int,
    num_views: int,
    mix: augment.MixUp | augment.CutMix | None = None,
    start_step: int = 0,
) -> tf.data.Dataset:
    """The endless training batches of a stage, from a step of its run on.

    With `mix`, labels are soft. What is mixed is a function of (seed, step).
    """
    batches = data.make_views(
        images,
        chosen.batch_size,
        num_views,
        augmentation(chosen),
        chosen.seed,
        image_size=size,
        crop_area=chosen.crop_area or None,
        horizontal_flip=chosen.horizontal_flip,
        start_step=start_step,
    )
    if mix is None:
        return batches
    seeds = tf.constant([chosen.seed, 1], tf.int32)  # 0: seeds of make_views
    return (
        tf.data.Dataset.zip((tf.data.Dataset.counter(start_step), batches))
        .map(
            lambda step, batch: mix(*batch, augment.fold_in(seeds, step)),
            num_parallel_calls=tf.data.AUTOTUNE,
        )
        .prefetch(tf.data.AUTOTUNE)
    )


def mixing(
    chosen: config.PretrainSettings, num_classes: int
) -> augment.MixUp | augment.CutMix | None:
    """What mixes the images of a batch in stage 1; None for none."""
    if chosen.mixing == "none":
        return None
    made = {"mixup": augment.MixUp, "cutmix": augment.CutMix}[chosen.mixing]
    if chosen.mixing_alpha:
        return made(num_classes, chosen.mixing_alpha)
    return made(num_classes)


def augmentation(
    chosen: config.AugmentationSettings,
) -> Callable[[tf.Tensor, tf.Tensor], tf.Tensor] | None:
    """The policy of a stage; None for none."""
    sim_augment = {
        "strength": chosen.jitter_strength,
        "jitter_probability": chosen.jitter_probability,
        "grayscale_probability": chosen.grayscale_probability,
        "warp_probability": chosen.warp_probability,
        "blur_probability": chosen.blur_probability,
    }
    rand_augment = {
        "num_layers": chosen.randaugment_layers,
        "magnitude": chosen.randaugment_magnitude,
        "num_operations": chosen.randaugment_operations,
        "probability": chosen.randaugment_probability,
        "fill": chosen.fill,
    }
    return {
        "identity": lambda: None,
        "autoaugment": lambda: augment.AutoAugment(
            chosen.autoaugment_policy, chosen.fill
        ),
        "randaugment": lambda: augment.RandAugment(**rand_augment),
        "simaugment": lambda: augment.SimAugment(**sim_augment),
        "stacked_randaugment": lambda: augment.StackedRandAugment(
            **rand_augment, **sim_augment
        ),
    }[chosen.augmentation]()


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
        "cross_entropy": lambda chosen: losses.CrossEntropyLoss(),
        "max_margin": lambda chosen: losses.MaxMarginLoss(
            chosen.softmax_margin, chosen.softmax_scale
        ),
    }[chosen.objective](chosen)


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


def optimizer(
    chosen: config.PretrainSettings | config.LinearSettings, epoch_steps: int
) -> optimizers.SGD:
    """The optimizer of a stage with its schedule, `epoch_steps` an epoch."""
    peak = schedules.scaled_learning_rate(
        chosen.learning_rate, chosen.batch_size, chosen.learning_rate_scaling
    )
    schedule = schedules.WarmupCosine(
        peak,
        total_steps=max(chosen.epochs, 1) * epoch_steps,
        warmup_steps=round(chosen.warmup_epochs * epoch_steps)
        if chosen.epochs
        else 0,
    )
    return optimizers.SGD(
        schedule,
        momentum=chosen.momentum,
        nesterov=chosen.nesterov,
        l2=chosen.weight_decay,
    )


def restored_encoder(run: run_directory.RunDirectory) -> models.Encoder:
    """The encoder of a run with its trained weights.

    Raises:
      ValueError: the run has no checkpoint, or one of another encoder.
    """
    made = encoder(run.pretrain_settings())
    restore(run.latest_checkpoint(), encoder=made)
    return made


def restored_classifier(
    run: run_directory.RunDirectory, stage: str
) -> models.LinearClassifier:
    """The linear classifier of a stage of a run, on the run's encoder.

    Raises:
      ValueError: run or stage has no checkpoint, or one that does not fit.
    """
    made = models.LinearClassifier(
        restored_encoder(run), len(run.class_names())
    )
    size = run.pretrain_settings().image_size
    made.build((None, size, size, 3))
    restore(run.stage(stage).latest_checkpoint(), classifier=made.classifier)
    return made


def restore(checkpoint: str, **parts: tf.Module) -> None:
    """Restores parts of a checkpoint, each completely.

    Raises:
      ValueError: a variable of a part is missing or has another shape.
    """
    try:
        status = tf.train.Checkpoint(**parts).restore(checkpoint)
        status.assert_existing_objects_matched().expect_partial()
    except (AssertionError, ValueError, tf.errors.OpError) as error:
        raise ValueError(
            f"{checkpoint} must fit {', '.join(parts)} of settings.flags, "
            f"but does not: {error}"
        ) from error
