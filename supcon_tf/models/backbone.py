"""Any Keras model as an encoder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import tensorflow as tf

from supcon_tf import exceptions, keras_2, pixels
from supcon_tf.keras_2 import keras
from supcon_tf.models import base, layers

_MODES = ("auto", "none", "tf", "torch", "caffe")
# Operations of a functional model, in lower case: TensorFlow's in Keras 2, and
# classes of Keras 3. `preprocess_input` of `keras.applications` calls them.
_ARITHMETIC = frozenset(
    ("add", "bias_add", "divide", "multiply", "subtract", "truediv")
    + ("truedivide", "per_image_standardization")
)
_WHITE = 255.0  # the largest pixel


@keras.utils.register_keras_serializable(package="supcon_tf")
class BackboneEncoder(base.Model):
    """A Keras model as Enc of Sec. 3.1, between preprocessing and norm.

    The model takes pixels as `Encoder` does and puts out float32
    representations of unit length. A feature map is pooled by its mean. The
    variables and the precision are those of the backbone.

    Args:
      backbone: a `keras.Model` from images [batch, height, width, C] to
        features [batch, dim] or a feature map [batch, height, width, dim]; of
        Keras 2, or of Keras 3, which becomes a `keras_3.Backbone`.
      preprocessing: the pixels that the backbone takes, in the words of
        `keras.applications`: "none", 0..255; "tf", -1..1; "torch",
        (pixels / 255 - mean) / deviation of ImageNet; "caffe", BGR - mean.
        "auto" is "none" for a backbone with a Rescaling or Normalization layer,
        else "tf"; it is refused for a backbone that calculates with pixels
        otherwise, as by `preprocess_input` on its input. Or (scale,
        offset), numbers or lists with a number for each
        channel: pixels * scale + offset.
      normalize: put out r / ||r|| as in the paper, not the pooled features.
      synchronized_bn: BN statistics over all replicas of the strategy, in all
        BN of the backbone. Without effect on one replica.
      name: of the model; `**kwargs` are Keras' too.

    Attributes:
      representation_dim: dim, an int; None before `build`.
      takes_pixels: whether images of another range than 0..255 are refused.
        They are not where "none" leaves the range to the backbone and no layer
        of the backbone divides pixels.

    Example:
      >>> import numpy as np
      >>> from supcon_tf import models
      >>> from supcon_tf.keras_2 import keras
      >>> network = keras.applications.MobileNet(
      ...     input_shape=(32, 32, 3), include_top=False, weights=None
      ... )
      >>> encoder = models.BackboneEncoder(network)
      >>> tuple(encoder(np.zeros([2, 32, 32, 3], np.uint8)).shape)
      (2, 1024)

    Raises:
      ValueError: a bad argument; the backbone does not take the images, or its
        output has another shape; floats are not in 0..255.

    Reference: https://arxiv.org/abs/2004.11362, Sec. 3.1.
    """

    def __init__(
        self,
        backbone: keras.Model,
        preprocessing: str | Sequence[object] = "auto",
        normalize: bool = True,
        synchronized_bn: bool = True,
        *,
        name: str = "encoder",
        **kwargs: object,
    ) -> None:
        super().__init__(name=name, autocast=False, **kwargs)
        backbone = to_keras_2(backbone)
        keras_2.refuse_keras_3(backbone=backbone)
        exceptions.require(
            isinstance(backbone, keras.Model),
            "`backbone` must be a keras.Model",
            type(backbone),
        )
        if isinstance(preprocessing, str):
            exceptions.require_one_of(_MODES, "preprocessing", preprocessing)
        else:
            preprocessing = _scale_and_offset(preprocessing)
        self.backbone = backbone
        self.preprocessing = preprocessing
        self.normalize = normalize
        self.synchronized_bn = synchronized_bn
        self.representation_dim: int | None = None
        self._mode = preprocessing
        if preprocessing == "auto":
            rescaling = layers.kinds("Rescaling", "Normalization")
            rescales = any(
                isinstance(layer, rescaling) for layer in layers.parts(backbone)
            )
            if not rescales:
                _refuse_arithmetic(backbone)
            self._mode = "none" if rescales else "tf"
        self.takes_pixels = self._mode != "none" or any(
            _divides_pixels(layer) for layer in layers.parts(backbone)
        )

    @classmethod
    def from_config(cls, config: dict[str, object]) -> BackboneEncoder:
        """Rebuilds the encoder, with new weights, from its config."""
        try:
            return super().from_config(config)
        except exceptions.InvalidValue:
            if config.get("preprocessing") != "auto":
                raise
            # An older version refused no arithmetic: "auto" was "tf".
            return super().from_config(config | {"preprocessing": "tf"})

    def _build_parts(self, input_shape: tf.TensorShape) -> None:
        shape = layers.check_images(input_shape)
        features = self._features(shape)
        features = getattr(features, "shape", features)
        exceptions.require(
            isinstance(features, tf.TensorShape)
            and features.rank in (2, 4)
            and features[-1] is not None,
            "`backbone` must put out [batch, dim] or [batch, height, width, "
            "dim]",
            features,
        )
        self.representation_dim = features[-1]
        if self.synchronized_bn and layers.spans_replicas(self):
            for layer in layers.parts(self.backbone):
                if isinstance(layer, layers.kinds("BatchNormalization")):
                    layer.synchronized = True
                    layer.fused = False  # the fused kernel has no sync

    def _features(self, shape: list[int | None]) -> object:
        """Returns the backbone's symbolic output, or its shape, for images."""
        inputs = getattr(self.backbone, "inputs", None) or ()
        if len(inputs) == 1 and inputs[0].shape.is_compatible_with(shape):
            return self.backbone.output  # of a functional model
        try:
            if hasattr(self.backbone, "network"):  # of Keras 3
                self.backbone.build(shape)
                return self.backbone.compute_output_shape(shape)
            # The call also builds a backbone that is not built.
            return self.backbone(keras.Input(shape[1:]))
        except exceptions.Error:
            raise
        except (ValueError, TypeError) as error:
            raise exceptions.InvalidValue(
                f"`backbone` must take images {shape}, got: "
                f"{exceptions.one_line(error)}"
            ) from error

    def _check_shape(self, shape: tf.TensorShape) -> None:
        layers.check_images(shape)

    def call(
        self, images: tf.Tensor, training: bool | None = None
    ) -> tf.Tensor:
        """Encodes [B, H, W, C] uint8, or float in 0..255, as [B, dim]."""
        shape = layers.check_images(images.shape)
        exceptions.require(
            self._mode not in ("torch", "caffe") or shape[-1] == 3,
            f"`preprocessing` {self._mode} must have images of 3 channels",
            shape[-1],
        )
        inputs = tf.cast(self.preprocess(images), self.backbone.compute_dtype)
        features = self.backbone(  # [B, (H', W',) dim]
            inputs, training=training
        )
        return layers.representation(features, self.normalize)

    def preprocess(self, images: tf.Tensor) -> tf.Tensor:
        """Converts pixels in 0..255 to the backbone's input, in float32."""
        if self.takes_pixels:
            images = pixels.check(images)
        values = tf.cast(images, tf.float32)
        if self._mode == "none":
            return values
        if not isinstance(self._mode, str):
            scale, offset = (
                tf.constant(numbers, values.dtype) for numbers in self._mode
            )
            return values * scale + offset
        return keras.applications.imagenet_utils.preprocess_input(
            values, data_format="channels_last", mode=self._mode
        )


def _scale_and_offset(pair: Sequence[object]) -> tuple:
    """Returns scale and offset, each a number or a tuple for the channels."""
    try:
        arrays = [np.asarray(numbers, float) for numbers in pair]
    except (TypeError, ValueError):
        arrays = []
    exceptions.require(
        len(arrays) == 2 and all(array.ndim <= 1 for array in arrays),
        f"`preprocessing` must be one of {', '.join(_MODES)}, or a scale and "
        "an offset of pixels",
        pair,
    )
    return tuple(
        tuple(array.tolist()) if array.ndim else float(array)
        for array in arrays
    )


def to_keras_2(model: object) -> object:
    """Wraps a network of Keras 3 in a `keras_3.Backbone`; returns others as is.

    Raises:
      ValueError: Keras 3 computes by another library than TensorFlow.
    """
    if not keras_2.is_keras_3(model) or not hasattr(model, "save_weights"):
        return model
    from supcon_tf.models import of_keras_3  # which imports Keras 3

    return of_keras_3.Backbone(model)


def _refuse_arithmetic(backbone: keras.Model) -> None:
    """Raises ValueError for a backbone that calculates with its input.

    Pixels would be scaled twice, to almost one number.
    """
    for operation in _first_operations(backbone):
        # Keras 2 knows the operation of TensorFlow as `symbol`.
        kind = getattr(operation, "symbol", type(operation).__name__)
        is_arithmetic = kind.rpartition(".")[2].lower() in _ARITHMETIC
        exceptions.require(
            not is_arithmetic and not _changes_white(operation),
            "`preprocessing` must be given for a backbone that calculates with "
            "pixels before its first weights: models.BackboneEncoder(backbone, "
            'preprocessing="none") leaves 0..255 to the backbone',
            f"auto for {backbone.name} with {operation.name}",
        )


def _first_operations(model: keras.Model) -> Iterator[object]:
    """Yields layers and operations of a functional model before any weights."""
    network = getattr(model, "network", model)  # of Keras 3
    if not getattr(network, "inputs", None):
        return
    # Keras 3 does not count operations among the layers.
    for operation in getattr(network, "operations", network.layers):
        yield from _first_operations(operation)
        if getattr(operation, "weights", None):
            return
        yield operation


def _changes_white(layer: object) -> bool:
    """Whether a Lambda layer makes something else of white images."""
    if not isinstance(layer, layers.kinds("Lambda")):
        return False
    shape = [size or 32 for size in tf.TensorShape(layer.input.shape)[1:]]
    outputs = layer(tf.fill([1, *shape], _WHITE))
    return abs(float(np.max(outputs)) - _WHITE) > 1


def _divides_pixels(layer: tf.Module) -> bool:
    """Whether a layer's numbers show that it expects pixels in 0..255."""
    if isinstance(layer, layers.kinds("Rescaling")):
        return np.max(layer.scale) < 0.1
    mean = getattr(layer, "input_mean", None)  # of a Normalization
    return mean is not None and np.max(mean) > 1


def as_encoder(model: keras.Model) -> keras.Model:
    """Wraps a Keras model in a `BackboneEncoder`, unless it is an encoder.

    Example:
      >>> from supcon_tf import models
      >>> from supcon_tf.keras_2 import keras
      >>> plain = keras.Sequential([keras.layers.Conv2D(8, 3)])
      >>> encoder = models.as_encoder(plain)
      >>> encoder.backbone is plain, models.as_encoder(encoder) is encoder
      (True, True)

    Raises:
      ValueError: the model is one of this package and no encoder, or a network
        of Keras 3 that computes by another library than TensorFlow.
      TypeError: the object is of Keras 3, and no model.
    """
    model = to_keras_2(model)
    check_encoder(model)
    is_model = isinstance(model, keras.Model)
    if is_model and not hasattr(model, "representation_dim"):
        return BackboneEncoder(model)
    return model


def check_encoder(model: keras.Model) -> None:
    """Raises ValueError for a model of this package that is no encoder.

    Its output, such as logits, would be taken for representations. A model of
    Keras 3 raises TypeError.
    """
    keras_2.refuse_keras_3(encoder=model)
    is_own = isinstance(model, base.Model)
    lacks_dim = is_own and not hasattr(model, "representation_dim")
    remedy = "; its `encoder` is one" if hasattr(model, "encoder") else ""
    exceptions.require(
        not lacks_dim,
        "`encoder` must make representations",
        f"a {type(model).__name__}{remedy}",
    )
