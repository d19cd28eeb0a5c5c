"""Losses and metrics of Keras 3, each made from the one of Keras 2.

A class that is made has the arguments of ours, holds one of ours, and lets it
compute. What differs is what Keras 3 does around it: reduction, the weights of
samples, the state of a mean, saving.
"""

from __future__ import annotations

import inspect
import operator
import re

import tensorflow as tf

from supcon_tf import exceptions, keras_2, losses
from supcon_tf.keras_3 import layers
from supcon_tf.keras_3.installed import keras

# What Keras 3 has itself.
_OF_KERAS = ("dtype", "name", "reduction")
# Which a loss may be saved with.
keras.saving.register_keras_serializable("supcon_tf")(losses.ProjectionQueue)


class _Made:
    """What is made from `OF`, a class of ours, which `_own` is one of."""

    OF: type

    @classmethod
    def _options(cls, *args: object, **kwargs: object) -> dict[str, object]:
        """Arguments by name, those that are not given too."""
        given = inspect.signature(cls).bind(*args, **kwargs)
        given.apply_defaults()
        return given.arguments

    def get_config(self) -> dict[str, object]:
        names = inspect.signature(type(self)).parameters
        return keras.saving.serialize_keras_object(
            {name: getattr(self, name) for name in names}
        )

    @classmethod
    def from_config(cls, config: dict[str, object]) -> _Made:
        """Rebuilds it; in a model that is loaded, with the centres of that."""
        options = {
            name: layers.of_model(value)
            or keras.saving.deserialize_keras_object(value)
            for name, value in config.items()
        }
        return cls(**options)


class _Reducer(keras.losses.Loss):
    """Keras 3's reduction of values that are there."""

    def call(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        return y_pred


class _Loss(_Made, keras.losses.Loss):
    """A loss: values [batch] are ours, their reduction is Keras 3's."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        options = self._options(*args, **kwargs)
        for name, value in options.items():
            if isinstance(value, keras_2.keras.layers.Layer):
                raise exceptions.WrongKeras(
                    f"`{name}` must be of Keras 3, whose model trains it, got "
                    f"{type(value).__name__} of Keras 2: take supcon_tf."
                    "keras_3.ClassCentres"
                )
        super().__init__(options["name"], options["reduction"])
        self._own = self.OF(**(options | {"reduction": "none"}))
        self._reducer = _Reducer(self.name, self.reduction)

    def __call__(
        self,
        y_true: tf.Tensor,
        y_pred: tf.Tensor,
        sample_weight: tf.Tensor | None = None,
    ) -> tf.Tensor:
        # Keras 3's own call would make float32 of labels, which holds integers
        # up to 2^24 alone.
        values = self.call(y_true, y_pred)
        return self._reducer(values, values, sample_weight)

    def call(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        return self._own.call(_labels(y_true), tf.convert_to_tensor(y_pred))


class _Metric(_Made, keras.metrics.Mean):
    """A diagnostic: what is averaged is ours, its sums are Keras 3's."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        options = self._options(*args, **kwargs)
        super().__init__(options["name"], options["dtype"])
        self._own = self.OF(**options)

    def update_state(
        self, y_true: tf.Tensor, y_pred: tf.Tensor, sample_weight: None = None
    ) -> None:
        labels, z = _labels(y_true), tf.convert_to_tensor(y_pred)
        values, weights = self._own.of_batch(labels, z, sample_weight)
        super().update_state(values, weights)

    def result(self) -> tf.Tensor:
        """Returns the mean, or what the diagnostic makes of it."""
        count = tf.convert_to_tensor(self.count)
        return self._own.of_mean(super().result(), count)


def _labels(labels: tf.Tensor) -> tf.Tensor:
    """Labels as they were given, whatever Keras 3 makes of them.

    Under a strategy it tries a step without values, outside of the replicas,
    for which it takes means of batches.
    """
    labels = tf.convert_to_tensor(labels)
    rank, is_tried = labels.shape.rank, tf.distribute.in_cross_replica_context()
    if is_tried and (rank == 1 or labels.shape[-1] == 1):
        return tf.cast(labels, tf.int64)
    return labels


def loss(of: type) -> type:
    """The loss of Keras 3 that computes what one of ours does."""
    return _made(of, _Loss)


def metric(of: type) -> type:
    """The metric of Keras 3 that computes what a diagnostic of ours does."""
    return _made(of, _Metric)


def _made(of: type, base: type) -> type:
    """A class with the name, the arguments and the docstring of ours."""
    parameters = inspect.signature(of).parameters.copy()
    if "reduction" in parameters:
        default = inspect.signature(keras.losses.Loss).parameters["reduction"]
        parameters["reduction"] = parameters["reduction"].replace(
            default=default.default
        )
    arguments = {
        name: property(operator.attrgetter(f"_own.{name}"))
        for name in parameters
        if name not in _OF_KERAS
    }
    names = {
        "OF": of,
        "__doc__": _told(of.__doc__),
        "__module__": __package__,
        "__signature__": inspect.Signature([*parameters.values()]),
    }
    made = type(of.__name__, (base,), names | arguments)
    return keras.saving.register_keras_serializable("supcon_tf")(made)


def _told(text: str) -> str:
    """A docstring whose examples take the classes of Keras 3."""
    imported = r"^( +>>> )(import supcon_tf|from supcon_tf import .*)$"
    text = re.sub(
        imported, r"\1from supcon_tf import keras_3", text, flags=re.M
    )
    return re.sub(r"\b(losses|models|supcon_tf)\.(?=[A-Z])", "keras_3.", text)
