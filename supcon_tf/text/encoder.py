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

    Takes tokens as `data.from_tokens` has them. The representation is the last
    layer's state of the first token, [CLS], or the mean of those of all tokens;
    float32. What dropout drops is a function of the seeds of the views in the
    batch: so a resumed run drops the same, and so does the second pass of
    gradient caching.

    Args:
      config: of the network, as `transformers` has it: `config.to_dict()`.
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
        found = self.network.config
        self.representation_dim = found.hidden_size
        # Some models count positions by the ids that are not this one, and
        # the first is that behind it.
        self._padding = found.pad_token_id or 0
        embeddings = self.chain[0]
        unused = getattr(embeddings, "padding_idx", -1) + 1
        self.max_length = found.max_position_embeddings - unused
        self._sentences = getattr(found, "type_vocab_size", 0)

    @classmethod
    def from_pretrained(
        cls, path: str | os.PathLike[str], **options: object
    ) -> TextEncoder:
        """A built encoder with the weights of a directory, or of a hub's name.

        Args:
          path: with config.json and model.safetensors, or tf_model.h5.
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
        """The states of the last layer, [batch, length, dim]."""
        self._noise.seed = _one_seed(tokens[:, 0]) if training else None
        ids, sentences = tf.unstack(tokens[:, 1:], axis=-1)
        there = ids != tokens_.NONE
        inputs = {
            "input_ids": tf.where(there, ids, self._padding),
            "attention_mask": tf.cast(there, tf.int32),
        }
        if self._sentences:
            inputs["token_type_ids"] = tf.minimum(
                sentences, self._sentences - 1
            )
        try:
            return self.network(inputs, training=training).last_hidden_state
        finally:
            self._noise.seed = None  # Keras traces layers alone, to save them

    def _check_shape(self, shape: tf.TensorShape) -> None:
        tokens_.check_tokens(shape)

    def call(
        self, tokens: tf.Tensor, training: bool | None = None
    ) -> tf.Tensor:
        """[B, 1 + length, 2] int32 to [B, dim] float32."""
        tokens_.check_tokens(tokens.shape)
        states = tf.cast(self._states(tokens, training), tf.float32)
        if self.pooling == "cls":
            return layers.representation(states[:, 0], self.normalize)
        there = tf.cast(tokens[:, 1:, :1] != tokens_.NONE, tf.float32)
        mean = tf.reduce_sum(states * there, axis=1)
        mean /= tf.maximum(tf.reduce_sum(there, axis=1), 1.0)
        return layers.representation(mean, self.normalize)

    @property
    def chain(self) -> list[keras.layers.Layer]:
        """The embeddings, then the blocks, in their order."""
        (main,) = self.network.layers
        blocks = getattr(main, "encoder", None) or main.transformer
        return [main.embeddings, *blocks.layer]


def import_transformers() -> types.ModuleType:
    """The library, with Keras 2.

    Example:
      >>> from supcon_tf import text
      >>> transformers = text.import_transformers()
      >>> transformers.AutoTokenizer.from_pretrained("texts").cls_token
      '[CLS]'

    Raises:
      ImportError: it is not installed, has no TensorFlow, or would take another
        Keras.
    """
    with keras_2.variable("1"):  # which it sets, for tf-keras
        (library,) = exceptions.import_extra("text", "transformers")
        if not hasattr(library, "TFPreTrainedModel"):
            raise exceptions.MissingPackage(
                "the extra `text` must have transformers before 4.55, the last "
                f"that reads weights into TensorFlow, got {library.__version__}"
                ": pip install 'supcon_tf[text]' into an environment of its "
                "own, apart from sentence-transformers 6, which needs the newer"
            )
        is_same = issubclass(library.TFPreTrainedModel, keras.Model)
    if not is_same:
        raise exceptions.MissingPackage(
            "the extra `text` must have Keras 2: pip uninstall tf-keras, or on "
            "Python 3.12 pip install it"
        )
    library.logging.set_verbosity_error()
    return library


class _Dropout(keras.layers.Layer):
    """Dropout by a seed, which `noise` has during a call of the encoder."""

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
    """Gives the network our dropout; returns what its seed is to be put in."""
    noise = types.SimpleNamespace(seed=None)
    found = [
        (layer, name, part)
        for layer in (network, *network.submodules)
        for name, part in vars(layer).items()
        # DeBERTa has a class of its own.
        if isinstance(part, keras.layers.Dropout)
        or (isinstance(part, keras.layers.Layer) and hasattr(part, "drop_prob"))
    ]
    for index, (layer, name, part) in enumerate(found):
        usual = getattr(part, "drop_prob", None) or getattr(part, "rate", 0.0)
        own = _Dropout(usual if rate is None else rate, index, noise)
        setattr(layer, name, own)
    return noise


def _one_seed(seeds: tf.Tensor) -> tf.Tensor:
    """A seed [2] of those [B, 2] of the views; a random one for zeros."""
    seed = tf.random.experimental.stateless_fold_in(
        tf.reduce_sum(seeds, axis=0), tf.reduce_max(seeds)
    )
    drawn = tf.random.uniform([2], maxval=tf.int32.max, dtype=tf.int32)
    return tf.where(tf.reduce_any(seeds != 0), seed, drawn)


def _make_network(config: Mapping[str, object]) -> keras.Model:
    """The network with random weights."""
    library = import_transformers()
    kind = config.get("model_type")
    try:
        found = library.AutoConfig.for_model(**config)
        network_class = library.TF_MODEL_MAPPING[type(found)]
    except (KeyError, TypeError, ValueError) as error:
        raise exceptions.InvalidValue(
            "`config` must have a model_type that transformers has for "
            f"TensorFlow, got {kind}"
        ) from error
    return pretrained.prepared(network_class(found))
