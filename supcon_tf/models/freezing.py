"""Fine-tuning: which layers of an encoder train, and how fast."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import tensorflow as tf

from supcon_tf import exceptions
from supcon_tf.keras_2 import keras
from supcon_tf.models import layers

# Layers whose statistics no gradient moves, and nothing in inference mode.
_WITH_STATISTICS = "BatchNormalization", "Normalization"


def ordered_layers(encoder: keras.Model) -> list[keras.layers.Layer]:
    """The layers with weights, from the input on.

    An `Encoder` has its stem and its blocks, or convolutions; a `TextEncoder`
    its embeddings and blocks; any other model has Keras' `layers`, where models
    are taken apart, and in Keras 3 layers that are stacks of blocks, as in a
    vision transformer.

    Example:
      >>> import supcon_tf
      >>> from supcon_tf import models
      >>> encoder = supcon_tf.Encoder("resnet18", width=0.25)
      >>> encoder.build((None, 32, 32, 3))
      >>> [layer.name for layer in models.ordered_layers(encoder)][:3]
      ['stem', 'group0_block0', 'group0_block1']
    """
    return list(_weighted_layers(getattr(encoder, "backbone", encoder)))


def _weighted_layers(
    layer: keras.layers.Layer,
) -> Iterator[keras.layers.Layer]:
    """Yields the layers with weights of a model, or a layer with weights."""
    if hasattr(layer, "chain"):  # a network that tells the order itself
        yield from layer.chain
    elif isinstance(layer, keras.Model):
        for part in layer.layers:
            yield from _weighted_layers(part)
    elif layer.weights:
        yield layer


def freeze(
    encoder: keras.Model,
    prefixes: Sequence[str] = (),
    batch_norm: bool = False,
) -> None:
    """Keeps layers of a built encoder as they are, before `compile`.

    Frozen weights have no gradient, and frozen batch norm runs in inference
    mode, by its present statistics. A .keras file of an `Encoder` does not hold
    what is frozen: after `load_model`, freeze and compile again.

    Args:
      encoder: images to representations.
      prefixes: a layer of `ordered_layers` is frozen if its name begins with a
        prefix.
      batch_norm: whether all batch norm is frozen.

    Example:
      >>> import supcon_tf
      >>> from supcon_tf import models
      >>> encoder = supcon_tf.Encoder("vgg8", width=0.25)
      >>> encoder.build((None, 32, 32, 3))
      >>> models.freeze(encoder, ["stage0", "stage1"])
      >>> chain = models.ordered_layers(encoder)
      >>> [layer.name for layer in chain if layer.trainable]
      ['stage2_conv0', 'stage2_conv1', 'stage2_conv2', 'stage2_conv3']

    Raises:
      ValueError: a prefix fits no layer, nothing is left to train, or batch
        norm behind a frozen layer would train.
    """
    chain = ordered_layers(encoder)
    names = [layer.name for layer in chain]
    for prefix in prefixes:
        exceptions.require(
            any(name.startswith(prefix) for name in names),
            f"`freeze` must begin the name of a layer, of {', '.join(names)}",
            prefix,
        )
    for layer in chain:
        if layer.name.startswith(tuple(prefixes)):
            layer.trainable = False
    for part in layers.parts(encoder):
        if batch_norm and isinstance(part, layers.kinds("BatchNormalization")):
            part.trainable = False
    exceptions.require(
        bool(encoder.trainable_weights),
        "`freeze` must leave a layer to train",
        ",".join(prefixes),
    )
    _check_statistics(chain)


def _check_statistics(chain: Sequence[keras.layers.Layer]) -> None:
    """Raises ValueError for statistics that would move, though frozen."""
    batch_norm = layers.kinds("BatchNormalization")
    for layer in chain:
        if isinstance(layer, batch_norm) and layer.trainable:
            frozen = [
                source
                for source in _input_layers(layer)
                if not source.trainable
            ]
            if any(source.weights for source in frozen):
                raise exceptions.InvalidValue(
                    "`freeze` must name the batch norm behind a frozen layer "
                    f"too, or freeze all of it, got {frozen[0].name} without "
                    f"{layer.name}"
                )
        for part in _sublayers(layer) if not layer.trainable else ():
            statistics = getattr(part, "_non_trainable_weights", [])
            if statistics and not isinstance(
                part, layers.kinds(*_WITH_STATISTICS)
            ):
                raise exceptions.InvalidValue(
                    "`freeze` must be of layers whose statistics Keras can "
                    f"freeze, got {part.name}, a {type(part).__name__} with "
                    f"{statistics[0].name}"
                )


def _input_layers(
    layer: keras.layers.Layer,
) -> list[keras.layers.Layer]:
    """Returns the layers whose output a layer takes."""
    if isinstance(layer, keras.layers.Layer):
        nodes = [node.inbound_layers for node in layer.inbound_nodes]
        return tf.nest.flatten(nodes)
    operations = [
        parent.operation
        for node in layer._inbound_nodes
        for parent in node.parent_nodes
    ]
    # Operations without `trainable` are functions, not layers.
    return [layer for layer in operations if hasattr(layer, "trainable")]


def _sublayers(layer: keras.layers.Layer) -> list[object]:
    """Returns a layer and the layers inside of it."""
    if isinstance(layer, keras.layers.Layer):
        return [layer, *layer.submodules]
    return layer._flatten_layers()


def follow_statistics(encoder: keras.Model, epoch_steps: int) -> None:
    """Makes the statistics of all batch norm follow a short training.

    Keras' networks have momenta up to 0.999: after hundreds of steps their
    statistics, which inference takes, would hardly have moved from their
    start. The momentum becomes max(1 - 10 / epoch_steps, 0.9).

    Example:
      >>> from supcon_tf import models
      >>> from supcon_tf.keras_2 import keras
      >>> norm = keras.layers.BatchNormalization(momentum=0.999)
      >>> encoder = models.as_encoder(keras.Sequential([norm]))
      >>> models.follow_statistics(encoder, epoch_steps=200)
      >>> norm.momentum
      0.95

    Reference: https://arxiv.org/abs/2002.05709, Appendix B.8.
    """
    for layer in layers.parts(encoder):
        if isinstance(layer, layers.kinds("BatchNormalization")):
            layer.momentum = max(1 - 10 / epoch_steps, 0.9)


def learning_rate_shares(
    encoder: keras.Model, decay: float
) -> list[tuple[tf.Variable, float]]:
    """The share of the learning rate for each weight of an encoder.

    The share is decay^k in the k-th of `ordered_layers` from the end, where the
    last layer has k = 1: a classifier on the encoder has the whole rate, k = 0.

    Example:
      >>> import supcon_tf
      >>> from supcon_tf import models
      >>> encoder = supcon_tf.Encoder("vgg8", width=0.25)
      >>> encoder.build((None, 32, 32, 3))
      >>> shares = models.learning_rate_shares(encoder, decay=0.5)
      >>> [share for weight, share in shares if "kernel" in weight.name][-3:]
      [0.125, 0.25, 0.5]

    Raises:
      ValueError: `decay` is not above 0 and at most 1.
    """
    exceptions.require(
        0 < decay <= 1, "`decay` must be above 0 and at most 1", decay
    )
    shares = {}
    for distance, layer in enumerate(reversed(ordered_layers(encoder)), 1):
        for weight in layer.trainable_weights:
            if not isinstance(weight, tf.Variable):  # of Keras 3
                weight = weight.value
            # A layer that is used twice has the share of its first use.
            shares[weight.ref()] = decay**distance
    # Weights that are in no layer have the share of the first layer.
    first_share = decay ** len(ordered_layers(encoder))
    weights = encoder.trainable_weights
    return [
        (weight, shares.get(weight.ref(), first_share)) for weight in weights
    ]
