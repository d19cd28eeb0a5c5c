"""The convolutions of VGG-8 and VGG-16 with batch normalisation."""

from __future__ import annotations

import itertools

import tensorflow as tf

from supcon_tf.keras_2 import keras
from supcon_tf.models import layers

# Convolutions of each stage, as in the companion deck: 2 x 64, 2 x 128, ...
CONVS_PER_STAGE = {8: (2, 2, 4), 16: (2, 2, 4, 4)}
_FILTERS = (64, 128, 256, 512)


def output_filters(depth: int, width: float) -> int:
    """Channels of the last stage."""
    return _stage_filters(len(CONVS_PER_STAGE[depth]) - 1, width)


def _stage_filters(stage: int, width: float) -> int:
    """Returns the channels of the convolutions of a stage."""
    return max(1, round(_FILTERS[stage] * width))


class VGG(keras.layers.Layer):
    """Images to the feature map of a VGG, before global average pooling.

    [batch, height, width, 3] float, normalised, to [batch, ceil(height / s),
    ceil(width / s), output_filters] in the compute dtype, where s is 4 (depth
    8) or 8. The stack has three or four stages of 3x3 convolutions, each with
    BN and ReLU, and 2x2 max pooling between the stages. The pooling rounds up,
    so that a small image keeps a pixel.

    Args:
      depth: 8: 2 x 64, 2 x 128 and 4 x 256 channels; 16: and 4 x 512.
      width: multiplier of all channels, positive.
      synchronized_bn: BN statistics over all replicas.
      **kwargs: of `keras.layers.Layer`.

    Reference: the companion deck of the paper; after Simonyan and Zisserman
      2015, whose stacks differ.
    """

    def __init__(
        self,
        depth: int,
        width: float = 1.0,
        synchronized_bn: bool = False,
        **kwargs: object,
    ) -> None:
        super().__init__(**kwargs)
        self.output_filters = output_filters(depth, width)
        # One flat list: Keras' .keras files lose weights of nested ones.
        self.convs = [
            layers.ConvBN(
                _stage_filters(stage, width),
                synchronized_bn=synchronized_bn,
                dtype=self.dtype_policy,
                name=f"stage{stage}_conv{index}",
            )
            for stage, count in enumerate(CONVS_PER_STAGE[depth])
            for index in range(count)
        ]
        # Indices of the convs after a pooling. Old checkpoints have this name.
        self.stage_starts = list(itertools.accumulate(CONVS_PER_STAGE[depth]))

    @property
    def chain(self) -> list[keras.layers.Layer]:
        """The layers in the order that an image passes them."""
        return list(self.convs)

    def build(self, input_shape: tf.TensorShape) -> None:
        layers.build_chain(self.chain, input_shape[-1])
        super().build(input_shape)

    def call(
        self, features: tf.Tensor, training: bool | None = None
    ) -> tf.Tensor:
        for index, conv in enumerate(self.convs):
            if index in self.stage_starts:
                # [B, ceil(H / 2), ceil(W / 2), channels]
                features = tf.nn.max_pool2d(
                    features, ksize=2, strides=2, padding="SAME"
                )
            features = tf.nn.relu(conv(features, training=training))
        return features
