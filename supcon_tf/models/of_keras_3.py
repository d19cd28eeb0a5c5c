"""Networks of Keras 3 in models of Keras 2: variables and forward pass.

Letters in the shapes: B batch, T tokens of an image.
"""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping, Sequence

import keras as keras_3
import numpy as np
import tensorflow as tf

from supcon_tf import defaults, exceptions
from supcon_tf.keras_2 import keras


@keras.utils.register_keras_serializable(package="supcon_tf")
class Backbone(keras.Model):
    """A network of Keras 3 as a model of Keras 2.

    Keras 2 trains and saves the variables of the network: weights, statistics
    and the states of its random layers. The network says which of them train,
    so that `trainable` of a layer, or `models.freeze`, freezes it. The
    precision is that of the network.

    `models.as_encoder`, and so every function that takes an encoder, wraps a
    bare network in a `Backbone`.

    Args:
      network: a `keras.Model` of Keras 3, from images [batch, height, width, C]
        to features [batch, dim], a feature map [batch, height, width, dim], or
        tokens [batch, tokens, dim], the patches last.
      pooling: how tokens become features: "class_token", the first token;
        "mean" of the patches; "both", class token and then mean; "auto" is
        "class_token" for a network with a class token, else "mean".
      **kwargs: of Keras' Model.

    Attributes:
      network: the network of Keras 3.

    Example:
      >>> import keras
      >>> from supcon_tf import keras_3, models
      >>> network = keras.applications.MobileNet(
      ...     input_shape=(32, 32, 3), include_top=False, weights=None
      ... )
      >>> encoder = models.BackboneEncoder(keras_3.Backbone(network))
      >>> encoder.build((None, 32, 32, 3))
      >>> encoder.representation_dim, len(encoder.weights)
      (1024, 135)

    Raises:
      ValueError: a bad argument; Keras 3 computes by another library than
        TensorFlow; a layer adds to the loss, which Keras 2 would not see; or
        batch norm on several replicas is not synchronized.
    """

    def __init__(
        self,
        network: keras_3.Model,
        pooling: str = "auto",
        **kwargs: object,
    ) -> None:
        check_library()
        exceptions.require(
            isinstance(network, keras_3.Model),
            "`network` must be a keras.Model of Keras 3",
            type(network),
        )
        exceptions.require_one_of(defaults.POOLINGS, "pooling", pooling)
        options = {"name": network.name, "dtype": network.compute_dtype}
        super().__init__(autocast=False, **(options | kwargs))
        self.pooling = pooling
        # In a namespace, which Keras 2 does not search for layers.
        self._keras_3 = types.SimpleNamespace(network=network, variables=[])

    @property
    def network(self) -> keras_3.Model:
        """The network of Keras 3."""
        return self._keras_3.network

    @property
    def network_layers(self) -> list[keras_3.Layer]:
        """All layers of the network, also those inside of other layers."""
        return self.network._flatten_layers()

    @property
    def chain(self) -> list[keras_3.Layer]:
        """The layers and blocks with weights, from the input on."""
        return list(_chain(self.network))

    def build(self, input_shape: tf.TensorShape) -> None:
        if self.built:
            return
        # A symbolic call builds the layers. In training mode, batch norm would
        # wait for other replicas, and there are none here.
        self.compute_output_shape(input_shape)
        self._check_losses()
        variables = self.network.variables
        self._keras_3.variables = variables
        # Tracked as one list, in the order of the network: the names that
        # Keras 3 gives depend on other layers of the process.
        self.state = [variable.value for variable in variables]
        keras.layers.Layer.build(self, input_shape)

    def compute_output_shape(
        self, input_shape: Sequence[int | None]
    ) -> tf.TensorShape:
        """The shape of the network's output, after pooling."""
        images = keras_3.KerasTensor(
            tuple(tf.TensorShape(input_shape)), self.compute_dtype
        )
        features = self.network(self._name_input(images), training=False)
        shape = getattr(features, "shape", None)
        exceptions.require(
            shape is not None,
            "`backbone` must put out one tensor",
            f"{type(features).__name__} of {self.network.name}",
        )
        if len(shape) != 3:
            return tf.TensorShape(shape)
        num_special = self._count_special_tokens(shape, input_shape)
        num_parts = 2 if self._resolve_pooling(num_special) == "both" else 1
        return tf.TensorShape([shape[0], num_parts * shape[2]])

    def call(
        self, images: tf.Tensor, training: bool | None = None
    ) -> tf.Tensor:
        """Images to features, in the compute dtype."""
        exceptions.require(
            len(self.network.variables) == len(self._keras_3.variables),
            f"`{self.network.name}` must have all its variables when its "
            "encoder is built, before enable_lora or quantize",
            f"{len(self._keras_3.variables)} and "
            f"{len(self.network.variables)} now",
        )
        if training:
            self._check_statistics()
        features = self.network(
            self._name_input(images), training=bool(training)
        )
        if training:
            self._check_losses()
        if features.shape.rank != 3:
            return features
        num_special = self._count_special_tokens(features.shape, images.shape)
        return self._pool(features, num_special)

    def _name_input(self, images: object) -> object:
        """Returns {name: images} where the only input has a name, or images."""
        names = getattr(self.network, "_inputs_struct", None)
        if not isinstance(names, dict) or len(names) != 1:
            return images
        return dict.fromkeys(names, images)

    def _pool(self, tokens: tf.Tensor, num_special: int) -> tf.Tensor:
        """Pools tokens [B, T, dim], special ones first: [B, dim or 2 dim]."""
        pooling = self._resolve_pooling(num_special)
        parts = []
        if pooling in ("class_token", "both"):
            parts.append(tokens[:, 0])  # [B, dim]
        if pooling in ("mean", "both"):
            # In float32, as a sum of many patches loses digits in float16.
            patches = tf.cast(tokens[:, num_special:], tf.float32)
            mean = tf.reduce_mean(patches, axis=1)  # [B, dim]
            parts.append(tf.cast(mean, tokens.dtype))
        return tf.concat(parts, axis=1)

    def _resolve_pooling(self, num_special: int) -> str:
        """Returns the pooling of "auto"; raises without a class token."""
        if self.pooling == "auto":
            return "class_token" if num_special else "mean"
        exceptions.require(
            num_special > 0 or self.pooling == "mean",
            f"`pooling` must be mean for {self.network.name}, which has no "
            "class token",
            self.pooling,
        )
        return self.pooling

    def _count_special_tokens(
        self,
        tokens_shape: Sequence[int | None],
        images_shape: Sequence[int | None],
    ) -> int:
        """Returns T less the patches, by [B, T, dim] and [B, H, W, C].

        It is 0 where the network does not tell the size of a patch.
        """
        patch_size = getattr(self.network, "patch_size", None)
        num_tokens = tokens_shape[1]
        height, width = images_shape[1], images_shape[2]
        if patch_size is None or None in (num_tokens, height, width):
            return 0
        patch_height, patch_width = np.broadcast_to(patch_size, [2])
        num_patches = (height // patch_height) * (width // patch_width)
        return max(int(num_tokens - num_patches), 0)

    def _check_losses(self) -> None:
        """Raises ValueError for a layer that adds to the loss."""
        kinds = "activity", "kernel", "bias", "beta", "gamma", "embeddings"
        names = [f"{kind}_regularizer" for kind in kinds]
        for layer in self.network_layers:
            adds_loss = (
                layer._losses
                or any(weight.regularizer for weight in layer.weights)
                or any(getattr(layer, name, None) for name in names)
            )
            if adds_loss and not isinstance(layer, keras_3.Model):
                raise exceptions.InvalidValue(
                    "`backbone` must add nothing to the loss, which Keras 2 "
                    f"would not see, got {layer.name} with a regularizer or "
                    "add_loss; an optimizer of ours regularizes all kernels, "
                    "as training.SGD(l2=1e-4)"
                )

    def _check_statistics(self) -> None:
        """Raises ValueError for statistics that only one replica would have."""
        if tf.distribute.get_strategy().num_replicas_in_sync == 1:
            return
        for layer in self.network_layers:
            if isinstance(layer, keras_3.layers.BatchNormalization):
                exceptions.require(
                    layer.synchronized or not layer.trainable,
                    "`synchronized_bn` must be True for batch norm of Keras 3 "
                    "on several replicas, which would keep the statistics of "
                    "one (or be frozen)",
                    f"{layer.name} of {self.network.name}",
                )

    @property
    def statistics(self) -> list[tf.Variable]:
        """Variables that a training pass updates, without random states."""
        return self._tf_variables(
            [
                variable
                for layer in self.network_layers
                for variable in layer._non_trainable_variables
            ]
        )

    @property
    def random_states(self) -> list[tf.Variable]:
        """The seed states of the network's random layers."""
        weight_ids = {id(weight) for weight in self.network.weights}
        return self._tf_variables(
            [
                variable
                for variable in self._keras_3.variables
                if id(variable) not in weight_ids
            ]
        )

    def _tf_variables(
        self, variables: Sequence[keras_3.Variable]
    ) -> list[tf.Variable]:
        """Returns the variables of TensorFlow that hold these of Keras 3.

        They come in the order of the network; there are none before `build`.
        """
        if not self.built:
            return []
        ids = {id(variable) for variable in variables}
        pairs = zip(self._keras_3.variables, self.state, strict=True)
        return [
            tf_variable
            for variable, tf_variable in pairs
            if id(variable) in ids
        ]

    @property
    def weights(self) -> list[tf.Variable]:
        """The weights and statistics, in the order of Keras 3."""
        return self._tf_variables(self.network.weights)

    @property
    def trainable_weights(self) -> list[tf.Variable]:
        """The weights that the network lets train."""
        return self._tf_variables(self.network.trainable_weights)

    @property
    def non_trainable_weights(self) -> list[tf.Variable]:
        """All other weights, and the statistics."""
        return self._tf_variables(self.network.non_trainable_weights)

    @property
    def _trainable(self) -> bool:
        """The network's `trainable`; Keras 2 sets it in all layers at once."""
        return not hasattr(self, "_keras_3") or self.network.trainable

    @_trainable.setter
    def _trainable(self, value: bool) -> None:
        if hasattr(self, "_keras_3"):  # not yet in Keras' constructor
            self.network.trainable = value

    def save_own_variables(self, store: Mapping[str, object]) -> None:
        """Keras' step on its way to .weights.h5 and .keras files."""
        for index, variable in enumerate(self.weights):
            store[f"{index}"] = variable.numpy()

    def load_own_variables(self, store: Mapping[str, object]) -> None:
        """Keras' step on its way from .weights.h5 and .keras files."""
        for index, variable in enumerate(self.weights):
            variable.assign(store[f"{index}"])

    def load_weights(self, filepath: str, **kwargs: object) -> None:
        """Loads a file of the bare network, as Keras 3 reads it."""
        self.network.load_weights(filepath, **kwargs)

    def get_config(self) -> dict[str, object]:
        network = keras_3.saving.serialize_keras_object(self.network)
        return {"name": self.name, "pooling": self.pooling, "network": network}

    @classmethod
    def from_config(cls, config: dict[str, object]) -> Backbone:
        """Rebuilds the network, with new weights, from its config."""
        network = keras_3.saving.deserialize_keras_object(config["network"])
        return cls(**(config | {"network": network}))


def check_library() -> None:
    """Raises ValueError if the backend of Keras 3 is not TensorFlow."""
    exceptions.require(
        keras_3.backend.backend() == "tensorflow",
        "Keras 3 must compute by TensorFlow beside supcon_tf: "
        "set KERAS_BACKEND=tensorflow before keras is imported",
        keras_3.backend.backend(),
    )


def _chain(layer: keras_3.Layer) -> Iterator[keras_3.Layer]:
    """Yields the layers with weights, of models and of stacks of blocks too.

    A stack is a layer that contains several blocks: layers of one class that
    have layers themselves, as in the encoder of a vision transformer.
    """
    parts = list(layer._layers)
    if isinstance(layer, keras_3.Model):
        parts = layer.layers  # in the order of the calls
    else:
        block_classes = [
            type(part) for part in parts if part.weights and part._layers
        ]
        if len(block_classes) == len(set(block_classes)):  # no stack
            parts = []
    variables = layer._trainable_variables + layer._non_trainable_variables
    if variables or not parts:
        if layer.weights:
            yield layer
        return
    for part in parts:
        yield from _chain(part)
