"""The convolutions of a ResNet by their position, and torchvision's names.

A position is (group, block, part): part -1 is the convolution of the shortcut,
0, 1, 2 are those of the branch; (-1, 0, 0) is the stem.
"""

from __future__ import annotations

import re

import numpy as np

from supcon_tf import exceptions, models
from supcon_tf.keras_2 import keras

Position = tuple[int, int, int]
STEM: Position = (-1, 0, 0)
_TORCH_BN = ("weight", "bias", "running_mean", "running_var")


def by_position(
    encoder: models.Encoder,
) -> dict[Position, models.layers.ConvBN]:
    """Returns the convolutions of our ResNet, which is built, by position."""
    network = encoder.stack
    convolutions = {STEM: network.stem_conv}
    for layer in network.blocks:
        group, block = map(int, re.findall(r"\d+", layer.name))
        for part, conv in enumerate(layer.branch):
            convolutions[group, block, part] = conv
        if layer.shortcut is not None:
            convolutions[group, block, -1] = layer.shortcut
    return convolutions


def torch_names(
    position: Position, shortcut: str = "downsample", prefix: str = ""
) -> list[str]:
    """Names of kernel, gamma, beta, mean and variance in a ResNet of torch."""
    group, block, part = position
    if group >= 0:
        prefix += f"layer{group + 1}.{block}."
    conv, norm = f"{prefix}conv{part + 1}", f"{prefix}bn{part + 1}"
    if part < 0:
        conv, norm = f"{prefix}{shortcut}.0", f"{prefix}{shortcut}.1"
    return [f"{conv}.weight", *(f"{norm}.{weight}" for weight in _TORCH_BN)]


def torchvision_state(
    encoder: models.Encoder, classifier: keras.layers.Layer | None = None
) -> dict[str, np.ndarray]:
    """Returns the weights under torchvision's names, with torch's axes.

    Raises:
      ValueError: torchvision has no such network.
    """
    stack = getattr(encoder, "stack", None)
    exceptions.require(
        isinstance(stack, models.resnet.ResNet)
        and stack.stem == "imagenet"
        and stack.stem_padding == "symmetric"
        and encoder.width == 1
        and encoder.architecture != "resnet200",
        "`formats` must be without torchvision, but for a ResNet-18 to 152 of "
        "width 1 with the imagenet stem and symmetric stem padding",
        getattr(encoder, "architecture", encoder.name),
    )
    exceptions.require(
        classifier is None or not encoder.normalize,
        "`classifier` must be none for torchvision, whose classifiers take "
        "what was pooled",
        "one of representations of unit length",
    )
    exceptions.require(
        classifier is None or classifier.use_bias,
        "`classifier` must be none or linear for torchvision",
        "one of cosines, of --objective=max_margin",
    )
    state = {}
    for position, layer in by_position(encoder).items():
        kernel_name, *names = torch_names(position)
        kernel = layer.conv.kernel.numpy()  # [H, W, in, out]
        state[kernel_name] = kernel.transpose(3, 2, 0, 1)
        for name, variable in zip(names, layer.bn.weights, strict=True):
            state[name] = variable.numpy()
        counter = names[0].removesuffix("weight") + "num_batches_tracked"
        state[counter] = np.array(0)
    if classifier is not None:
        state["fc.weight"] = classifier.kernel.numpy().T
        state["fc.bias"] = classifier.bias.numpy()
    return state
