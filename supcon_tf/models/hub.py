"""Networks of KerasHub by the name of a preset: keras_hub:PRESET."""

from __future__ import annotations

import glob
import json
import os
import re
import types
from collections.abc import Iterator

import h5py
import numpy as np
import tensorflow as tf

from supcon_tf import defaults, exceptions, keras_2
from supcon_tf.host import trust
from supcon_tf.keras_2 import keras
from supcon_tf.models import weights

PREFIX = "keras_hub:"
_CONFIGS = "config.json", "image_converter.json"
_HUGGING_FACE_CONFIG = "preprocessor_config.json"
_MAX_BYTES = 2**20  # of a config
# Objects of Keras that a config may make, beside classes of KerasHub: no
# layers, which may hold code, and no functions.
_KERAS_OBJECT = re.compile(r"keras\.DTypePolicy|keras\.initializers\.[A-Z]\w+")
_MOST_SPECIAL_TOKENS = 7  # before the patches of a vision transformer


def check(architecture: str, pooling: str = "auto") -> types.ModuleType:
    """Checks that a preset can be loaded here, and returns KerasHub.

    Raises:
      ImportError: there is no Keras 3, or no KerasHub.
      ValueError: the preset is an address, or a folder without a config, or
        whose config would make objects of others than KerasHub; there is no
        such `pooling`.
    """
    exceptions.require_one_of(defaults.POOLINGS, "pooling", pooling)
    preset = architecture.removeprefix(PREFIX)
    # A run of others may name an address whose files nobody has checked.
    exceptions.require(
        "://" not in preset,
        f"{PREFIX}PRESET must be a name of KerasHub's own, or a folder: "
        "download what another has published, and give the folder",
        preset,
    )
    hub = _import()
    if os.path.isdir(preset):
        _check_folder(preset)
    return hub


def make(
    architecture: str,
    image_size: int,
    channels: int = 3,
    pooling: str = "auto",
    lora_rank: int = 0,
) -> tuple[keras.Model, str | tuple]:
    """Makes the network of a preset, with random weights.

    Args:
      architecture: "keras_hub:PRESET", a name of KerasHub's, a folder, or
        anything else that its `from_preset` takes.
      image_size: side of the images in pixels.
      channels: number of channels of the images.
      pooling: how tokens are pooled; see `keras_3.Backbone`.
      lora_rank: rank of the low-rank updates in attention, which alone train; 0
        for no updates, where all weights train.

    Returns:
      A `keras_3.Backbone`, and its `preprocessing` for `BackboneEncoder`.

    Raises:
      ValueError: there is no such preset, it does not take such images, or has
        no low-rank updates.
    """
    hub = check(architecture, pooling)
    from supcon_tf.models import of_keras_3

    preset = architecture.removeprefix(PREFIX)
    network = _load(hub, preset, load_weights=False)
    shape = image_size, image_size, channels
    if not _takes(network, shape):
        network = _load(hub, preset, load_weights=False, image_shape=shape)
    exceptions.require(
        _takes(network, shape),
        f"`architecture` {architecture} must take images {list(shape)}",
        f"a network of {network.input_shape}",
    )
    if lora_rank:
        _enable_lora(network, lora_rank)
    preprocessing = _preprocessing(hub, preset)
    return of_keras_3.Backbone(network, pooling), preprocessing


def load_preset(encoder: keras.Model, architecture: str) -> None:
    """Gives a built encoder of "keras_hub:PRESET" the weights of its preset.

    Position embeddings of a vision transformer are interpolated for images of
    another size than in its training.

    Example:
      >>> import supcon_tf
      >>> from supcon_tf import models
      >>> encoder = supcon_tf.Encoder("vgg8")
      >>> try:
      ...     models.load_preset(encoder, "vgg8")
      ... except ValueError as error:
      ...     print(error)
      `weights` must be preset of keras_hub:PRESET alone, got vgg8

    Raises:
      ValueError: `architecture` is no preset, or its weights cannot be loaded,
        or do not fit images of this size.
    """
    exceptions.require(
        architecture.startswith(PREFIX),
        f"`weights` must be preset of {PREFIX}PRESET alone",
        architecture,
    )
    hub = _import()
    preset = architecture.removeprefix(PREFIX)
    preset_network = _load(hub, preset)
    preset_weights = preset_network.weights
    encoder_weights = [
        weight
        for weight in encoder.backbone.network.weights
        if not _is_lora(weight)
    ]
    exceptions.require(
        len(encoder_weights) == len(preset_weights),
        f"`architecture` {architecture} must have the weights of its preset",
        f"{len(encoder_weights)} and {len(preset_weights)}",
    )
    for weight, preset_weight in zip(
        encoder_weights, preset_weights, strict=True
    ):
        value = preset_weight.numpy()
        if weight.shape != preset_weight.shape:
            value = _resize_positions(weight, value)
        weight.assign(value)


def _is_lora(variable: object) -> bool:
    """Whether a variable is of a low-rank update."""
    return variable.name.startswith("lora_")


def _import() -> types.ModuleType:
    """Imports KerasHub; raises ImportError on Keras 2 alone."""
    if keras_2.PACKAGE == "keras":
        raise exceptions.MissingPackage(
            "keras_hub:PRESET must have Keras 3 and KerasHub, which Python "
            "3.12 and 3.13 have: see docs/install.md"
        )
    (hub,) = exceptions.import_extra("hub", "keras_hub")
    return hub


def _load(hub: types.ModuleType, preset: str, **options: object) -> keras.Model:
    """Loads the backbone of a preset; errors are ValueErrors of one line."""
    folder = preset if os.path.isdir(preset) else None
    try:
        with trust.only_installed(folder):
            return hub.models.Backbone.from_preset(preset, **options)
    except exceptions.Error:
        raise
    # Keras, Kaggle and Hugging Face raise errors of many kinds.
    except Exception as error:
        raise exceptions.InvalidValue(
            f"`architecture` must be {PREFIX} and a preset that KerasHub can "
            f"load, got {preset}: {exceptions.one_line(error)}"
        ) from error


def _check_folder(folder: str) -> None:
    """Raises ValueError for a preset that would make objects of others.

    Also for a preset whose HDF5 files keep arrays in files elsewhere.
    """
    exceptions.require(
        os.path.isfile(os.path.join(folder, _CONFIGS[0])),
        f"a folder of `architecture` {PREFIX}FOLDER must have config.json",
        folder,
    )
    for name in _CONFIGS:
        path = os.path.join(folder, name)
        if os.path.isfile(path):
            for config in _object_configs(_read_config(path)):
                _check_object(config, path)
    for path in glob.glob(f"{glob.escape(folder)}/*.h5"):
        with h5py.File(path) as file:
            weights.check_whole(file)


def _check_object(config: dict[str, object], path: str) -> None:
    """Raises ValueError for a config of an object that no preset needs."""
    module, name = (str(config.get(key)) for key in ("module", "class_name"))
    registered = str(config.get("registered_name"))
    is_hub_class = (
        module.partition(".")[0] == "keras_hub"
        and registered == f"keras_hub>{name}"
    )
    is_keras_class = registered in ("None", name) and _KERAS_OBJECT.fullmatch(
        f"{module}.{name}"
    )
    exceptions.require(
        is_hub_class or is_keras_class,
        "a config of a preset must make classes of KerasHub alone, types of "
        "numbers and initializers",
        f"{module}.{name}, registered as {registered}, in {path}",
    )


def _read_config(path: str) -> dict[str, object]:
    """Reads a JSON file of a preset; ValueError if it cannot be read."""
    exceptions.require(
        os.path.getsize(path) <= _MAX_BYTES,
        f"a config of a preset must be at most {_MAX_BYTES} bytes",
        path,
    )
    try:
        with open(path, encoding="utf-8") as file:
            config = json.load(file)
    except (ValueError, RecursionError) as error:
        raise exceptions.InvalidValue(
            f"{path} must be JSON, got: {exceptions.one_line(error)}"
        ) from error
    exceptions.require(
        isinstance(config, dict), f"{path} must be an object of JSON", config
    )
    return config


def _object_configs(config: object) -> Iterator[dict[str, object]]:
    """Yields all parts of a config from which Keras makes an object."""
    if isinstance(config, dict):
        if {"module", "class_name", "registered_name"} & config.keys():
            yield config
        config = list(config.values())
    if isinstance(config, list):
        for part in config:
            yield from _object_configs(part)


def _takes(network: keras.Model, shape: tuple[int, int, int]) -> bool:
    """Whether a network takes images of a shape, and no other inputs."""
    try:
        input_shape = tf.TensorShape(network.input_shape)
    except TypeError:  # several inputs, such as texts beside images
        return False
    return input_shape.is_compatible_with((None, *shape))


def _enable_lora(network: keras.Model, rank: int) -> None:
    """Adds low-rank updates to the attention; raises ValueError without it."""
    network.enable_lora(rank)
    exceptions.require(
        any(map(_is_lora, network.weights)),
        "`lora_rank` must be 0 for a network without attention that has it",
        f"{rank} for {network.name}",
    )


def _preprocessing(hub: types.ModuleType, preset: str) -> str | tuple:
    """Returns (scale, offset) of pixels in 0..255, or "none" or "auto"."""
    try:
        converter = hub.layers.ImageConverter.from_preset(preset)
    except (FileNotFoundError, ValueError):  # the preset has no converter
        converter = None
    if converter is None:
        return _hugging_face_preprocessing(preset)
    scale, offset = converter.scale, converter.offset
    if scale is None and offset is None:
        return "none"
    return _to_list(scale, 1.0), _to_list(offset, 0.0)


def _to_list(numbers: object, default: float) -> list[float]:
    """Returns the numbers of a converter: one, or one for each channel."""
    return np.asarray(default if numbers is None else numbers).ravel().tolist()


def _hugging_face_preprocessing(folder: str) -> str | tuple:
    """Returns (scale, offset) of a folder by Hugging Face, or "auto".

    ((pixels * factor) - mean) / deviation = pixels * scale + offset
    """
    path = os.path.join(folder, _HUGGING_FACE_CONFIG)
    if not os.path.isfile(path):
        return "auto"
    config = _read_config(path)
    factor, mean, deviation = 1.0, 0.0, 1.0
    if config.get("do_rescale", True):
        factor = config.get("rescale_factor", 1 / 255)
    if config.get("do_normalize", True):
        mean = config.get("image_mean", mean)
        deviation = config.get("image_std", deviation)
    deviation = np.asarray(deviation, float)
    scale, offset = factor / deviation, -np.asarray(mean, float) / deviation
    return _to_list(scale, 0.0), _to_list(offset, 0.0)


def _resize_positions(variable: object, value: np.ndarray) -> np.ndarray:
    """Returns position embeddings [..., tokens, dim] in a variable's shape.

    Special tokens, such as the class token, come before the patches and keep
    their embeddings; those of the patches are interpolated as an image.

    Raises:
      ValueError: the variable holds no position embeddings.
    """
    is_position = "position" in variable.path and len(variable.shape) in (2, 3)
    old_count, new_count = (
        shape[-2] if is_position else 0
        for shape in (value.shape, variable.shape)
    )
    grids = _find_grids(old_count, new_count)
    exceptions.require(
        grids is not None and variable.shape[-1] == value.shape[-1],
        "`image_size` must be that of the preset, as a weight depends on it",
        f"{variable.path} {tuple(variable.shape)}, not {value.shape}",
    )
    num_special, old_side, new_side = grids
    rows = value.reshape(old_count, -1).astype(np.float32)  # [tokens, dim]
    grid = rows[num_special:].reshape(1, old_side, old_side, -1)
    grid = tf.image.resize(grid, [new_side, new_side], "bicubic").numpy()
    patches = grid.reshape(new_count - num_special, -1)
    rows = np.concatenate([rows[:num_special], patches])
    return rows.reshape(variable.shape)


def _find_grids(old_count: int, new_count: int) -> tuple[int, int, int] | None:
    """Returns (s, a, b) of the smallest s: old = s + a^2, new = s + b^2."""
    for num_special in range(_MOST_SPECIAL_TOKENS + 1):
        sides = [
            round(max(tokens - num_special, 0) ** 0.5)
            for tokens in (old_count, new_count)
        ]
        counts = [side**2 + num_special for side in sides]
        if min(sides) and counts == [old_count, new_count]:
            return num_special, *sides
    return None
