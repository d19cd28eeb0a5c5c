"""A language model of the transformers library as an encoder."""

from __future__ import annotations

import os
import types
from collections.abc import Mapping

import tensorflow as tf

from supcon_tf import exceptions, keras_2
from supcon_tf.data import tokens as tokens_
from supcon_tf.keras_2 import keras
from supcon_tf.models import base, layers
from supcon_tf.text import pretrained


@keras.utils.register_keras_serializable(package="supcon_tf")
class TextEncoder(base.Model):
    """A language model as Enc: tokens to one representation of unit length.

    The input is tokens as `data.from_tokens` has them. The representation is
    the last layer's state of the first token, [CLS], or the mean state of all
    tokens, in float32. The seeds of the views in a batch determine which units
    dropout drops: a resumed run drops the same units, and so does the second
    pass of gradient caching.

    Args:
      config: settings of the network, `config.to_dict()` of `transformers`.
      pooling: "cls" or "mean".
      normalize: put out r / ||r||, as SupCon takes it.
      dropout: probability of all dropout; None keeps those of the config.
      name: of the model; `**kwargs` are Keras' too.

    Attributes:
      representation_dim: length of a representation, an int.
      max_length: tokens of an example, at most, an int.
      network: the Keras model of transformers; its pooler does not train.

    Example:
      >>> from supcon_tf import text
      >>> encoder = text.TextEncoder.from_pretrained("texts")
      >>> tokenizer = text.load_tokenizer("texts")
      >>> tokens = text.tokenize(tokenizer, [("a",), ("b c",)], max_length=8)
      >>> tuple(encoder(tokens).shape)
      (2, 16)

    Raises:
      ImportError: the extra `text` is not installed.
      ValueError: a bad argument; transformers has no such network for
        TensorFlow.

    Reference: https://arxiv.org/abs/2011.01403, Sec. 2.
    """

    ROWS = "1 + length, 2"  # of a view

    def __init__(
        self,
        config: Mapping[str, object],
        pooling: str = "cls",
        normalize: bool = True,
        dropout: float | None = None,
        *,
        name: str = "encoder",
        **kwargs: object,
    ) -> None:
        super().__init__(name=name, autocast=False, **kwargs)
        exceptions.require_one_of(("cls", "mean"), "pooling", pooling)
        exceptions.require(
            dropout is None or 0 <= dropout < 1,
            "`dropout` must be at least 0 and below 1",
            dropout,
        )
        self.config = dict(config)
        self.pooling = pooling
        self.normalize = normalize
        self.dropout = dropout
        self.network = _make_network(self.config)
        self._noise = _replace_dropout(self.network, dropout)
        network_config = self.network.config
        self.representation_dim = network_config.hidden_size
        self._padding_id = network_config.pad_token_id or 0
        # Some models begin to count positions at padding_idx + 1.
        embeddings = self.chain[0]
        first_position = getattr(embeddings, "padding_idx", -1) + 1
        self.max_length = (
            network_config.max_position_embeddings - first_position
        )
        self._num_sentences = getattr(network_config, "type_vocab_size", 0)

    @classmethod
    def from_pretrained(
        cls, path: str | os.PathLike[str], **options: object
    ) -> TextEncoder:
        """Builds an encoder with the weights of a directory or a name of a hub.

        Args:
          path: a directory with config.json and model.safetensors or
            tf_model.h5, or a name.
          **options: other arguments of the class.

        Raises:
          ValueError: there is no such model, or it lacks a weight.
        """
        network = pretrained.load_network(import_transformers(), path)
        encoder = cls(network.config.to_dict(), **options)
        encoder.build((None, None, 2))
        encoder.network.set_weights(network.get_weights())
        return encoder

    def _build_parts(self, input_shape: tf.TensorShape) -> None:
        tokens_.check_tokens(input_shape)
        self._states(tf.zeros([1, 3, 2], tf.int32), training=False)

    def _states(self, tokens: tf.Tensor, training: bool | None) -> tf.Tensor:
        """Returns the states of the last layer, [B, length, dim]."""
        seeds = tokens[:, 0]  # [B, 2]
        self._noise.seed = _fold_seeds(seeds) if training else None
        ids, sentences = tf.unstack(tokens[:, 1:], axis=-1)  # [B, length] each
        is_token = ids != tokens_.NONE
        inputs = {
            "input_ids": tf.where(is_token, ids, self._padding_id),
            "attention_mask": tf.cast(is_token, tf.int32),
        }
        if self._num_sentences:
            inputs["token_type_ids"] = tf.minimum(
                sentences, self._num_sentences - 1
            )
        try:
            return self.network(inputs, training=training).last_hidden_state
        finally:
            # Keras traces each layer alone to save it: a tensor of this graph
            # would be out of scope there.
            self._noise.seed = None

    def draw_seeds(self, tokens: tf.Tensor) -> tf.Tensor:
        """Returns tokens [..., 1 + length, 2], with new seeds for those of 0.

        A pass of the same tokens then drops the same units again.
        """
        seeds = tokens[..., :1, :]
        new_seeds = tf.random.uniform(
            tf.shape(seeds), 1, tf.int32.max, dtype=tf.int32
        )
        is_drawn = tf.reduce_any(seeds != 0, axis=-1, keepdims=True)
        seeds = tf.where(is_drawn, seeds, tf.cast(new_seeds, seeds.dtype))
        return tf.concat([seeds, tokens[..., 1:, :]], axis=-2)

    def _check_shape(self, shape: tf.TensorShape) -> None:
        tokens_.check_tokens(shape)

    def call(
        self, tokens: tf.Tensor, training: bool | None = None
    ) -> tf.Tensor:
        """Encodes tokens [B, 1 + length, 2] int32 as [B, dim] float32."""
        tokens_.check_tokens(tokens.shape)
        states = tf.cast(self._states(tokens, training), tf.float32)
        if self.pooling == "cls":
            return layers.representation(states[:, 0], self.normalize)
        is_token = tokens[:, 1:, :1] != tokens_.NONE  # [B, length, 1]
        weights = tf.cast(is_token, tf.float32)
        mean = tf.reduce_sum(states * weights, axis=1)  # [B, dim]
        mean /= tf.maximum(tf.reduce_sum(weights, axis=1), 1.0)
        return layers.representation(mean, self.normalize)

    @property
    def chain(self) -> list[keras.layers.Layer]:
        """The embeddings, then the blocks, in their order."""
        (main_layer,) = self.network.layers
        blocks = getattr(main_layer, "encoder", None) or main_layer.transformer
        return [main_layer.embeddings, *blocks.layer]


def import_transformers() -> types.ModuleType:
    """Imports the transformers library, with Keras 2.

    Example:
      >>> from supcon_tf import text
      >>> transformers = text.import_transformers()
      >>> transformers.AutoTokenizer.from_pretrained("texts").cls_token
      '[CLS]'

    Raises:
      ImportError: the library is not installed, has no TensorFlow, or would
        take another Keras.
    """
    with keras_2.variable("1"):  # transformers would set it for good
        (library,) = exceptions.import_extra("text", "transformers")
        if not hasattr(library, "TFPreTrainedModel"):
            raise exceptions.MissingPackage(
                "the extra `text` must have transformers before 4.55, the last "
                f"that reads weights into TensorFlow, got {library.__version__}"
                ": pip install 'supcon_tf[text]' into an environment of its "
                "own, apart from sentence-transformers 6, which needs the newer"
            )
        is_keras_2 = issubclass(library.TFPreTrainedModel, keras.Model)
    if not is_keras_2:
        raise exceptions.MissingPackage(
            "the extra `text` must have Keras 2: pip uninstall tf-keras, or on "
            "Python 3.12 pip install it"
        )
    library.logging.set_verbosity_error()
    return library


class _Dropout(keras.layers.Layer):
    """Dropout by `noise.seed`, which the encoder sets during its calls."""

    def __init__(
        self, rate: float, index: int, noise: types.SimpleNamespace
    ) -> None:
        super().__init__()
        self._rate, self._index, self._noise = rate, index, noise

    def call(
        self, inputs: tf.Tensor, training: bool | None = None
    ) -> tf.Tensor:
        if not training or not self._rate:
            return inputs
        if self._noise.seed is None:
            return tf.nn.dropout(inputs, self._rate)
        seed = tf.random.experimental.stateless_fold_in(
            self._noise.seed, self._index
        )
        return tf.nn.experimental.stateless_dropout(inputs, self._rate, seed)


def _replace_dropout(
    network: keras.Model, rate: float | None
) -> types.SimpleNamespace:
    """Replaces all dropout by ours; returns the namespace of its seed."""
    noise = types.SimpleNamespace(seed=None)
    dropouts = [
        (layer, name, part)
        for layer in (network, *network.submodules)
        for name, part in vars(layer).items()
        # DeBERTa has a class of its own.
        if isinstance(part, keras.layers.Dropout)
        or (isinstance(part, keras.layers.Layer) and hasattr(part, "drop_prob"))
    ]
    for index, (layer, name, part) in enumerate(dropouts):
        layer_rate = getattr(part, "drop_prob", None)
        layer_rate = layer_rate or getattr(part, "rate", 0.0)
        dropout = _Dropout(layer_rate if rate is None else rate, index, noise)
        setattr(layer, name, dropout)
    return noise


def _fold_seeds(seeds: tf.Tensor) -> tf.Tensor:
    """Returns a seed [2] for the seeds [B, 2] of views; random for zeros."""
    seed = tf.random.experimental.stateless_fold_in(
        tf.reduce_sum(seeds, axis=0), tf.reduce_max(seeds)
    )
    random_seed = tf.random.uniform([2], maxval=tf.int32.max, dtype=tf.int32)
    return tf.where(tf.reduce_any(seeds != 0), seed, random_seed)


def _make_network(config: Mapping[str, object]) -> keras.Model:
    """Returns the network of a config, with random weights."""
    library = import_transformers()
    model_type = config.get("model_type")
    try:
        network_config = library.AutoConfig.for_model(**config)
        network_class = library.TF_MODEL_MAPPING[type(network_config)]
    except (KeyError, TypeError, ValueError) as error:
        raise exceptions.InvalidValue(
            "`config` must have a model_type that transformers has for "
            f"TensorFlow, got {model_type}"
        ) from error
    return pretrained.prepare(network_class(network_config))
