"""Pictures of what the augmentation does, to be looked at before training."""

from __future__ import annotations

import dataclasses
import itertools
import os
import pathlib
from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from supcon_tf import config, data, exceptions
from supcon_tf.augment import (
    color,
    geometry,
    operations,
    tables,
    warp,
)
from supcon_tf.data import folder, sources, subsets
from supcon_tf.disk import files, image_names
from supcon_tf.evaluation import plots
from supcon_tf.training import input_pipeline, jobs

_LEVELS = tuple(float(level) for level in range(11))
_DRAWS = (0.75, 0.5, 0.5)  # positive sign, Cutout in the middle
# A jitter that keeps the brightness, and a warp of almost the full length.
_SEEDS = (837, 0)


def show_augment(settings: config.ShowAugmentSettings) -> list[pathlib.Path]:
    """Draws views as training makes them, and every operation at each level.

    views.png has a row per image: the whole original, and its views. Those are
    the first views of the first epoch of a pretraining with the same settings
    and seed.

    operations.png has a row per operation on the first image, as evaluation
    would crop it: levels 0 to 10 of AutoAugment's and RandAugment's operations,
    in the ranges of the chosen policy, and then SimAugment's with the same
    draws from no effect to the largest.

    Example:
      >>> from supcon_tf import config, evaluation
      >>> settings = config.ShowAugmentSettings("runs/shown", dataset="digits")
      >>> [path.name for path in evaluation.show_augment(settings)]
      ['views.png', 'operations.png']

    Returns:
      The paths of both pictures, in run_dir.

    Raises:
      ValueError: the data set is not as `data.load` takes it, or a file is no
        image.
    """
    job = jobs.prepare(settings, _images)
    source, side = job.train, job.settings.image_size
    no_policy = {"augmentation": "identity", "horizontal_flip": False}
    plain = dataclasses.replace(job.settings, crop_area=(), **no_policy)
    with data.reading(lambda: (source,)):
        views, labels = _first_batch(job.settings, source, settings.views)
        wholes, _ = _first_batch(plain, _whole(source, side), 1)
        squares, _ = _first_batch(plain, source, 1)
    if source.is_multi_label:
        labels = map(np.flatnonzero, labels)
    titles = [
        ", ".join(source.class_names[label] for label in np.atleast_1d(ids))
        for ids in labels
    ]
    pictures = {
        "views.png": plots.plot_grid(
            np.concatenate([wholes, views], axis=1),
            [f"{row}: {title}" for row, title in enumerate(titles)],
            [
                "original",
                *(f"view {1 + view}" for view in range(settings.views)),
            ],
        ),
        "operations.png": plot_operations(squares[0, 0], job.settings),
    }
    directory = pathlib.Path(settings.run_dir)
    directory.mkdir(parents=True, exist_ok=True)
    for name, picture in pictures.items():
        files.write_figure(directory / name, picture, dpi=picture.dpi)
    return [directory / name for name in pictures]


def plot_operations(
    image: np.ndarray, settings: config.ShowAugmentSettings
) -> plots.NotebookFigure:
    """One image, [height, width, 3] uint8, under every operation.

    A row per operation, from level 0 to 10 of the policy of the settings, and a
    last row of the image itself and the operations that have no level.

    Example:
      >>> import numpy as np
      >>> from supcon_tf import config, evaluation
      >>> settings = config.ShowAugmentSettings(augmentation="randaugment")
      >>> image = np.zeros([16, 16, 3], np.uint8)
      >>> picture = evaluation.plot_operations(image, settings)
      >>> names = [text.get_text() for text in picture.axes[0].texts]
      >>> names[0], names[10], names[11]
      ('level 0', 'level 10', 'Posterize')
    """
    ranges, side = _ranges(settings), min(image.shape[:2])
    captions = {
        name: operation.caption
        for name, operation in operations.OPERATIONS.items()
    }
    with_levels = [name for name in captions if captions[name]]
    plain = [name for name in captions if not captions[name]]
    steps = [*itertools.product(with_levels, _LEVELS)]
    steps += [(name, 0.0) for name in plain]
    panels = operations.apply(  # the image after each step alone
        np.stack([image] * len(steps)),
        steps,
        tf.range(len(steps)),
        tf.constant([_DRAWS] * len(steps)),
        ranges,
    ).numpy()  # [steps, height, width, 3]
    rows = []  # name, images, captions
    for name in with_levels:
        arguments = (
            operations.argument(name, level, side, ranges) for level in _LEVELS
        )
        first = len(rows) * len(_LEVELS)
        images = panels[first : first + len(_LEVELS)]
        rows.append((name, images, [*map(captions[name].format, arguments)]))
    for name, levels, texts in _sim_augment(image, settings):
        rows.append((name, np.concatenate(levels), texts))
    gray = color.to_grayscale(image[np.newaxis])
    images = np.concatenate([panels[-len(plain) :], gray])
    rows.append(("no level", images, [*plain, "Grayscale"]))
    names, images, captions = zip(*rows, strict=True)
    levels = [f"level {level:.0f}" for level in _LEVELS]
    return plots.plot_grid(images, names, levels, captions)


def _ranges(settings: config.ShowAugmentSettings) -> operations.Ranges:
    """What the chosen policy lets the levels mean."""
    if settings.augmentation == "autoaugment":
        return tables.AUTO_AUGMENT[settings.autoaugment_policy][1]
    return tables.RAND_AUGMENT_RANGES


def _sim_augment(
    image: np.ndarray, settings: config.ShowAugmentSettings
) -> Iterator[tuple[str, list[tf.Tensor], list[str]]]:
    """SimAugment's operations and the crop, each from no effect to most.

    Yields a name, and for each level [1, height, width, 3] and its caption.
    """
    images = tf.constant(image[np.newaxis])
    seeds = tf.constant([_SEEDS], tf.int32)
    height, width = image.shape[:2]
    side = min(height, width)
    shares = [level / _LEVELS[-1] for level in _LEVELS]

    strengths = [2.5 * share for share in shares]
    levels = [color.color_jitter(images, seeds, s) for s in strengths]
    yield "ColorJitter", levels, [f"s = {s:.2f}" for s in strengths]

    levels = [color.adjust_hue(images, tf.constant([s / 2])) for s in shares]
    yield "Hue", levels, [f"{180 * share:.0f}°" for share in shares]

    lengths = [23.0 * share for share in shares]  # pixels of an image of 224
    levels = [warp.random_warp(images, seeds, w) for w in lengths]
    yield "Warp", levels, [f"{w * side / 224:.1f} px" for w in lengths]

    sigmas = [0.1 + 1.9 * share for share in shares]
    levels = [color.gaussian_blur(images, tf.constant([s])) for s in sigmas]
    yield "GaussianBlur", levels, [f"σ {s:.2f} px" for s in sigmas]

    low, high = settings.crop_area or geometry.CROP_AREA
    areas = [high - share * (high - low) for share in shares]
    levels = []
    for area in areas:
        crop_side = max(1, round(side * area**0.5))
        top, left = (height - crop_side) // 2, (width - crop_side) // 2
        crop = image[top : top + crop_side, left : left + crop_side]
        levels.append(geometry.resize_crop(crop, side)[tf.newaxis])
    yield "ResizedCrop", levels, [f"{area:.0%}" for area in areas]


def _first_batch(
    settings: config.ShowAugmentSettings, source: data.Source, num_views: int
) -> tuple[np.ndarray, np.ndarray]:
    """The first views of training, and their labels."""
    count = min(settings.images, source.num_examples)
    batches = input_pipeline.local_views(
        settings, source, count, settings.image_size, num_views
    )
    return next(batches.as_numpy_iterator())[:2]


def _whole(source: data.Source, size: int) -> data.Source:
    """The source with whole images on white squares of `size`."""

    def read(record: sources.Record) -> tuple[tf.Tensor, tf.Tensor]:
        image, label = source.read(record)
        if image.dtype == tf.string:
            image = data.decode_image(image)
        negative = 255.0 - tf.cast(image, tf.float32)  # padded with 0
        fitted = tf.image.resize_with_pad(negative, size, size, antialias=True)
        return tf.saturate_cast(tf.round(255.0 - fitted), tf.uint8), label

    return dataclasses.replace(source, read=read)


def _images(
    settings: config.ShowAugmentSettings, strategy: tf.distribute.Strategy
) -> dict[str, data.Source]:
    """The training images; raises ValueError for others than RGB bytes."""
    source = _photographs(settings) or input_pipeline.source(settings, "train")
    exceptions.require(
        source.dtype == tf.uint8 and source.channels == 3,
        "`dataset` must have RGB images of bytes, as operations take them",
        f"{source.channels} channels of {source.dtype.name}",
    )
    return {"train": source}


def _photographs(settings: config.ShowAugmentSettings) -> data.Source | None:
    """The images of a folder without classes, each its own class; or None."""
    if settings.dataset != "folder" or not os.path.isdir(settings.data_dir):
        return None
    listing = image_names.list_folder(settings.data_dir)
    if not listing.images or listing.folders:
        return None
    images = folder.load_all_images(settings.data_dir, settings.skip_bad_images)
    labelled = subsets.with_labels(images, np.arange(images.num_examples))
    return dataclasses.replace(labelled, class_names=images.ids)
