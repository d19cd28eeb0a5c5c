"""Networks of Keras 3 in models of Keras 2: their variables, their pass."""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping, Sequence

import keras as keras_3
import numpy as np
import tensorflow as tf

from supcon_tf import exceptions
from supcon_tf.keras_2 import keras

_POOLINGS = ("auto", "class_token", "mean", "both")


@keras.utils.register_keras_serializable(package="supcon_tf")
class Backbone(keras.Model):
    """A network of Keras 3 as a model of Keras 2.

    The variables are those of the network, for Keras 2 to train and to save:
    weights, statistics and the states of its random layers. Which of them train
    is what the network says, so layers of it are frozen by their `trainable`,
    or by `models.freeze`. The precision is that of the network.

    `models.as_encoder`, and so all that takes an encoder, makes one of a bare
    network.

    Args:
      network: a `keras.Model` of Keras 3, from images [batch, height, width, C]
        to features [batch, dim], a feature map [batch, height, width, dim], or
        tokens [batch, tokens, dim], the patches last.
      pooling: what of tokens is put out: "class_token", the first; "mean", that
        of the patches; "both", one behind the other; "auto" is "class_token"
        where the network has one, and else "mean".
      **kwargs: of Keras' Model.

    Attributes:
      network: of Keras 3.

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
        batch norm should have statistics of its own on several replicas.
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
        exceptions.require_one_of(_POOLINGS, "pooling", pooling)
        options = {"name": network.name, "dtype": network.compute_dtype}
        super().__init__(autocast=False, **(options | kwargs))
        self.pooling = pooling
        # In a namespace, which Keras 2 does not search for layers.
        self._of = types.SimpleNamespace(network=network, variables=[])

    @property
    def network(self) -> keras_3.Model:
        """The network of Keras 3."""
        return self._of.network

    @property
    def network_layers(self) -> list[keras_3.Layer]:
        """All layers of the network, those inside of others too."""
        return self.network._flatten_layers()

    @property
    def chain(self) -> list[keras_3.Layer]:
        """The layers and blocks with weights, from the input on."""
        return list(_chain(self.network))

    def build(self, input_shape: tf.TensorShape) -> None:
        if self.built:
            return
        # A call with symbols builds what is not built. It is none of training,
        # in which batch norm would ask the other replicas, where none are.
        self.compute_output_shape(input_shape)
        self._check_losses()
        own = self.network.variables
        self._of.variables = own
        # As one list, in the order of the network: what Keras 3 calls them
        # depends on what else was made in the process.
        self.state = [variable.value for variable in own]
        keras.layers.Layer.build(self, input_shape)

    def compute_output_shape(
        self, input_shape: Sequence[int | None]
    ) -> tf.TensorShape:
        """The shape of what the network puts out, pooled."""
        images = keras_3.KerasTensor(
            tuple(tf.TensorShape(input_shape)), self.compute_dtype
        )
        features = self.network(self._named(images), training=False)
        shape = getattr(features, "shape", None)
        exceptions.require(
            shape is not None,
            "`backbone` must put out one tensor",
            f"{type(features).__name__} of {self.network.name}",
        )
        if len(shape) != 3:
            return tf.TensorShape(shape)
        before = self._tokens_before_patches(shape, input_shape)
        width = 2 if self._pooling(before) == "both" else 1
        return tf.TensorShape([shape[0], width * shape[2]])

    def call(
        self, images: tf.Tensor, training: bool | None = None
    ) -> tf.Tensor:
        """Images to features, in the compute dtype."""
        exceptions.require(
            len(self.network.variables) == len(self._of.variables),
            f"`{self.network.name}` must have all its variables when its "
            "encoder is built, before enable_lora or quantize",
            f"{len(self._of.variables)} and {len(self.network.variables)} now",
        )
        if training:
            self._check_statistics()
        features = self.network(self._named(images), training=bool(training))
        if training:
            self._check_losses()
        if features.shape.rank != 3:
            return features
        before = self._tokens_before_patches(features.shape, images.shape)
        return self._pooled(features, before)

    def _named(self, images: object) -> object:
        """Images as the network wants them, which may name its one input."""
        names = getattr(self.network, "_inputs_struct", None)
        if not isinstance(names, dict) or len(names) != 1:
            return images
        return dict.fromkeys(names, images)

    def _pooled(self, tokens: tf.Tensor, before: int) -> tf.Tensor:
        """Tokens [batch, tokens, dim] as features [batch, dim]."""
        pooling = self._pooling(before)
        parts = []
        if pooling in ("class_token", "both"):
            parts.append(tokens[:, 0])
        if pooling in ("mean", "both"):
            patches = tf.cast(tokens[:, before:], tf.float32)
            mean = tf.reduce_mean(patches, axis=1)
            parts.append(tf.cast(mean, tokens.dtype))
        return tf.concat(parts, axis=1)

    def _pooling(self, before: int) -> str:
        """What is pooled, of tokens with so many before the patches."""
        if self.pooling == "auto":
            return "class_token" if before else "mean"
        exceptions.require(
            before > 0 or self.pooling == "mean",
            f"`pooling` must be mean for {self.network.name}, which has no "
            "class token",
            self.pooling,
        )
        return self.pooling

    def _tokens_before_patches(
        self, tokens: Sequence[int | None], images: Sequence[int | None]
    ) -> int:
        """How many tokens of [B, tokens, dim] are of no patch of [B, H, W, C].

        0 where the network does not say how large a patch is.
        """
        sides = getattr(self.network, "patch_size", None)
        known = [tokens[1], images[1], images[2]]
        if sides is None or None in known:
            return 0
        height, width = np.broadcast_to(sides, [2])
        patches = (images[1] // height) * (images[2] // width)
        return max(int(tokens[1] - patches), 0)

    def _check_losses(self) -> None:
        """Raises ValueError for what the network adds to a loss."""
        kinds = "activity", "kernel", "bias", "beta", "gamma", "embeddings"
        names = [f"{kind}_regularizer" for kind in kinds]
        for layer in self.network_layers:
            of_weights = (v.regularizer for v in layer.weights)
            adds = (
                layer._losses
                or any(of_weights)
                or any(getattr(layer, name, None) for name in names)
            )
            if adds and not isinstance(layer, keras_3.Model):
                raise exceptions.InvalidValue(
                    "`backbone` must add nothing to the loss, which Keras 2 "
                    f"would not see, got {layer.name} with a regularizer or "
                    "add_loss; an optimizer of ours regularizes all kernels, "
                    "as training.SGD(l2=1e-4)"
                )

    def _check_statistics(self) -> None:
        """Raises ValueError for statistics of one replica of several."""
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
        """What a forward pass in training moves, but for random states."""
        return self._variables_of(
            [
                variable
                for layer in self.network_layers
                for variable in layer._non_trainable_variables
            ]
        )

    @property
    def random_states(self) -> list[tf.Variable]:
        """What its random layers draw by."""
        weights = {id(weight) for weight in self.network.weights}
        return self._variables_of(
            [x for x in self._of.variables if id(x) not in weights]
        )

    def _variables_of(
        self, variables: Sequence[keras_3.Variable]
    ) -> list[tf.Variable]:
        """TensorFlow's, of some of Keras 3, in its order; none unbuilt."""
        if not self.built:
            return []
        own = {id(variable) for variable in variables}
        pairs = zip(self._of.variables, self.state, strict=True)
        return [of_tf for variable, of_tf in pairs if id(variable) in own]

    @property
    def weights(self) -> list[tf.Variable]:
        """The weights and statistics, in the order of Keras 3."""
        return self._variables_of(self.network.weights)

    @property
    def trainable_weights(self) -> list[tf.Variable]:
        """The weights that the network lets train."""
        return self._variables_of(self.network.trainable_weights)

    @property
    def non_trainable_weights(self) -> list[tf.Variable]:
        """The others, and the statistics."""
        return self._variables_of(self.network.non_trainable_weights)

    @property
    def _trainable(self) -> bool:
        """What Keras 2 sets in all layers of a model at once."""
        return not hasattr(self, "_of") or self.network.trainable

    @_trainable.setter
    def _trainable(self, value: bool) -> None:
        if hasattr(self, "_of"):  # not in the constructor
            self.network.trainable = value

    def save_own_variables(self, store: Mapping[str, object]) -> None:
        """Keras' step on its way to .weights.h5 and .keras files."""
        for index, variable in enumerate(self.weights):
            store[f"{index}"] = variable.numpy()

    def load_own_variables(self, store: Mapping[str, object]) -> None:
        """Keras' step on its way from these files."""
        for index, variable in enumerate(self.weights):
            variable.assign(store[f"{index}"])

    def load_weights(self, filepath: str, **kwargs: object) -> None:
        """Those of a file of the bare network, as Keras 3 reads it."""
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
    """Raises ValueError where Keras 3 computes by another than TensorFlow."""
    exceptions.require(
        keras_3.backend.backend() == "tensorflow",
        "Keras 3 must compute by TensorFlow beside supcon_tf: "
        "set KERAS_BACKEND=tensorflow before keras is imported",
        keras_3.backend.backend(),
    )


def _chain(layer: keras_3.Layer) -> Iterator[keras_3.Layer]:
    """The layers with weights; models and stacks of blocks taken apart.

    A stack is a layer with several layers of one class inside that have layers
    themselves, as the encoder of a vision transformer has its blocks.
    """
    parts = list(layer._layers)
    if isinstance(layer, keras_3.Model):
        parts = layer.layers  # as they are called
    else:
        kinds = [type(part) for part in parts if part.weights and part._layers]
        if len(kinds) == len(set(kinds)):
            parts = []
    own = layer._trainable_variables + layer._non_trainable_variables
    if own or not parts:
        if layer.weights:
            yield layer
        return
    for part in parts:
        yield from _chain(part)
