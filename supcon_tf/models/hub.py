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

from supcon_tf import exceptions, keras_2, trust
from supcon_tf.keras_2 import keras
from supcon_tf.models import weights

PREFIX = "keras_hub:"
POOLINGS = "auto", "class_token", "mean", "both"
_CONFIGS = "config.json", "image_converter.json"
_OF_HUGGING_FACE = "preprocessor_config.json"
_MAX_BYTES = 2**20  # of a config
# What a config may make of Keras, beside classes of KerasHub: no layers, which
# may hold code, and no functions.
_OF_KERAS = re.compile(r"keras\.DTypePolicy|keras\.initializers\.[A-Z]\w+")


def check(architecture: str, pooling: str = "auto") -> None:
    """Raises an error for a preset that cannot be had here.

    Raises:
      ImportError: there is no Keras 3, or no KerasHub.
      ValueError: a folder of a preset is none, or would make objects that are
        none of KerasHub; it is an address, or `pooling` is none.
    """
    exceptions.require_one_of(POOLINGS, "pooling", pooling)
    preset = architecture.removeprefix(PREFIX)
    # A run of others may name it, and nobody has looked at what lies there.
    exceptions.require(
        "://" not in preset,
        f"{PREFIX}PRESET must be a name of KerasHub's own, or a folder: "
        "download what another has published, and give the folder",
        preset,
    )
    _import()
    if os.path.isdir(preset):
        _check_folder(preset)


def make(
    architecture: str,
    image_size: int,
    channels: int = 3,
    pooling: str = "auto",
    lora_rank: int = 0,
) -> tuple[keras.Model, str | tuple]:
    """Makes the network of a preset, with random weights.

    Args:
      architecture: "keras_hub:PRESET", a name of KerasHub's or what else its
        `from_preset` takes, a folder too.
      image_size: side of the images in pixels.
      channels: of the images.
      pooling: of tokens, as of `keras_3.Backbone`.
      lora_rank: of the low-rank updates that alone train, in attention; 0 for
        none, where all weights train.

    Returns:
      A `keras_3.Backbone`, and its `preprocessing` for `BackboneEncoder`.

    Raises:
      ValueError: there is no such preset, it takes no such images, or has no
        low-rank updates.
    """
    hub = check_and_import(architecture, pooling)
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
    pixels = _preprocessing(hub, preset)
    return of_keras_3.Backbone(network, pooling), pixels


def load_preset(encoder: keras.Model, architecture: str) -> None:
    """Gives a built encoder of "keras_hub:PRESET" the weights of its preset.

    Positions of a vision transformer are interpolated for images of another
    size than those that it was trained on.

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
      ValueError: they cannot be had, or are none of images of this size; or it
        is no preset.
    """
    exceptions.require(
        architecture.startswith(PREFIX),
        f"`weights` must be preset of {PREFIX}PRESET alone",
        architecture,
    )
    hub = _import()
    preset = architecture.removeprefix(PREFIX)
    source = _load(hub, preset)
    theirs = source.weights
    ours = [x for x in encoder.backbone.network.weights if not _is_lora(x)]
    exceptions.require(
        len(ours) == len(theirs),
        f"`architecture` {architecture} must have the weights of its preset",
        f"{len(ours)} and {len(theirs)}",
    )
    for own, other in zip(ours, theirs, strict=True):
        value = other.numpy()
        if own.shape != other.shape:
            value = _resized(own, value)
        own.assign(value)


def _is_lora(variable: object) -> bool:
    return variable.name.startswith("lora_")


def check_and_import(architecture: str, pooling: str) -> types.ModuleType:
    """KerasHub, once the preset is checked."""
    check(architecture, pooling)
    return _import()


def _import() -> types.ModuleType:
    if keras_2.PACKAGE == "keras":
        raise exceptions.MissingPackage(
            "keras_hub:PRESET must have Keras 3 and KerasHub, which Python "
            "3.12 and 3.13 have: see docs/install.md"
        )
    (hub,) = exceptions.import_extra("hub", "keras_hub")
    return hub


def _load(hub: types.ModuleType, preset: str, **options: object) -> keras.Model:
    """The backbone of a preset; raises ValueError in one line."""
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

    Or whose weights lie in files elsewhere.
    """
    exceptions.require(
        os.path.isfile(os.path.join(folder, _CONFIGS[0])),
        f"a folder of `architecture` {PREFIX}FOLDER must have config.json",
        folder,
    )
    for name in _CONFIGS:
        path = os.path.join(folder, name)
        if os.path.isfile(path):
            for made in _objects(_read_config(path)):
                _check_object(made, path)
    for path in glob.glob(f"{glob.escape(folder)}/*.h5"):
        with h5py.File(path) as file:
            weights.check_whole(file)


def _check_object(made: dict[str, object], path: str) -> None:
    """Raises ValueError for an object that no preset needs."""
    module, kind = (str(made.get(key)) for key in ("module", "class_name"))
    registered = str(made.get("registered_name"))
    is_of_hub = (
        module.partition(".")[0] == "keras_hub"
        and registered == f"keras_hub>{kind}"
    )
    is_of_keras = registered in ("None", kind) and _OF_KERAS.fullmatch(
        f"{module}.{kind}"
    )
    exceptions.require(
        is_of_hub or is_of_keras,
        "a config of a preset must make classes of KerasHub alone, types of "
        "numbers and initializers",
        f"{module}.{kind}, registered as {registered}, in {path}",
    )


def _read_config(path: str) -> dict[str, object]:
    """A file of a preset; raises ValueError for none that can be read."""
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


def _objects(config: object) -> Iterator[dict[str, object]]:
    """All parts of a config of which Keras makes an object."""
    if isinstance(config, dict):
        if {"module", "class_name", "registered_name"} & config.keys():
            yield config
        config = list(config.values())
    if isinstance(config, list):
        for part in config:
            yield from _objects(part)


def _takes(network: keras.Model, shape: tuple[int, int, int]) -> bool:
    """Whether a network takes images of a shape, and them alone."""
    try:
        own = tf.TensorShape(network.input_shape)
    except TypeError:  # it takes several, as texts beside images
        return False
    return own.is_compatible_with((None, *shape))


def _enable_lora(network: keras.Model, rank: int) -> None:
    network.enable_lora(rank)
    exceptions.require(
        any(map(_is_lora, network.weights)),
        "`lora_rank` must be 0 for a network without attention that has it",
        f"{rank} for {network.name}",
    )


def _preprocessing(hub: types.ModuleType, preset: str) -> str | tuple:
    """What a preset does to pixels in 0..255: (scale, offset)."""
    try:
        converter = hub.layers.ImageConverter.from_preset(preset)
    except (FileNotFoundError, ValueError):  # it has none
        converter = None
    if converter is None:
        return _of_hugging_face(preset)
    scale, offset = converter.scale, converter.offset
    if scale is None and offset is None:
        return "none"
    return _listed(scale, 1.0), _listed(offset, 0.0)


def _listed(numbers: object, default: float) -> list[float]:
    """One number, or one of each channel, of what a converter has."""
    return np.asarray(default if numbers is None else numbers).ravel().tolist()


def _of_hugging_face(folder: str) -> str | tuple:
    """The same of a folder that Hugging Face wrote; "auto" for no such file."""
    path = os.path.join(folder, _OF_HUGGING_FACE)
    if not os.path.isfile(path):
        return "auto"
    config = _read_config(path)
    scale, mean, deviation = 1.0, 0.0, 1.0
    if config.get("do_rescale", True):
        scale = config.get("rescale_factor", 1 / 255)
    if config.get("do_normalize", True):
        mean = config.get("image_mean", mean)
        deviation = config.get("image_std", deviation)
    deviation = np.asarray(deviation, float)
    pair = scale / deviation, -np.asarray(mean, float) / deviation
    return tuple(_listed(numbers, 0.0) for numbers in pair)


def _resized(own: object, value: np.ndarray) -> np.ndarray:
    """Positions [..., tokens, dim] for another number of patches.

    Those of tokens that are of no patch come first, and stay.

    Raises:
      ValueError: it is no such weight.
    """
    is_position = "position" in own.path and len(own.shape) in (2, 3)
    old, new = (x[-2] if is_position else 0 for x in (value.shape, own.shape))
    sides = _sides(old, new)
    exceptions.require(
        sides is not None and own.shape[-1] == value.shape[-1],
        "`image_size` must be that of the preset, as a weight depends on it",
        f"{own.path} {tuple(own.shape)}, not {value.shape}",
    )
    before, old_side, new_side = sides
    rows = value.reshape(old, -1).astype(np.float32)
    grid = rows[before:].reshape(1, old_side, old_side, -1)
    grid = tf.image.resize(grid, [new_side, new_side], "bicubic").numpy()
    rows = np.concatenate([rows[:before], grid.reshape(new - before, -1)])
    return rows.reshape(own.shape)


def _sides(old: int, new: int) -> tuple[int, int, int] | None:
    """Tokens before the patches, and the sides of both squares of patches."""
    for before in range(8):
        sides = [round(max(x - before, 0) ** 0.5) for x in (old, new)]
        counts = [side**2 + before for side in sides]
        if min(sides) and counts == [old, new]:
            return before, *sides
    return None
