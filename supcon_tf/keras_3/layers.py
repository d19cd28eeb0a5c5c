"""A layer of Keras 3 that holds the class centres of a loss."""

from __future__ import annotations

import uuid
import weakref

import tensorflow as tf

from supcon_tf.keras_3.installed import keras

# Layers that were made from a config, by their identity. Keras makes the loss
# of a saved model after its layers, and does not tell the loss which they are.
_NEWEST_LAYERS: weakref.WeakValueDictionary = weakref.WeakValueDictionary()


@keras.saving.register_keras_serializable("supcon_tf")
class ClassCentres(keras.layers.Layer):
    """A learned point for every class, as losses for long tails take them.

    The layer's weight is `centres` [num_classes, dim], float32. Its output is
    its input: as the last layer it makes the centres weights of the model. A
    model that is loaded has the same centres as its loss.

    Args:
      num_classes: rows of the centres.
      dim: length of a projection.
      **kwargs: of Keras' Layer.

    Example:
      >>> import keras
      >>> from supcon_tf import keras_3
      >>> centres = keras_3.ClassCentres(num_classes=10, dim=128)
      >>> head = keras.Sequential([keras.layers.Dense(128), centres])
      >>> head.compile("sgd", keras_3.PaCoLoss(centres))
      >>> projections = head(keras.ops.zeros([4, 32]))
      >>> tuple(projections.shape), tuple(centres.centres.shape)
      ((4, 128), (10, 128))
    """

    def __init__(self, num_classes: int, dim: int, **kwargs: object) -> None:
        super().__init__(**{"name": "centres", "dtype": "float32", **kwargs})
        self.num_classes = num_classes
        self.dim = dim
        self._identity = uuid.uuid4().hex

    def build(self, input_shape: tuple[int | None, ...] | None) -> None:
        self.centres = self.add_weight(
            [self.num_classes, self.dim], "random_normal", name="centres"
        )
        self.built = True

    def call(self, projections: tf.Tensor) -> tf.Tensor:
        return projections

    def get_config(self) -> dict[str, object]:
        return super().get_config() | {
            "num_classes": self.num_classes,
            "dim": self.dim,
            "identity": self._identity,
        }

    @classmethod
    def from_config(cls, config: dict[str, object]) -> ClassCentres:
        """Rebuilds the layer, for the losses that were saved with it."""
        options = dict(config)
        identity = options.pop("identity")
        layer = cls(**options)
        layer._identity = identity
        _NEWEST_LAYERS[identity] = layer
        return layer


def find_centres(config: object) -> ClassCentres | None:
    """Returns the newest layer with the identity in a config, or None."""
    options = config.get("config") if isinstance(config, dict) else None
    identity = options.get("identity") if isinstance(options, dict) else None
    return _NEWEST_LAYERS.get(identity)
