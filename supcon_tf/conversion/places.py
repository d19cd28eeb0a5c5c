"""The convolutions of a ResNet by their places, and torchvision's names.

A place is (group, block, part): part -1 is the shortcut's convolution, 0, 1, 2
are those of the branch; (-1, 0, 0) is the stem.
"""

from __future__ import annotations

import re

import numpy as np

from supcon_tf import exceptions, models
from supcon_tf.keras_2 import keras

Place = tuple[int, int, int]
STEM: Place = (-1, 0, 0)
TORCH_BN = ("weight", "bias", "running_mean", "running_var")


def places_of(encoder: models.Encoder) -> dict[Place, models.layers.ConvBN]:
    """The convolutions of a built ResNet of ours by their places."""
    stack = encoder.stack
    convolutions = {STEM: stack.stem_conv}
    for layer in stack.blocks:
        group, block = map(int, re.findall(r"\d+", layer.name))
        for part, conv in enumerate(layer.branch):
            convolutions[group, block, part] = conv
        if layer.shortcut is not None:
            convolutions[group, block, -1] = layer.shortcut
    return convolutions


def torchvision_state(
    encoder: models.Encoder, classifier: keras.layers.Layer | None = None
) -> dict[str, np.ndarray]:
    """The weights under torchvision's names, with torch's axes.

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
    state = {}
    for (group, block, part), layer in places_of(encoder).items():
        start = f"layer{group + 1}.{block}." if group >= 0 else ""
        conv, norm = f"{start}conv{part + 1}", f"{start}bn{part + 1}"
        if part < 0:
            conv, norm = f"{start}downsample.0", f"{start}downsample.1"
        state[f"{conv}.weight"] = layer.conv.kernel.numpy().transpose(
            3,
            2,
            0,
            1,  # [H, W, in, out] to [out, in, H, W]
        )
        for name, variable in zip(TORCH_BN, layer.bn.weights, strict=True):
            state[f"{norm}.{name}"] = variable.numpy()
        state[f"{norm}.num_batches_tracked"] = np.array(0)
    if classifier is not None:
        state["fc.weight"] = classifier.kernel.numpy().T
        state["fc.bias"] = classifier.bias.numpy()
    return state
