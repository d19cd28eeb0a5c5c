"""Pictures of what the augmentation does, to be looked at before training."""

from __future__ import annotations

import dataclasses
import io
import os
import pathlib
from collections.abc import Iterable

import numpy as np
import tensorflow as tf
from matplotlib import figure

from supcon_tf import config, data, exceptions, files
from supcon_tf.augment import color, geometry, operations, tables, warp
from supcon_tf.data import sources
from supcon_tf.evaluation import plots
from supcon_tf.training import (
    input_pipeline,
)

_EXTENSIONS = (".jpg", ".jpeg", ".png")
_LEVELS = tuple(float(level) for level in range(11))
_DRAWS = (0.75, 0.5, 0.5)  # positive sign, Cutout in the middle
# A jitter that keeps the brightness, and a warp of almost the full length.
_SEEDS = (837, 0)
# How the argument of an operation is written; the others have none.
_CAPTIONS = {
    "Posterize": "{:.0f}-bit",
    "Solarize": "≥ {:.0f}",
    "SolarizeAdd": "+{:.0f}",
    "Color": "× {:.2f}",
    "Contrast": "× {:.2f}",
    "Brightness": "× {:.2f}",
    "Sharpness": "× {:.2f}",
    "Rotate": "{:.0f}°",
    "ShearX": "{:.2f}",
    "ShearY": "{:.2f}",
    "TranslateX": "{:.1f} px",
    "TranslateY": "{:.1f} px",
    "Cutout": "± {:.0f} px",
}

# A row of a picture: its name, and the images with what stands below them.
_Row = tuple[str, list[tuple[np.ndarray, str]]]


def show_augment(chosen: config.ShowAugmentSettings) -> list[pathlib.Path]:
    """Draws views as training makes them, and every operation at each level.

    views.png has a row per image: the whole original, and its views. Those are
    the first views of the first epoch of a pretraining with the same settings
    and seed.

    operations.png has a row per operation on one image, as evaluation would
    crop it: levels 0 to 10 of AutoAugment's and RandAugment's operations, in
    the ranges of the chosen policy, and then SimAugment's with the same draws
    from no effect to the largest.

    Args:
      chosen: the settings.

    Returns:
      The paths of both pictures, in run_dir.

    Raises:
      ValueError: the data set is not as `data.load` takes it, `image` is not
        among its images, or a file is no image.
    """
    source = _photographs(chosen) or input_pipeline.source(chosen, "train")
    chosen = input_pipeline.resolved(chosen, source)
    if chosen.image >= source.num_examples:
        raise exceptions.InvalidValue(
            f"--image must be below {source.num_examples}, the number of "
            f"images of {source.name}, got {chosen.image}"
        )
    plain = dataclasses.replace(
        chosen, augmentation="identity", crop_area=(), horizontal_flip=False
    )
    views, labels = _first_batch(chosen, source, chosen.views)
    wholes, _ = _first_batch(plain, _whole(source, chosen.image_size), 1)
    squares, _ = _first_batch(plain, source, 1)

    pictures = {
        "views.png": plots.plot_grid(
            np.concatenate([wholes, views], axis=1),
            [f"{i}: {source.class_names[x]}" for i, x in enumerate(labels)],
            ["original", *(f"view {i + 1}" for i in range(chosen.views))],
        ),
        "operations.png": plot_operations(squares[chosen.image, 0], chosen),
    }
    directory = pathlib.Path(chosen.run_dir)
    directory.mkdir(parents=True, exist_ok=True)
    return [_write(directory / name, drawn) for name, drawn in pictures.items()]


def plot_operations(
    image: np.ndarray, chosen: config.ShowAugmentSettings
) -> figure.Figure:
    """One image under every operation.

    Args:
      image: [height, width, 3] uint8.
      chosen: settings of the policy, its ranges and colours.

    Returns:
      A figure: a row per operation, from level 0 to 10, and a last row of the
      image itself and the operations that have no level.
    """
    rows = [
        *_operation_rows(image, chosen),
        *_sim_augment_rows(image, chosen),
        ("no level", _plain_panels(image, chosen)),
    ]
    return plots.plot_grid(
        [np.stack([panel for panel, _ in row]) for _, row in rows],
        [name for name, _ in rows],
        [f"level {level:.0f}" for level in _LEVELS],
        [[caption for _, caption in row] for _, row in rows],
    )


def _operation_rows(
    image: np.ndarray, chosen: config.ShowAugmentSettings
) -> Iterable[_Row]:
    """AutoAugment's and RandAugment's operations in the policy's ranges."""
    ranges = _ranges(chosen)
    side = min(image.shape[:2])
    for name, caption in _CAPTIONS.items():
        panels = _apply(image, [(name, level) for level in _LEVELS], chosen)
        arguments = (
            operations.argument(name, level, side, ranges) for level in _LEVELS
        )
        captions = (caption.format(argument) for argument in arguments)
        yield name, list(zip(panels, captions, strict=True))


def _plain_panels(
    image: np.ndarray, chosen: config.ShowAugmentSettings
) -> list[tuple[np.ndarray, str]]:
    """The image, and the operations without level, named below."""
    names = [name for name in operations.NAMES if name not in _CAPTIONS]
    panels = _apply(image, [(name, 0.0) for name in names], chosen)
    gray = color.to_grayscale(image[np.newaxis])[0].numpy()
    return [*zip(panels, names, strict=True), (gray, "Grayscale")]


def _apply(
    image: np.ndarray,
    steps: list[operations.Step],
    chosen: config.ShowAugmentSettings,
) -> np.ndarray:
    """The image after each step alone."""
    return operations.apply(
        np.stack([image] * len(steps)),
        steps,
        tf.range(len(steps)),
        tf.constant([_DRAWS] * len(steps)),
        _ranges(chosen),
        chosen.fill,
    ).numpy()


def _ranges(chosen: config.ShowAugmentSettings) -> operations.Ranges:
    """What the chosen policy lets the levels mean."""
    if chosen.augmentation == "autoaugment":
        return tables.AUTO_AUGMENT[chosen.autoaugment_policy][1]
    return tables.RAND_AUGMENT_RANGES


def _sim_augment_rows(
    image: np.ndarray, chosen: config.ShowAugmentSettings
) -> Iterable[_Row]:
    """SimAugment's operations and the crop, each from no effect to most."""
    images = tf.constant(image[np.newaxis])
    seeds = tf.constant([_SEEDS], tf.int32)
    side = min(image.shape[:2])
    low, high = chosen.crop_area or (0.08, 1.0)

    def jittered(share: float) -> tuple[tf.Tensor, str]:
        strength = 2.5 * share
        return color.color_jitter(
            images, seeds, strength
        ), f"s = {strength:.2f}"

    def hue_turned(share: float) -> tuple[tf.Tensor, str]:
        made = color.adjust_hue(images, tf.constant([share / 2]))
        return made, f"{180 * share:.0f}°"

    def warped(share: float) -> tuple[tf.Tensor, str]:
        length = 23.0 * share
        caption = f"{length * side / 224:.1f} px"
        return warp.random_warp(images, seeds, length), caption

    def blurred(share: float) -> tuple[tf.Tensor, str]:
        sigma = 0.1 + 1.9 * share
        made = color.gaussian_blur(images, tf.constant([sigma]))
        return made, f"σ {sigma:.2f} px"

    def cropped(share: float) -> tuple[tf.Tensor, str]:
        area = high - share * (high - low)
        kept = max(1, round(side * area**0.5))
        y, x = ((pixels - kept) // 2 for pixels in image.shape[:2])
        cut = image[y : y + kept, x : x + kept]
        return geometry.resize_crop(cut, side)[tf.newaxis], f"{area:.0%}"

    for name, operation in (
        ("ColorJitter", jittered),
        ("Hue", hue_turned),
        ("Warp", warped),
        ("GaussianBlur", blurred),
        ("ResizedCrop", cropped),
    ):
        made = [operation(level / _LEVELS[-1]) for level in _LEVELS]
        yield name, [(panel[0].numpy(), caption) for panel, caption in made]


def _first_batch(
    chosen: config.ShowAugmentSettings, source: data.Source, num_views: int
) -> tuple[np.ndarray, np.ndarray]:
    """The first views of training, and their labels."""
    batches = data.make_views(
        source,
        min(chosen.images, source.num_examples),
        num_views,
        input_pipeline.augmentation(chosen),
        chosen.seed,
        image_size=chosen.image_size,
        crop_area=chosen.crop_area or None,
        horizontal_flip=chosen.horizontal_flip,
    )
    try:
        return next(batches.as_numpy_iterator())
    except tf.errors.InvalidArgumentError:
        for name in source.ids or ():
            _check_image(os.path.join(chosen.data_dir, name))
        raise


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


def _photographs(chosen: config.ShowAugmentSettings) -> data.Source | None:
    """The files of a folder without classes, named by file; or None."""
    directory = chosen.data_dir
    if chosen.dataset != "folder" or not os.path.isdir(directory):
        return None
    with os.scandir(directory) as entries:
        found = [entry for entry in entries if not entry.name.startswith(".")]
    names = sorted(
        entry.name
        for entry in found
        if entry.name.lower().endswith(_EXTENSIONS)
    )
    if not names or any(entry.is_dir() for entry in found):
        return None
    paths = tf.constant([os.path.join(directory, name) for name in names])

    def read(index: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        contents = tf.io.read_file(tf.gather(paths, index))
        return contents, tf.cast(index, tf.int32)

    return data.Source(
        name="folder",
        split="train",
        class_names=tuple(names),
        num_examples=len(names),
        image_size=None,
        records=sources.index_records(len(names)),
        read=read,
        ids=tuple(names),
    )


def _check_image(path: str) -> None:
    """Raises ValueError for a file that is no image."""
    try:
        data.decode_image(tf.io.read_file(path))
    except tf.errors.InvalidArgumentError as error:
        raise exceptions.InvalidValue(
            f"{path} must be an image, but is not"
        ) from error


def _write(path: pathlib.Path, drawn: figure.Figure) -> pathlib.Path:
    """Writes a figure as PNG, whole."""
    buffer = io.BytesIO()
    drawn.savefig(buffer, format="png", dpi=drawn.dpi)
    files.write_atomically(path, buffer.getvalue())
    return path
