"""torchvision's MobileNetV2 in Keras, for its ImageNet weights.

  python -m benchmarks.mobilenet mobilenet_v2-b0353104.pth mobilenet.weights.h5

converts the file of `MobileNet_V2_Weights.IMAGENET1K_V1`, which needs PyTorch.
The tools take `--architecture=benchmarks.mobilenet:plain`, or `:encoder` for
representations of unit length, with `--weights=mobilenet.weights.h5`. Keras'
own MobileNetV2 pads strided convolutions and normalises batches otherwise.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np

    from supcon_tf import models
    from supcon_tf.keras_2 import keras

# Sandler et al. 2018, Table 2: expansion, channels, blocks and first stride.
_GROUPS = (
    *((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2)),
    *((6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)),
)


def plain() -> models.BackboneEncoder:
    """The encoder of 1,280 features, of any length."""
    from supcon_tf import models

    return models.BackboneEncoder(
        backbone(), preprocessing="torch", normalize=False
    )


def encoder() -> models.BackboneEncoder:
    """The encoder of 1,280 features, of unit length."""
    from supcon_tf import models

    return models.BackboneEncoder(backbone(), preprocessing="torch")


def backbone() -> keras.Model:
    """[b, h, w, 3] images in ImageNet's mean and deviation to [b, 1280]."""
    from supcon_tf.keras_2 import keras

    layers = keras.layers

    def convolved(x: object, channels: int, kernel: int, stride: int) -> object:
        if kernel > 1:
            x = layers.ZeroPadding2D(1)(x)
        if channels:
            convolution = layers.Conv2D(
                channels, kernel, stride, use_bias=False
            )
        else:
            convolution = layers.DepthwiseConv2D(kernel, stride, use_bias=False)
        return layers.BatchNormalization(epsilon=1e-5, momentum=0.9)(
            convolution(x)
        )

    images = layers.Input((None, None, 3))
    x = layers.ReLU(6.0)(convolved(images, 32, 3, 2))
    for expansion, channels, blocks, first_stride in _GROUPS:
        for stride in (first_stride, *[1] * (blocks - 1)):
            block_input = x
            width = x.shape[-1]
            if expansion > 1:
                x = layers.ReLU(6.0)(convolved(x, expansion * width, 1, 1))
            x = layers.ReLU(6.0)(convolved(x, 0, 3, stride))
            x = convolved(x, channels, 1, 1)
            if stride == 1 and width == channels:
                x = layers.Add()([block_input, x])
    x = layers.ReLU(6.0)(convolved(x, 1280, 1, 1))
    return keras.Model(images, layers.GlobalAveragePooling2D()(x))


def assign(network: keras.Model, state: Mapping[str, np.ndarray]) -> None:
    """Gives `backbone()` the weights of a state dict, in their order."""
    arrays = [
        array.transpose(2, 3, 1, 0) if array.ndim == 4 else array
        for name, array in state.items()
        if name.startswith("features.") and "num_batches" not in name
    ]  # a kernel [out, in, h, w], then four vectors of its batch norm
    for layer in network.layers:
        count = len(layer.weights)
        values, arrays = arrays[:count], arrays[count:]
        if "depthwise" in layer.name:  # [h, w, 1, c] to [h, w, c, 1]
            values = [value.transpose(0, 1, 3, 2) for value in values]
        layer.set_weights(values)
    if arrays:
        raise ValueError(f"{len(arrays)} arrays of no layer are left")


def main(checkpoint: str, weights_path: str) -> None:
    """Converts a .pth file to a file of Keras' weights."""
    import torch

    state = torch.load(checkpoint, map_location="cpu", weights_only=True)
    network = backbone()
    assign(network, {name: value.numpy() for name, value in state.items()})
    network.save_weights(weights_path)


if __name__ == "__main__":
    main(*sys.argv[1:])
