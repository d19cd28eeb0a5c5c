"""Encoders by name: networks of `keras.applications`, and a user's own."""

from __future__ import annotations

import contextlib
import importlib
import os
from collections.abc import Callable, Iterator

import numpy as np

from supcon_tf import exceptions, keras_2, proxies, trust
from supcon_tf.keras_2 import keras
from supcon_tf.models import backbone, hub

_KERAS = "keras:"
# What the networks of a module take, by its `preprocess_input`; those of the
# others take pixels, and have a layer for the rest.
_PREPROCESSING = {
    "densenet": "torch",
    "inception_resnet_v2": "tf",
    "inception_v3": "tf",
    "mobilenet": "tf",
    "mobilenet_v2": "tf",
    "nasnet": "tf",
    "resnet": "caffe",
    "resnet_v2": "tf",
    "vgg16": "caffe",
    "vgg19": "caffe",
    "xception": "tf",
}
# Smallest side of the images in pixels, where it is not 32.
_LEAST_SIDES = {"inception_resnet_v2": 75, "inception_v3": 75, "xception": 71}


def named_encoder(
    architecture: str,
    image_size: int,
    channels: int = 3,
    pooling: str = "auto",
    lora_rank: int = 0,
    **options: object,
) -> keras.Model:
    """A network by its name as an encoder, with random weights, not built.

    Args:
      architecture: "keras:NAME", a class of `keras.applications` without its
        classifier; "keras_hub:PRESET", a network of KerasHub, by its name there
        or a folder, with the preprocessing of the preset; or
        "package.module:function", which returns a Keras model as
        `BackboneEncoder` takes it, of Keras 2 or 3, or an encoder. It is
        imported, so its code runs; a module that lies in a run directory is
        refused.
      image_size: side of the images in pixels.
      channels: of the images; a function's network has its own.
      pooling: of the tokens of a preset, as of `keras_3.Backbone`.
      lora_rank: rank of the updates of a preset's attention, which alone train;
        0 trains all weights.
      **options: of `BackboneEncoder`, but for `preprocessing`, which is that of
        the network; an encoder that a function returns has its own.

    Example:
      >>> from supcon_tf import models
      >>> encoder = models.named_encoder("keras:MobileNet", image_size=32)
      >>> encoder.build((None, 32, 32, 3))
      >>> encoder.representation_dim
      1024

    Raises:
      ValueError: there is no such network or function, it takes no images so
        small, or returns no model.
      TypeError: a function returns something else of Keras 3.
      ImportError: of a preset, where there is no KerasHub.
    """
    if architecture.startswith(hub.PREFIX):
        with _precision_of_keras_3():
            network, preprocessing = hub.make(
                architecture, image_size, channels, pooling, lora_rank
            )
        return backbone.BackboneEncoder(network, preprocessing, **options)
    make = _maker(architecture, image_size)
    if not architecture.startswith(_KERAS):
        with _precision_of_keras_3():
            made = backbone.of_keras_2(make())
        keras_2.refuse_keras_3(architecture=made)
        exceptions.require(
            isinstance(made, keras.Model),
            f"`architecture` {architecture} must return a keras.Model",
            type(made),
        )
        if hasattr(made, "representation_dim"):
            return made
        return backbone.BackboneEncoder(made, **options)
    side = None
    if _module(make) == "nasnet":  # whose cells are built for one size
        side = image_size
    network = make(
        include_top=False, weights=None, input_shape=(side, side, channels)
    )
    preprocessing = _PREPROCESSING.get(_module(make), "none")
    return backbone.BackboneEncoder(network, preprocessing, **options)


def check_named(architecture: str, image_size: int | None = None) -> None:
    """Raises ValueError as `named_encoder`, before anything is made.

    Example:
      >>> from supcon_tf import models
      >>> models.check_named("keras:MobileNet", image_size=32)
      >>> try:
      ...     models.check_named("keras:Xception", image_size=32)
      ... except ValueError as error:
      ...     print(error)
      `image_size` must be at least 71 for keras:Xception, got 32
    """
    if architecture.startswith(hub.PREFIX):
        hub.check(architecture)
    else:
        _maker(architecture, image_size)


def imagenet_weights(architecture: str, image_size: int) -> list[np.ndarray]:
    """The weights that Keras publishes for the network of `named_encoder`.

    Example:
      >>> from supcon_tf import models
      >>> try:
      ...     models.imagenet_weights("vgg8", image_size=32)
      ... except ValueError as error:
      ...     print(str(error).partition(", got")[0])
      `weights` must be a file for an architecture that is not keras:NAME

    Raises:
      ValueError: it is none of Keras', or the file is not in Keras' cache and
        cannot be downloaded.
    """
    exceptions.require(
        architecture.startswith(_KERAS),
        "`weights` must be a file for an architecture that is not keras:NAME",
        f"imagenet for {architecture}",
    )
    make = _maker(architecture, image_size)
    # At the size of the publication: it does not matter to the weights. The
    # MobileNets warn where it is not said.
    size = {}
    if _module(make).startswith("mobilenet"):
        size["input_shape"] = (224, 224, 3)
    try:
        source = make(include_top=False, weights="imagenet", **size)
    except Exception as error:  # Keras raises no narrower one
        address, _, reason = str(error).partition(": ")
        if "fetch failure" not in address:
            raise
        url = address.rpartition(" ")[2]
        reason = reason.removeprefix("None -- ") + proxies.used_by_urllib(url)
        file = url.rpartition("/")[2]
        cache = os.path.join(os.path.expanduser("~"), ".keras", "models")
        raise exceptions.InvalidValue(
            f"`weights` must find {file} in {cache}, got no such file, and "
            f"Keras could not download it ({reason}): put what is at {url} "
            "there"
        ) from error
    return source.get_weights()


@contextlib.contextmanager
def _precision_of_keras_3() -> Iterator[None]:
    """Meanwhile the global policy of Keras 3 is that of Keras 2."""
    if keras_2.PACKAGE == "keras":  # which is alone
        yield
        return
    of_3 = importlib.import_module("keras").config
    before = of_3.dtype_policy()
    of_3.set_dtype_policy(keras.mixed_precision.global_policy().name)
    try:
        yield
    finally:
        of_3.set_dtype_policy(before)


def _module(make: Callable[..., keras.Model]) -> str:
    """The name of the module of `keras.applications` of a network."""
    return make.__module__.rpartition(".")[2]


def _maker(
    architecture: str, image_size: int | None
) -> Callable[..., keras.Model]:
    """The function that a name stands for; raises ValueError."""
    if not architecture.startswith(_KERAS):
        return trust.import_function(architecture)
    name = architecture.removeprefix(_KERAS)
    known = [x for x in dir(keras.applications) if x[0].isupper()]
    exceptions.require(
        name in known,
        f"`architecture` must be keras: and one of {', '.join(known)}",
        architecture,
    )
    make = getattr(keras.applications, name)
    least = _LEAST_SIDES.get(_module(make), 32)
    exceptions.require(
        image_size is None or image_size >= least,
        f"`image_size` must be at least {least} for {architecture}",
        image_size,
    )
    return make
