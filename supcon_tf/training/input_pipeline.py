"""From settings to batches of views."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from supcon_tf import augment, config, data, exceptions
from supcon_tf.data import subsets
from supcon_tf.host import trust


def source(
    settings: config.DataSettings,
    split: str,
    shard: tuple[int, int] | None = None,
) -> data.Source:
    """One split, "train", "test" or "validation", of the data set of a run.

    The training images are those that the run draws; --drop_duplicates leaves
    test images out that are training images too, and --unknown_classes those
    of some classes. With `shard`, (index, count) of a worker, the images of its
    own files alone.

    Raises:
      ValueError: the images cannot be read, or are too few to draw from.
    """
    images = all_images(settings, split, shard)
    if settings.unknown_classes:
        names = _remaining_classes(settings, images)
        images = subsets.select_classes(images, names)
    if split == "train" and isinstance(settings, config.PartSettings):
        return _draw_images(settings, images)
    if split == "test" and settings.drop_duplicates:
        return subsets.without_duplicates(images, source(settings, "train"))
    return images


def unknown_source(settings: config.DataSettings) -> data.Source | None:
    """The test images of --unknown_classes; None where there are none."""
    names = settings.unknown_classes
    if not names:
        return None
    images = all_images(settings, "test")
    classes = [*map(images.class_names.index, names)]
    # The hash may have left a rare class without a test image.
    if not np.isin(subsets.labels_of(images), classes).any():
        return None
    return subsets.select_classes(images, names)


def _remaining_classes(
    settings: config.DataSettings, images: data.Source
) -> list[str]:
    """The classes of a split without --unknown_classes."""
    exceptions.require(
        not images.is_multi_label,
        "--unknown_classes must be left out for images of several labels",
        exceptions.listed(settings.unknown_classes),
    )
    names, unknown_names = images.class_names, settings.unknown_classes
    missing = [name for name in unknown_names if name not in names]
    exceptions.require(
        not missing,
        f"--unknown_classes must be classes of the data, {images.split} has "
        f"{exceptions.listed(names)}",
        exceptions.listed(missing),
    )
    remaining_names = [name for name in names if name not in unknown_names]
    exceptions.require(
        len(remaining_names) > 1,
        "--unknown_classes must leave two classes or more",
        exceptions.listed(remaining_names) or "none",
    )
    return remaining_names


def all_images(
    settings: config.DataSettings,
    split: str,
    shard: tuple[int, int] | None = None,
) -> data.Source:
    """One split with --unknown_classes, and all images: none are drawn."""
    tfds_splits = {"train": settings.train_split, "test": settings.test_split}
    with exceptions.argument(f"{split}_split", "tfds_split"):
        return data.load(
            settings.dataset,
            split,
            settings.data_dir,
            test_fraction=settings.test_fraction,
            split_seed=settings.split_seed,
            split_by=settings.split_by,
            check_images=settings.check_images,
            skip_bad_images=settings.skip_bad_images,
            shard=shard,
            channels=settings.channels,
            tfds_split=tfds_splits.get(split),
            tfrecord_features=settings.tfrecord_features,
        )


def _draw_images(
    settings: config.PartSettings, images: data.Source
) -> data.Source:
    """The training images that the settings draw from all."""
    count, fraction = settings.images_per_label, settings.train_fraction
    is_part = count is not None or (fraction or 1) < 1
    has_tail = settings.imbalance != "none"
    if not (is_part or has_tail or settings.noise_share):
        return images
    exceptions.require(
        not images.is_multi_label
        or not (count or has_tail or settings.noise_share),
        "--images_per_label, --imbalance and --label_noise must be left out "
        "for images of several labels",
        "one of them",
    )
    labels = subsets.labels_of(images)
    positions = np.arange(len(labels))
    if count is not None:
        positions = draw_per_label(
            count, labels, images.class_names, settings.draw
        )
    elif is_part:
        positions = subsets.draw_share(labels, fraction, settings.draw)
    if has_tail:
        ratio = settings.imbalance_ratio
        tail = subsets.draw_long_tail(labels[positions], ratio, settings.draw)
        positions = positions[tail]
    exceptions.require(
        images.labels is not None
        or subsets.fits_in_memory(images, len(positions)),
        "--images_per_label, --train_fraction, --imbalance and --label_noise "
        "must, of a set that is read in file order, draw at most "
        f"{subsets.MAX_IN_MEMORY} images, with --auto_shard=element",
        len(positions),
    )
    if len(positions) < len(labels) or images.labels is None:
        images = subsets.subset(images, positions)
    if not settings.noise_share:
        return images
    noisy_labels = subsets.flip_labels(
        labels[positions],
        len(images.class_names),
        settings.noise_share,
        settings.draw,
    )
    return subsets.with_labels(images, noisy_labels)


def draw_per_label(
    count: int, labels: np.ndarray, class_names: tuple[str, ...], seed: int
) -> np.ndarray:
    """Positions of --images_per_label images of every class, rising.

    Raises:
      ValueError: a class has fewer images.
    """
    sizes = np.bincount(labels, minlength=len(class_names))
    exceptions.require(
        count <= sizes.min(),
        f"--images_per_label must be at most {sizes.min()}, the training "
        f"images of {class_names[sizes.argmin()]}",
        count,
    )
    return subsets.draw_per_class(labels, count, seed)


def views(
    settings: config.PretrainSettings | config.LinearSettings,
    images: data.Source,
    size: int,
    num_views: int,
    mix: augment.MixUp | augment.CutMix | None = None,
    start_step: int = 0,
    shard: tuple[int, int] = (0, 1),
) -> tf.data.Dataset:
    """The endless training batches of a stage, from a step of its run on.

    Args:
      settings: those of the stage.
      images: its training split.
      size: side of the views in pixels.
      num_views: views per example.
      mix: mixes the images of a batch.
      start_step: step of the whole run whose batch comes first.
      shard: (index, count) of this worker, which gets its rows of each batch;
        from a data service, as many rows of any batch.

    Raises:
      ValueError: as `data.make_views`.
    """
    exceptions.require(
        mix is None or images.weights is None,
        "--mixing must be none for images with weights",
        settings.mixing if mix else None,
    )
    return local_views(
        settings,
        images,
        settings.batch_size,
        size,
        num_views,
        start_step=start_step,
        images_per_class=settings.images_per_class,
        shard=shard,
        mix=mix,
        data_service=settings.data_service,
        job_name=_job_name(settings, start_step) if shard[1] > 1 else None,
    )


def cached_views(
    settings: config.PretrainSettings,
    images: data.Source,
    mix: augment.MixUp | augment.CutMix | None = None,
) -> Callable[[int, tuple[int, int]], tf.data.Dataset]:
    """`views` of stage 1 by first step and shard; cached, as each is slow."""
    shape = settings.image_size, settings.num_views
    return functools.cache(
        functools.partial(views, settings, images, *shape, mix)
    )


def local_views(
    settings: config.AugmentationSettings,
    images: data.Source,
    batch_size: int,
    size: int,
    num_views: int,
    **options: object,
) -> tf.data.Dataset:
    """`data.make_views` by the seed, crop, flip and policy of settings."""
    return data.make_views(
        images,
        batch_size,
        num_views,
        augmentation(settings),
        settings.seed,
        image_size=size,
        crop_area=settings.crop_area or None,
        horizontal_flip=settings.horizontal_flip,
        **options,
    )


def _job_name(settings: config.DeviceSettings, start_step: int) -> str:
    """The name by which the workers of this run alone share a job.

    It belongs to the data service. Runs that shared a job would get half of the
    batches each: the name has the directories of data and run.
    """
    run = {
        field.name: getattr(settings, field.name)
        for field in dataclasses.fields(settings)
        if not field.metadata["resumable"]
        or field.name in ("data_dir", "run_dir")
    }
    return hashlib.sha256(f"{start_step} {run}".encode()).hexdigest()


def mixing(
    settings: config.ObjectiveSettings, num_classes: int
) -> augment.MixUp | augment.CutMix | None:
    """MixUp or CutMix of stage 1; None for none."""
    if settings.mixing == "none":
        return None
    kind = {"mixup": augment.MixUp, "cutmix": augment.CutMix}[settings.mixing]
    alpha = {"alpha": settings.mixing_alpha} if settings.mixing_alpha else {}
    return kind(num_classes, **alpha)


def augmentation(
    settings: config.AugmentationSettings,
) -> Callable[[tf.Tensor, tf.Tensor], tf.Tensor] | None:
    """The policy of a stage; None for none."""
    name = settings.augmentation
    if trust.names_module(name):
        return augment.policy(trust.import_function(name, "augmentation"))
    sim_augment = {
        "strength": settings.jitter_strength,
        "grayscale_probability": settings.grayscale_probability,
        "warp_probability": settings.warp_probability,
        "blur_probability": settings.blur_probability,
        "rotation_probability": settings.rotation_probability,
    }
    rand_augment = {
        "num_layers": settings.randaugment_layers,
        "magnitude": settings.randaugment_magnitude,
    }
    return {
        "identity": lambda: None,
        "autoaugment": lambda: augment.AutoAugment(settings.autoaugment_policy),
        "randaugment": lambda: augment.RandAugment(**rand_augment),
        "simaugment": lambda: augment.SimAugment(**sim_augment),
        "stacked_randaugment": lambda: augment.StackedRandAugment(
            **rand_augment, **sim_augment
        ),
    }[name]()
