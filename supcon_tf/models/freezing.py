"""Which layers of an encoder train, and how fast: fine-tuning."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import tensorflow as tf

from supcon_tf import exceptions
from supcon_tf.keras_2 import keras
from supcon_tf.models import layers

# Layers with weights that no gradient moves: in inference mode nothing does.
_WITH_STATISTICS = "BatchNormalization", "Normalization"


def ordered_layers(encoder: keras.Model) -> list[keras.layers.Layer]:
    """The layers with weights, from the input on.

    Those of an `Encoder` are its stem and its blocks, or convolutions; of a
    `TextEncoder` the embeddings and the blocks; of any other model Keras'
    `layers`, models among them taken apart, and of Keras 3 layers that are
    stacks of blocks, as in a vision transformer.

    Example:
      >>> import supcon_tf
      >>> from supcon_tf import models
      >>> encoder = supcon_tf.Encoder("resnet18", width=0.25)
      >>> encoder.build((None, 32, 32, 3))
      >>> [layer.name for layer in models.ordered_layers(encoder)][:3]
      ['stem', 'group0_block0', 'group0_block1']
    """
    chain = getattr(getattr(encoder, "stack", encoder), "chain", None)
    if chain is not None:
        return chain
    return list(_with_weights(getattr(encoder, "backbone", encoder)))


def _with_weights(
    layer: keras.layers.Layer,
) -> Iterator[keras.layers.Layer]:
    if hasattr(layer, "chain"):  # a network of Keras 3
        yield from layer.chain
    elif isinstance(layer, keras.Model):
        for part in layer.layers:
            yield from _with_weights(part)
    elif layer.weights:
        yield layer


def freeze(
    encoder: keras.Model,
    prefixes: Sequence[str] = (),
    batch_norm: bool = False,
) -> None:
    """Keeps layers of a built encoder as they are, before `compile`.

    Their weights have no gradient, and batch norm among them runs in inference
    mode: by the statistics that it has.

    Args:
      encoder: images to representations.
      prefixes: layers whose name begins with one of them: see
        `ordered_layers`.
      batch_norm: all batch norm.

    Example:
      >>> import supcon_tf
      >>> from supcon_tf import models
      >>> encoder = supcon_tf.Encoder("vgg8", width=0.25)
      >>> encoder.build((None, 32, 32, 3))
      >>> models.freeze(encoder, ["stage0", "stage1"])
      >>> [x.name for x in models.ordered_layers(encoder) if x.trainable]
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
            frozen = [x for x in _layers_before(layer) if not x.trainable]
            if any(before.weights for before in frozen):
                raise exceptions.InvalidValue(
                    "`freeze` must name the batch norm behind a frozen layer "
                    f"too, or freeze all of it, got {frozen[0].name} without "
                    f"{layer.name}"
                )
        for part in _all_inside(layer) if not layer.trainable else ():
            own = getattr(part, "_non_trainable_weights", [])
            if own and not isinstance(part, layers.kinds(*_WITH_STATISTICS)):
                raise exceptions.InvalidValue(
                    "`freeze` must be of layers whose statistics Keras can "
                    f"freeze, got {part.name}, a {type(part).__name__} with "
                    f"{own[0].name}"
                )


def _layers_before(
    layer: keras.layers.Layer,
) -> list[keras.layers.Layer]:
    """The layers whose output a layer takes."""
    if isinstance(layer, keras.layers.Layer):
        nodes = [node.inbound_layers for node in layer.inbound_nodes]
        return tf.nest.flatten(nodes)
    before = [
        node.operation
        for own in layer._inbound_nodes
        for node in own.parent_nodes
    ]
    return [x for x in before if hasattr(x, "trainable")]  # a layer, no op


def _all_inside(layer: keras.layers.Layer) -> list[object]:
    """A layer and those inside of it."""
    if isinstance(layer, keras.layers.Layer):
        return [layer, *layer.submodules]
    return layer._flatten_layers()


def follow_statistics(encoder: keras.Model, epoch_steps: int) -> None:
    """Lets the statistics of all batch norm follow short trainings.

    Keras' networks have momenta up to 0.999: after hundreds of steps their
    statistics, which inference takes, would still be those that they started
    with. The momentum becomes max(1 - 10 / epoch_steps, 0.9).

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
    """The share of the learning rate that each weight of an encoder has.

    decay^k in the k-th of `ordered_layers`, counted from the last one, whose
    k is 1: what is put on the encoder has the whole rate, k = 0.

    Example:
      >>> import supcon_tf
      >>> from supcon_tf import models
      >>> encoder = supcon_tf.Encoder("vgg8", width=0.25)
      >>> encoder.build((None, 32, 32, 3))
      >>> shares = models.learning_rate_shares(encoder, decay=0.5)
      >>> [x for weight, x in shares if "kernel" in weight.name][-3:]
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
            # A layer that is used twice has the place of its first use.
            shares[weight.ref()] = decay**distance
    # Weights of a model's own have the place of its first layer.
    first = decay ** len(ordered_layers(encoder))
    weights = encoder.trainable_weights
    return [(w, shares.get(w.ref(), first)) for w in weights]
