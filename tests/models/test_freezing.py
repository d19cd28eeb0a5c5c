"""Frozen layers, and learning rates that fall with depth."""

import numpy as np
import pytest
import tensorflow as tf

from supcon_tf import losses, models, training
from supcon_tf.keras_2 import keras

SIDE = 32


class Moving(keras.layers.Layer):
    """Keeps a mean that it moves whatever Keras says."""

    def build(self, input_shape):
        self.mean = self.add_weight("mean", [], trainable=False)

    def call(self, inputs):
        self.mean.assign(0.9 * self.mean + 0.1 * tf.reduce_mean(inputs))
        return inputs - self.mean


def network(moving=False):
    inputs = keras.Input((None, None, 3))
    x = inputs
    for name in "abc":
        x = keras.layers.Conv2D(4, 3, 2, name=f"{name}_conv")(x)
        x = keras.layers.BatchNormalization(name=f"{name}_bn")(x)
        x = keras.layers.ReLU()(x)
        if moving:
            x = Moving(name=f"{name}_moving")(x)
    return models.BackboneEncoder(keras.Model(inputs, x))


def nested():
    """A network in a network, which is flattened."""
    inputs = keras.Input((None, None, 3))
    x = keras.layers.Conv2D(3, 1, name="before")(inputs)
    return models.BackboneEncoder(keras.Model(inputs, network().backbone(x)))


def built(encoder):
    encoder.build((None, SIDE, SIDE, 3))
    return encoder


def train(encoder, freeze=(), batch_norm=False, chunks=1, decay=None):
    """One step; the names of the layers that it changed, and the steps."""
    keras.utils.set_random_seed(0)
    model = models.SupConModel(
        encoder, models.ProjectionHead(4, ()), gradient_cache_chunks=chunks
    )
    model.build((None, 2, SIDE, SIDE, 3))
    models.freeze(encoder, freeze, batch_norm)
    optimizer = training.SGD(0.1, momentum=0.9)
    if decay:
        shares = models.learning_rate_shares(encoder, decay)
        optimizer.set_learning_rate_shares(shares)
    # Eagerly: tracing takes far longer than the step.
    model.compile(optimizer, losses.SupConLoss(), run_eagerly=True)
    layers = models.ordered_layers(encoder)
    before = [layer.get_weights() for layer in layers]
    rng = np.random.default_rng(0)
    views = rng.integers(0, 256, [4, 2, SIDE, SIDE, 3]).astype(np.uint8)
    model.train_on_batch(views, np.arange(4) % 2)
    after = [layer.get_weights() for layer in layers]
    changed = [
        layer.name
        for layer, *weights in zip(layers, before, after, strict=True)
        if any((w != moved).any() for w, moved in zip(*weights, strict=True))
    ]
    return changed, before, after


def test_frozen_layers_do_not_change_and_the_others_do():
    names = ["a_conv", "a_bn", "b_conv", "b_bn", "c_conv", "c_bn"]
    changed, _, _ = train(built(network()), ("a_", "b"), chunks=2)
    assert changed == names[4:]
    changed, _, _ = train(built(network()), batch_norm=True)
    assert changed == names[::2]
    changed, _, _ = train(built(nested()), ("before",))
    assert changed == names


@pytest.mark.parametrize(
    ("make", "freeze", "message"),
    [
        (
            network,
            ("d",),
            "begin the name of a layer, of a_conv, a_bn, .* got d",
        ),
        (network, ("a", "b", "c"), "leave a layer to train, got a,b,c"),
        (network, ("b_conv",), "freeze all of it, got b_conv without b_bn"),
        (
            lambda: network(moving=True),
            ("a",),
            "whose statistics Keras can freeze, got a_moving, a Moving with",
        ),
    ],
)
def test_what_cannot_be_frozen_is_named(make, freeze, message):
    with pytest.raises(ValueError, match=f"`freeze` must .*{message}"):
        models.freeze(built(make()), freeze)


def test_a_layer_takes_its_share_of_a_step():
    """decay^k of the step without a decay, in the k-th layer from the end."""
    encoder, decayed_encoder = built(network()), built(network())
    decayed_encoder.set_weights(encoder.get_weights())
    _, start, end = train(encoder, chunks=2)
    _, _, decayed_end = train(decayed_encoder, chunks=2, decay=0.5)
    count = len(start)
    for index, layer in enumerate(models.ordered_layers(encoder)):
        kinds = [w.name.rpartition("/")[2] for w in layer.weights]
        for i, kind in enumerate(kinds):
            # Statistics follow the data, not the learning rate.
            share = 1.0 if kind.startswith("moving") else 0.5 ** (count - index)
            step = end[index][i] - start[index][i]
            decayed_step = decayed_end[index][i] - start[index][i]
            np.testing.assert_allclose(decayed_step, share * step, atol=2e-6)


def test_the_decay_is_checked():
    with pytest.raises(ValueError, match="`decay` must be above 0 and at most"):
        models.learning_rate_shares(built(network()), 1.5)
