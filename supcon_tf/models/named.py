"""Encoders by name: networks of `keras.applications`, and a user's own."""

from __future__ import annotations

import contextlib
import importlib
import os
from collections.abc import Callable, Iterator

import numpy as np

from supcon_tf import exceptions, keras_2
from supcon_tf.host import proxies, trust
from supcon_tf.keras_2 import keras
from supcon_tf.models import backbone, hub

_KERAS = "keras:"
# The preprocessing of the networks of a module, by its `preprocess_input`.
# Networks of other modules take pixels, and have a layer for preprocessing.
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
# Smallest side of images in pixels, for networks where it is not 32.
_LEAST_SIDES = {"inception_resnet_v2": 75, "inception_v3": 75, "xception": 71}


def named_encoder(
    architecture: str,
    image_size: int,
    channels: int = 3,
    pooling: str = "auto",
    lora_rank: int = 0,
    **options: object,
) -> keras.Model:
    """Makes an encoder from a network's name: random weights, not built.

    Args:
      architecture: "keras:NAME", a class of `keras.applications` without its
        classifier; "keras_hub:PRESET", a network of KerasHub, by its name there
        or a folder, with the preprocessing of the preset; or
        "package.module:function", which returns a Keras model as
        `BackboneEncoder` takes it, of Keras 2 or 3, or an encoder. The module
        is imported, so its code runs; a module in a run directory is refused.
      image_size: side of the images in pixels.
      channels: of the images; the network of a function decides for itself.
      pooling: how the tokens of a preset are pooled; see `keras_3.Backbone`.
      lora_rank: rank of the updates of a preset's attention, which alone train;
        0 trains all weights.
      **options: of `BackboneEncoder` except `preprocessing`, which the network
        determines; ignored for an encoder that a function returns.

    Example:
      >>> from supcon_tf import models
      >>> encoder = models.named_encoder("keras:MobileNet", image_size=32)
      >>> encoder.build((None, 32, 32, 3))
      >>> encoder.representation_dim
      1024

    Raises:
      ValueError: there is no such network or function, the network takes no
        images so small, or the function returns no model.
      TypeError: a function returns an object of Keras 3 that is no model.
      ImportError: `architecture` is a preset, and there is no KerasHub.
    """
    if architecture.startswith(hub.PREFIX):
        with _same_precision_in_keras_3():
            network, preprocessing = hub.make(
                architecture, image_size, channels, pooling, lora_rank
            )
        return backbone.BackboneEncoder(network, preprocessing, **options)
    make_network = _find_function(architecture, image_size)
    if not architecture.startswith(_KERAS):
        with _same_precision_in_keras_3():
            network = backbone.to_keras_2(make_network())
        keras_2.refuse_keras_3(architecture=network)
        exceptions.require(
            isinstance(network, keras.Model),
            f"`architecture` {architecture} must return a keras.Model",
            type(network),
        )
        if hasattr(network, "representation_dim"):
            return network
        return backbone.BackboneEncoder(network, **options)
    side = None
    if _module(make_network) == "nasnet":  # whose cells are built for one size
        side = image_size
    network = make_network(
        include_top=False, weights=None, input_shape=(side, side, channels)
    )
    preprocessing = _PREPROCESSING.get(_module(make_network), "none")
    return backbone.BackboneEncoder(network, preprocessing, **options)


def check_named(architecture: str, image_size: int | None = None) -> None:
    """Raises ValueError as `named_encoder`, without making a network.

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
        _find_function(architecture, image_size)


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
      ValueError: the network is none of Keras', or the file is not in Keras'
        cache and cannot be downloaded.
    """
    exceptions.require(
        architecture.startswith(_KERAS),
        "`weights` must be a file for an architecture that is not keras:NAME",
        f"imagenet for {architecture}",
    )
    make_network = _find_function(architecture, image_size)
    # The weights do not depend on the size of the images. The MobileNets warn
    # where no size is given.
    size = {}
    if _module(make_network).startswith("mobilenet"):
        size["input_shape"] = (224, 224, 3)
    try:
        network = make_network(include_top=False, weights="imagenet", **size)
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
    return network.get_weights()


@contextlib.contextmanager
def _same_precision_in_keras_3() -> Iterator[None]:
    """A context in which Keras 3 has the global policy of Keras 2."""
    if keras_2.PACKAGE == "keras":  # there is no Keras 3
        yield
        return
    config = importlib.import_module("keras").config
    policy = config.dtype_policy()
    config.set_dtype_policy(keras.mixed_precision.global_policy().name)
    try:
        yield
    finally:
        config.set_dtype_policy(policy)


def _module(make_network: Callable[..., keras.Model]) -> str:
    """Returns the name of a network's module in `keras.applications`."""
    return make_network.__module__.rpartition(".")[2]


def _find_function(
    architecture: str, image_size: int | None
) -> Callable[..., keras.Model]:
    """Returns the function that makes a network; raises ValueError."""
    if not architecture.startswith(_KERAS):
        return trust.import_function(architecture)
    name = architecture.removeprefix(_KERAS)
    networks = [
        network for network in dir(keras.applications) if network[0].isupper()
    ]
    exceptions.require(
        name in networks,
        f"`architecture` must be keras: and one of {', '.join(networks)}",
        architecture,
    )
    make_network = getattr(keras.applications, name)
    least_side = _LEAST_SIDES.get(_module(make_network), 32)
    exceptions.require(
        image_size is None or image_size >= least_side,
        f"`image_size` must be at least {least_side} for {architecture}",
        image_size,
    )
    return make_network
