"""Layers that the models share, how to build them, and the view axis.

Letters in the shapes: B batch, V views, N rows of both (B * V).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import tensorflow as tf

from supcon_tf import exceptions, keras_2
from supcon_tf.defaults import MOST_CHANNELS
from supcon_tf.keras_2 import keras

# Representations on which a classifier is tried: the least weights show there.
_DIRECTIONS, _FAR = 16, 1e6


def batch_norm(
    dtype: keras.mixed_precision.Policy,
    zero_gamma: bool = False,
    synchronized: bool = False,
    name: str = "bn",
) -> keras.layers.BatchNormalization:
    """The batch normalisation of the official code, not built yet.

    `zero_gamma`: gamma starts at 0, not 1. `synchronized`: statistics over all
    replicas, not the local ones.
    """
    return keras.layers.BatchNormalization(
        momentum=0.9,
        epsilon=1e-5,
        gamma_initializer="zeros" if zero_gamma else "ones",
        synchronized=synchronized,
        dtype=dtype,
        name=name,
    )


def kinds(*names: str) -> tuple[type, ...]:
    """Returns classes of layers by their names, of Keras 2 and of Keras 3."""
    packages = [keras]
    # Unless Keras 3 is imported already, there are no layers of it.
    if keras_2.PACKAGE != "keras" and "keras" in sys.modules:
        packages.append(sys.modules["keras"])
    return tuple(
        getattr(package.layers, name) for package in packages for name in names
    )


def parts(model: tf.Module) -> Iterator[object]:
    """Yields a model and all its modules, also layers of Keras 3."""
    for module in (model, *model.submodules):
        yield module
        yield from getattr(module, "network_layers", ())


def variables(module: keras.layers.Layer) -> list[tf.Variable]:
    """Returns the variables of a layer in an order that no freezing changes.

    Keras puts the weights that train first.
    """
    frozen = [
        part
        for part in (module, *module.submodules)
        # A network of Keras 3 has no such attribute, and one order.
        if vars(part).get("_trainable") is False
    ]
    for part in frozen:
        part._trainable = True  # `trainable` would set it in all parts
    try:
        return list(module.variables)
    finally:
        for part in frozen:
            part._trainable = False


def random_states(model: tf.Module) -> list[tf.Variable]:
    """Returns the seed states of random layers of Keras 3 in a model."""
    return [
        state
        for module in model.submodules
        for state in getattr(module, "random_states", [])
    ]


def spans_replicas(model: keras.Model) -> bool:
    """Whether `model` trains on several replicas, so that BN needs a sync.

    Keras' synchronized BN is not fused: on one replica it computes the same
    statistics several times slower, so models use it on several replicas only.
    The strategy is that of the model's constructor: a first call inside `fit`
    builds in an init scope, where the current strategy is not visible.
    """
    return model.distribute_strategy.num_replicas_in_sync > 1


def build_chain(layers: Sequence[keras.layers.Layer], channels: int) -> None:
    """Builds layers that feed each other, each under its own name scope.

    `build` by itself opens no name scope: all variables would be named
    "kernel:0". The shapes of the variables depend on the channels alone.
    """
    for layer in layers:
        with tf.name_scope(layer.name):
            layer.build((None, None, None, channels))
        channels = layer.output_filters


def check_images(shape: tf.TensorShape) -> list[int | None]:
    """Returns the static shape; ValueError if it is no shape of images."""
    shape = tf.TensorShape(shape)
    exceptions.require(
        shape.rank == 4 and shape[-1] in range(1, MOST_CHANNELS + 1),
        "`images` must be [batch, height, width, channels] of 1 to "
        f"{MOST_CHANNELS} channels",
        f"shape {shape}",
    )
    return shape.as_list()


def representation(features: tf.Tensor, normalize: bool) -> tf.Tensor:
    """Returns representations [B, dim] float32, from them or a feature map.

    A feature map [B, H, W, dim] is pooled by its mean.
    """
    vectors = tf.cast(features, tf.float32)
    if vectors.shape.rank == 4:
        vectors = tf.reduce_mean(vectors, axis=[1, 2])  # [B, dim]
    if normalize:
        # The squared norm is clamped at epsilon: the gradient at an all-zero
        # activation is finite.
        vectors = tf.math.l2_normalize(vectors, axis=-1, epsilon=1e-6)
    return vectors


class ConvBN(keras.layers.Layer):
    """A convolution without bias, then batch normalisation; no activation.

    [batch, height, width, channels] float to [batch, ceil(height / strides),
    ceil(width / strides), filters] in the compute dtype, for odd kernels. A
    strided convolution pads symmetrically by its kernel size and is then VALID,
    as in torch and the official code: SAME would pad even images on the right
    and bottom only, which shifts what every output pixel sees.

    Args:
      filters: output channels.
      kernel_size: side of the square kernel, pixels.
      strides: stride along height and width, pixels.
      zero_gamma: the scale of the BN starts at 0.
      synchronized_bn: BN statistics over all replicas.
      **kwargs: of `keras.layers.Layer`.
    """

    def __init__(
        self,
        filters: int,
        kernel_size: int = 3,
        strides: int = 1,
        zero_gamma: bool = False,
        synchronized_bn: bool = False,
        **kwargs: object,
    ) -> None:
        super().__init__(**kwargs)
        self.output_filters = filters
        self.kernel_size = kernel_size
        self.strides = strides
        self.conv = keras.layers.Conv2D(
            filters,
            kernel_size,
            1 if kernel_size == 1 else strides,
            padding="same" if strides == 1 else "valid",
            use_bias=False,
            # The official code's: scale 1, not the 2 of He et al.
            kernel_initializer=keras.initializers.VarianceScaling(),
            dtype=self.dtype_policy,
            name="conv",
        )
        self.bn = batch_norm(self.dtype_policy, zero_gamma, synchronized_bn)

    def build(self, input_shape: tf.TensorShape) -> None:
        with tf.name_scope(self.conv.name):
            self.conv.build(input_shape)
        with tf.name_scope(self.bn.name):
            self.bn.build((None, None, None, self.output_filters))
        super().build(input_shape)

    def call(
        self, features: tf.Tensor, training: bool | None = None
    ) -> tf.Tensor:
        if self.strides > 1 and self.kernel_size == 1:
            # Not a strided convolution, whose gradient for 8 channels crashes
            # TensorFlow 2.15 on 4 cores (oneDNN: double free); nor
            # x[:, ::strides, ::strides], which runs on one thread.
            features = tf.nn.avg_pool2d(features, 1, self.strides, "VALID")
        elif self.strides > 1:
            padding = [self.kernel_size // 2] * 2
            features = tf.pad(features, [[0, 0], padding, padding, [0, 0]])
        return self.bn(self.conv(features), training=training)


class Cosines(keras.layers.Dense):
    """A dense layer of cosines: [N, dim] to `scale` * cosine, [N, units].

    The cosine is that of a row and the weights of a unit.

    The layer normalises both rows and weights, and has no bias. The result is
    in the compute dtype. `**kwargs` are those of Keras' Dense.
    """

    def __init__(self, units: int, scale: float, **kwargs: object) -> None:
        super().__init__(units, use_bias=False, **kwargs)
        self.scale = scale

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        return self.scale * tf.matmul(  # [N, units]
            tf.math.l2_normalize(inputs, axis=1),
            tf.math.l2_normalize(self.kernel, axis=0),
        )


@keras.utils.register_keras_serializable(package="supcon_tf")
class ClassCentres(keras.layers.Layer):
    """A learned point for every class, as losses for long tails take them.

    The weight of the layer is `centres` [num_classes, dim], float32; nothing
    calls the layer. `**kwargs` are those of Keras' Layer.

    Example:
      >>> from supcon_tf import losses, models
      >>> centres = models.ClassCentres(num_classes=10, dim=128)
      >>> centres.build(None)
      >>> loss = losses.PaCoLoss(centres)
      >>> tuple(loss.centres.centres.shape)
      (10, 128)
    """

    def __init__(self, num_classes: int, dim: int, **kwargs: object) -> None:
        super().__init__(**{"name": "centres", "dtype": "float32", **kwargs})
        self.num_classes = num_classes
        self.dim = dim

    def build(self, input_shape: tf.TensorShape | None) -> None:
        self.centres = self.add_weight(
            "centres",
            [self.num_classes, self.dim],
            initializer="random_normal",
        )
        super().build(input_shape)

    def load_own_variables(self, store: Mapping[str, object]) -> None:
        """Keras' step; without weights where the model has loaded them."""
        # As `SupConModel` does, which has counted the weights of the file.
        if len(store):
            super().load_own_variables(store)

    def get_config(self) -> dict[str, object]:
        sizes = {"num_classes": self.num_classes, "dim": self.dim}
        return super().get_config() | sizes


def classifier(
    num_classes: int, cosine: bool = False, scale: float = 1.0
) -> keras.layers.Dense:
    """The linear classifier of both stages, [N, dim] to float32 logits.

    With `cosine` the logits are `scale` times cosines: see `Cosines`.
    """
    options = {"dtype": "float32", "name": "classifier"}
    if cosine:
        return Cosines(num_classes, scale, **options)
    return keras.layers.Dense(num_classes, **options)


def folded_shape(
    views: tf.TensorShape, encoder: keras.Model
) -> list[int | None]:
    """The static shape of folded views, if `views` can be the shape of views.

    Raises:
      ValueError: `views` has not the rank of [B, V, *axes], where the encoder
        takes [B, *axes].
    """
    views = tf.TensorShape(views)
    axes, remedy = getattr(encoder, "ROWS", None), ""
    if axes is None:
        axes = "height, width, channels"
        remedy = ", as data.views_of makes them of a dataset of images"
    exceptions.require(
        views.rank == 3 + axes.count(","),
        f"`views` must be [batch, views, {axes}]{remedy}",
        f"shape {views}",
    )
    return [None, *views.as_list()[2:]]


def fold(tensor: tf.Tensor) -> tf.Tensor:
    """Reshapes [B, V, ...] to [B * V, ...], any dtype."""
    shape = tf.concat([[-1], tf.shape(tensor)[2:]], axis=0)
    return tf.reshape(tensor, shape)


def each_view(
    function: Callable[[tf.Tensor], Sequence[tf.Tensor]],
    views: tf.Tensor,
    encoder: keras.Model,
) -> list[tf.Tensor]:
    """Folds views into the batch for `function`, and unfolds its outputs.

    All views of all samples share one pass of the encoder and its BN.

    Args:
      function: from images [B * V, height, width, 3] to any number of tensors
        [B * V, dim], `dim` static.
      views: [B, V, height, width, 3], any dtype.
      encoder: the encoder that `function` calls.

    Returns:
      [B, V, dim] each; V is static where it is in `views`.

    Raises:
      ValueError: as `folded_shape`.
    """
    shape = folded_shape(views.shape, encoder)
    images = tf.ensure_shape(fold(views), shape)  # [B * V, H, W, 3]
    num_views = views.shape[1] or tf.shape(views)[1]
    return [
        tf.reshape(rows, [-1, num_views, rows.shape[-1]])  # [B, V, dim]
        for rows in function(images)
    ]


def check_logits(
    classifier: Callable[[tf.Tensor], tf.Tensor], dim: int
) -> None:
    """Raises ValueError for a classifier that returns probabilities.

    A softmax of probabilities is almost uniform, and nothing else shows it.

    Args:
      classifier: from representations [N, dim] to [N, classes].
      dim: of the representations.
    """
    rng = np.random.default_rng(0)
    directions = rng.normal(scale=_FAR, size=[_DIRECTIONS, dim])
    # Logits of opposite representations that are far away have both signs.
    inputs = tf.constant(np.concatenate([directions, -directions]), tf.float32)
    outputs = np.asarray(classifier(inputs))
    is_share = ((outputs >= 0) & (outputs <= 1)).all()
    is_constant = (outputs == outputs[0]).all()  # of a kernel of zeros
    exceptions.require(
        is_constant or not is_share,
        "`classifier` must return logits",
        "probabilities: leave out its softmax or sigmoid",
    )
