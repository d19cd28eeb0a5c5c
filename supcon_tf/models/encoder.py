"""Images to representations of unit length."""

from __future__ import annotations

import math

import tensorflow as tf

from supcon_tf import exceptions, pixels
from supcon_tf.defaults import MOST_CHANNELS
from supcon_tf.keras_2 import keras
from supcon_tf.models import base, layers, resnet, vgg

_RESNETS = {f"resnet{depth}": depth for depth in resnet.BLOCKS_PER_GROUP}
_VGGS = {f"vgg{depth}": depth for depth in vgg.CONVS_PER_STAGE}


def usual_stem(side: int) -> str:
    """Returns the stem for images of `side` pixels; large ones need strides."""
    return "cifar" if side <= 64 else "imagenet"


@keras.utils.register_keras_serializable(package="supcon_tf")
class Encoder(base.Model):
    """Enc of Sec. 3.1: r = Enc(x), normalised to the unit sphere.

    The graph normalises images itself, so that a SavedModel does so too.
    Pooling, norm and output are float32 under every precision policy.

    Args:
      architecture: "resnet18", "resnet34", "resnet50", "resnet101",
        "resnet152", "resnet200", "vgg8" or "vgg16".
      stem: "cifar" (no early downsampling), "imagenet", or "auto": "cifar" for
        images up to 64 pixels, else "imagenet". VGG has one stem, "auto".
      width: multiplier of all channels, positive.
      image_mean: mean per channel, of pixels in 0..1; three equal numbers
        stand for any number of channels. For images that are normalised
        already, (0, 0, 0) with an `image_std` of (1 / 255,) * 3.
      image_std: standard deviation per channel, likewise.
      normalize: put out r / ||r|| as in the paper, not the pooled activations.
      synchronized_bn: BN statistics over all replicas of the strategy. Without
        effect on one replica, where Keras' moving variance is n / (n - 1) times
        that of several replicas, with n the pixels of a batch that it sees.
      zero_init_residual: in a ResNet, the gamma of the last BN of a residual
        branch starts at 0, not 1, as in google-research's code.
      stem_padding: how the "imagenet" stem pads before it pools: "same", at
        the end of even sizes, as Google's code; or "symmetric", as torch's.
      name: first part of the variables' names; `**kwargs` are Keras' too.

    Attributes:
      representation_dim: int, times width: 256 for vgg8, 512 for vgg16 and
        ResNets below depth 50, else 2048.
      resolved_stem: "cifar" or "imagenet" once built; None before, and for VGG.
      takes_pixels: whether images of another range than 0..255 are refused,
        as they are unless images are normalised already.

    Example:
      >>> import numpy as np
      >>> import supcon_tf
      >>> encoder = supcon_tf.Encoder("resnet18", width=0.25)
      >>> encoder(np.zeros([2, 32, 32, 3], np.uint8)).shape
      TensorShape([2, 128])

    Raises:
      ValueError: a bad argument; images that are not [batch, height, width, C],
        or floats that are not in 0..255; stem "auto" for images of unknown
        size.

    Reference: https://arxiv.org/abs/2004.11362, Sec. 3.1.
    """

    def __init__(
        self,
        architecture: str = "resnet50",
        stem: str = "auto",
        width: float = 1.0,
        image_mean: tuple[float, float, float] = (0.5, 0.5, 0.5),
        image_std: tuple[float, float, float] = (0.5, 0.5, 0.5),
        normalize: bool = True,
        synchronized_bn: bool = True,
        zero_init_residual: bool = False,
        stem_padding: str = "same",
        *,
        name: str = "encoder",
        **kwargs: object,
    ) -> None:
        # Keras' autocast would round float pixels to the compute dtype before
        # they are normalised.
        super().__init__(name=name, autocast=False, **kwargs)
        architectures = [*_RESNETS, *_VGGS]
        exceptions.require_one_of(architectures, "architecture", architecture)
        exceptions.require(
            architecture in _RESNETS or stem == "auto",
            "`stem` must be 'auto' for VGG",
            repr(stem),
        )
        exceptions.require_one_of(("auto", *resnet.STEMS), "stem", stem)
        exceptions.require_one_of(
            resnet.STEM_PADDINGS, "stem_padding", stem_padding
        )
        exceptions.require(
            0 < width < math.inf, "`width` must be positive", width
        )
        for key, values in ("image_mean", image_mean), ("image_std", image_std):
            exceptions.require(
                not isinstance(values, int | float),
                f"`{key}` must be a tuple, as ({values},) * 3",
                values,
            )
            exceptions.require(
                1 <= len(values) <= MOST_CHANNELS,
                f"`{key}` must have 1 to {MOST_CHANNELS} channels",
                tuple(values),
            )
        exceptions.require(
            min(image_std) > 0, "`image_std` must be positive", tuple(image_std)
        )
        self.architecture = architecture
        self.stem = stem
        self.width = width
        self.image_mean = tuple(image_mean)
        self.image_std = tuple(image_std)
        self.normalize = normalize
        self.synchronized_bn = synchronized_bn
        self.zero_init_residual = zero_init_residual
        self.stem_padding = stem_padding
        self.representation_dim = (
            resnet.output_filters(_RESNETS[architecture], width)
            if architecture in _RESNETS
            else vgg.output_filters(_VGGS[architecture], width)
        )
        # A deviation of about one pixel level means images that are normalised
        # already.
        self.takes_pixels = 255 * max(image_std) > 2
        self.resolved_stem: str | None = None
        self.stack: keras.layers.Layer | None = None

    def _build_parts(self, input_shape: tf.TensorShape) -> None:
        shape = layers.check_images(input_shape)
        self._channels = shape[-1]
        for key in ("image_mean", "image_std"):
            values = getattr(self, key)
            exceptions.require(
                len({*values}) == 1 or len(values) == shape[-1],
                f"`{key}` must have the {shape[-1]} channels of the images",
                values,
            )
        synchronized = self.synchronized_bn and layers.spans_replicas(self)
        options = {
            "width": self.width,
            "synchronized_bn": synchronized,
            "dtype": self.dtype_policy,
            "name": self.architecture,
        }
        if self.architecture in _VGGS:
            self.stack = vgg.VGG(_VGGS[self.architecture], **options)
        else:
            self.resolved_stem = self.stem
            if self.stem == "auto":
                height, width = shape[1:3]
                exceptions.require(
                    None not in (height, width),
                    "`stem` must be 'cifar' or 'imagenet' where the image size "
                    "is not static",
                    f"'auto' for images of {height} x {width}",
                )
                self.resolved_stem = usual_stem(max(height, width))
            self.stack = resnet.ResNet(
                _RESNETS[self.architecture],
                self.resolved_stem,
                zero_init_residual=self.zero_init_residual,
                stem_padding=self.stem_padding,
                **options,
            )
        self._build_part(self.stack, (None, None, None, shape[-1]))

    def _check_shape(self, shape: tf.TensorShape) -> None:
        layers.check_images(shape)

    def call(
        self, images: tf.Tensor, training: bool | None = None
    ) -> tf.Tensor:
        """Encodes [B, H, W, C] uint8, or float in 0..255, as [B, dim]."""
        channels = layers.check_images(images.shape)[-1]
        exceptions.require(
            channels == self._channels,
            f"`images` must be of {self._channels} channels, as those that the "
            "encoder was built for",
            channels,
        )
        if self.takes_pixels:
            images = pixels.check(images)
        inputs = tf.cast(images, tf.float32) / 255.0  # [B, H, W, C]
        # Equal numbers stand for any number of channels.
        mean, std = (
            values if len(values) == channels else values[0]
            for values in (self.image_mean, self.image_std)
        )
        inputs = (inputs - mean) / std
        features = self.stack(  # [B, H / s, W / s, dim]
            tf.cast(inputs, self.compute_dtype), training=training
        )
        return layers.representation(features, self.normalize)
