"""The ResNet v1 stack, with the stride on the 3x3 convolution."""

from __future__ import annotations

import functools

import tensorflow as tf

from supcon_tf.keras_2 import keras
from supcon_tf.models import layers

# He et al. 2016, Table 1; 200 as in the official code of the paper.
BLOCKS_PER_GROUP = {
    18: (2, 2, 2, 2),
    34: (3, 4, 6, 3),
    50: (3, 4, 6, 3),
    101: (3, 4, 23, 3),
    152: (3, 8, 36, 3),
    200: (3, 24, 36, 3),
}
STEMS = ("cifar", "imagenet")
STEM_PADDINGS = ("same", "symmetric")
_EXPANSION = 4  # output channels of a bottleneck per inner channel


def output_filters(depth: int, width: float) -> int:
    """Output channels of the last group."""
    return _group_filters(3, width) * (_EXPANSION if depth >= 50 else 1)


def _group_filters(group: int, width: float) -> int:
    """Returns the inner channels of the blocks of a group."""
    return max(1, round(64 * 2**group * width))


class ResidualBlock(keras.layers.Layer):
    """relu(shortcut(x) + branch(x)), a basic block or a bottleneck.

    [batch, height, width, channels] to [batch, ceil(height / strides),
    ceil(width / strides), output_filters] in the compute dtype.

    Args:
      filters: inner channels; a bottleneck puts out four times as many.
      strides: stride of the block, on its first 3x3 convolution, pixels.
      bottleneck: 1x1, 3x3, 1x1 convolutions instead of two 3x3.
      project: the shortcut is a 1x1 convolution + BN, not the identity. Needed
        where the block changes channels or size.
      zero_init_residual: the gamma of the branch's last BN starts at 0, not 1,
        so that a new block passes its shortcut through.
      synchronized_bn: BN statistics over all replicas.
      **kwargs: of `keras.layers.Layer`.
    """

    def __init__(
        self,
        filters: int,
        strides: int = 1,
        bottleneck: bool = True,
        project: bool = False,
        zero_init_residual: bool = False,
        synchronized_bn: bool = False,
        **kwargs: object,
    ) -> None:
        super().__init__(**kwargs)
        self.output_filters = filters * (_EXPANSION if bottleneck else 1)
        conv = functools.partial(
            layers.ConvBN,
            synchronized_bn=synchronized_bn,
            dtype=self.dtype_policy,
        )
        last_conv = functools.partial(conv, zero_gamma=zero_init_residual)
        if bottleneck:
            self.branch = [
                conv(filters, 1, name="reduce"),
                conv(filters, 3, strides, name="spatial"),
                last_conv(self.output_filters, 1, name="expand"),
            ]
        else:
            self.branch = [
                conv(filters, 3, strides, name="first"),
                last_conv(filters, 3, name="second"),
            ]
        self.shortcut = None
        if project:
            self.shortcut = conv(
                self.output_filters, 1, strides, name="shortcut"
            )

    def build(self, input_shape: tf.TensorShape) -> None:
        layers.build_chain(self.branch, input_shape[-1])
        if self.shortcut is not None:
            layers.build_chain([self.shortcut], input_shape[-1])
        super().build(input_shape)

    def call(self, x: tf.Tensor, training: bool | None = None) -> tf.Tensor:
        shortcut = self.shortcut(x, training=training) if self.shortcut else x
        x = self.branch[0](x, training=training)
        for conv in self.branch[1:]:
            x = conv(tf.nn.relu(x), training=training)
        return tf.nn.relu(shortcut + x)


class ResNet(keras.layers.Layer):
    """Images to the feature map of a ResNet v1, before pooling.

    [batch, height, width, 3] float, normalised, to [batch, height / s,
    width / s, output_filters] in the compute dtype, s = 8 ("cifar") or 32
    ("imagenet"), rounded up.

    Args:
      depth: one of `BLOCKS_PER_GROUP`; basic blocks below 50.
      stem: "cifar" (3x3 convolution) or "imagenet" (7x7 with stride 2, then
        3x3 max pooling with stride 2).
      width: multiplier of all channels, positive.
      zero_init_residual: see `ResidualBlock`.
      synchronized_bn: BN statistics over all replicas.
      stem_padding: one of `STEM_PADDINGS`, for max pooling in "imagenet".
      **kwargs: of `keras.layers.Layer`.

    Reference: Sec. 3.1 of Khosla et al. 2020; He et al. 2016.
    """

    def __init__(
        self,
        depth: int,
        stem: str = "imagenet",
        width: float = 1.0,
        zero_init_residual: bool = False,
        synchronized_bn: bool = False,
        stem_padding: str = "same",
        **kwargs: object,
    ) -> None:
        super().__init__(**kwargs)
        self.stem = stem
        self.stem_padding = stem_padding
        self.output_filters = output_filters(depth, width)
        self.stem_conv = layers.ConvBN(
            _group_filters(0, width),
            kernel_size=7 if stem == "imagenet" else 3,
            strides=2 if stem == "imagenet" else 1,
            synchronized_bn=synchronized_bn,
            dtype=self.dtype_policy,
            name="stem",
        )
        self.blocks = [
            ResidualBlock(
                _group_filters(group, width),
                strides=2 if group > 0 and index == 0 else 1,
                bottleneck=depth >= 50,
                # The first basic block keeps size and channels.
                project=index == 0 and (group > 0 or depth >= 50),
                zero_init_residual=zero_init_residual,
                synchronized_bn=synchronized_bn,
                dtype=self.dtype_policy,
                name=f"group{group}_block{index}",
            )
            for group, count in enumerate(BLOCKS_PER_GROUP[depth])
            for index in range(count)
        ]

    @property
    def chain(self) -> list[keras.layers.Layer]:
        """The layers in the order that an image passes them."""
        return [self.stem_conv, *self.blocks]

    def build(self, input_shape: tf.TensorShape) -> None:
        layers.build_chain(self.chain, input_shape[-1])
        super().build(input_shape)

    def call(
        self, features: tf.Tensor, training: bool | None = None
    ) -> tf.Tensor:
        # [B, H, W, channels], or half the side with the imagenet stem.
        features = tf.nn.relu(self.stem_conv(features, training=training))
        if self.stem == "imagenet":
            padding = "SAME"
            if self.stem_padding == "symmetric":
                padding = [[0, 0], [1, 1], [1, 1], [0, 0]]
            features = tf.nn.max_pool2d(
                features, ksize=3, strides=2, padding=padding
            )
        for block in self.blocks:
            features = block(features, training=training)
        return features
