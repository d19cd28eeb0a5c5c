"""What a model of Keras 3 has beside its own network."""

from __future__ import annotations

import uuid
import weakref

import tensorflow as tf

from supcon_tf.keras_3.installed import keras

# Those that were made from a config, by their identity. Keras makes the loss
# of a saved model after its layers, and does not tell it what they are.
_NEWEST: weakref.WeakValueDictionary = weakref.WeakValueDictionary()


@keras.saving.register_keras_serializable("supcon_tf")
class ClassCentres(keras.layers.Layer):
    """A learned point for every class, as losses for long tails take them.

    Its weight is `centres` [num_classes, dim], float32. It returns what it is
    called with: as the last layer it makes the centres weights of the model.
    A model that is loaded has the same centres as its loss.

    Args:
      num_classes: rows.
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
        made = cls(**options)
        made._identity = identity
        _NEWEST[identity] = made
        return made


def of_model(config: object) -> ClassCentres | None:
    """The centres that a model was just given, by a config of the same ones."""
    inner = config.get("config") if isinstance(config, dict) else None
    identity = inner.get("identity") if isinstance(inner, dict) else None
    return _NEWEST.get(identity)
