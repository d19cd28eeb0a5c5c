"""Small networks of Keras 3 with random weights, by name."""

import importlib.util
from collections.abc import Callable

import keras


def application() -> keras.Model:
    """A keras.applications network: 135 variables, batch norm, dropout of 0."""
    return keras.applications.MobileNet(
        input_shape=(None, None, 3), alpha=0.25, include_top=False, weights=None
    )


def sequential() -> keras.Model:
    """A network with dropout that is not built."""
    layers = keras.layers
    return keras.Sequential(
        [
            layers.Conv2D(4, 3, 2),
            layers.BatchNormalization(),
            layers.ReLU(),
            layers.Dropout(0.25, name="drop"),
            layers.Conv2D(6, 3, 2),
            layers.GlobalAveragePooling2D(),
            layers.Dropout(0.1),
        ]
    )


class Subclassed(keras.Model):
    """A network with a list of layers, whose call takes no `training`."""

    def __init__(self):
        super().__init__(name="subclassed")
        self.parts = [keras.layers.Dense(6), keras.layers.Dense(5)]
        self.norm = keras.layers.LayerNormalization()

    def call(self, x):
        x = keras.ops.mean(x, axis=(1, 2))
        for part in self.parts:
            x = keras.ops.tanh(part(x))
        return self.norm(x)


def transformer() -> keras.Model:
    """A vision transformer of KerasHub, of 3 blocks and 16 patches."""
    import keras_hub

    return keras_hub.models.ViTBackbone(
        image_shape=(32, 32, 3),
        patch_size=8,
        num_layers=3,
        num_heads=2,
        hidden_dim=8,
        mlp_dim=16,
    )


def available() -> dict[str, Callable[[], keras.Model]]:
    """The functions of all networks; KerasHub's only if it is installed."""
    networks = {
        "application": application,
        "sequential": sequential,
        "subclassed": Subclassed,
    }
    if importlib.util.find_spec("keras_hub"):
        networks["transformer"] = transformer
    return networks
