"""Losses and metrics of Keras 3, each made from the one of Keras 2.

A wrapper has the arguments of a class of ours, holds an instance of that class,
and lets the instance compute. Keras 3 does the rest: reduction, the weights of
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

# Attributes that the base class of Keras 3 has.
_KERAS_ATTRIBUTES = ("dtype", "name", "reduction")
# A loss may be saved with its queue.
keras.saving.register_keras_serializable("supcon_tf")(losses.ProjectionQueue)


class _Wrapper:
    """A class of Keras 3 around `_wrapped`, an instance of `OF`, ours."""

    OF: type

    @classmethod
    def _options(cls, *args: object, **kwargs: object) -> dict[str, object]:
        """All arguments of a call by name, with their defaults."""
        bound = inspect.signature(cls).bind(*args, **kwargs)
        bound.apply_defaults()
        return bound.arguments

    def get_config(self) -> dict[str, object]:
        names = inspect.signature(type(self)).parameters
        return keras.saving.serialize_keras_object(
            {name: getattr(self, name) for name in names}
        )

    @classmethod
    def from_config(cls, config: dict[str, object]) -> _Wrapper:
        """Rebuilds a loss or metric; in a loaded model, with its centres."""
        options = {
            name: layers.of_model(value)
            or keras.saving.deserialize_keras_object(value)
            for name, value in config.items()
        }
        return cls(**options)


class _Reducer(keras.losses.Loss):
    """Keras 3's reduction of the values [batch] of a loss."""

    def call(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        return y_pred


class _Loss(_Wrapper, keras.losses.Loss):
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
        self._wrapped = self.OF(**(options | {"reduction": "none"}))
        self._reducer = _Reducer(self.name, self.reduction)

    def __call__(
        self,
        y_true: tf.Tensor,
        y_pred: tf.Tensor,
        sample_weight: tf.Tensor | None = None,
    ) -> tf.Tensor:
        # `Loss.__call__` would make float32 of labels, which holds integers up
        # to 2^24 alone.
        values = self.call(y_true, y_pred)
        return self._reducer(values, values, sample_weight)

    def call(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        return self._wrapped.call(_labels(y_true), tf.convert_to_tensor(y_pred))


class _Metric(_Wrapper, keras.metrics.Mean):
    """A diagnostic: values and weights are ours, their sums are Keras 3's."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        options = self._options(*args, **kwargs)
        super().__init__(options["name"], options["dtype"])
        self._wrapped = self.OF(**options)

    def update_state(
        self, y_true: tf.Tensor, y_pred: tf.Tensor, sample_weight: None = None
    ) -> None:
        labels, z = _labels(y_true), tf.convert_to_tensor(y_pred)
        values, weights = self._wrapped.of_batch(labels, z, sample_weight)
        super().update_state(values, weights)

    def result(self) -> tf.Tensor:
        """Returns the mean, or what the diagnostic makes of it."""
        count = tf.convert_to_tensor(self.count)
        return self._wrapped.of_mean(super().result(), count)


def _labels(labels: tf.Tensor) -> tf.Tensor:
    """Labels as a user gives them, whatever Keras 3 makes of them.

    Under a strategy Keras 3 tries a step without values, outside of the
    replicas, whose labels are means of batches.
    """
    labels = tf.convert_to_tensor(labels)
    rank, is_trial = labels.shape.rank, tf.distribute.in_cross_replica_context()
    if is_trial and (rank == 1 or labels.shape[-1] == 1):
        return tf.cast(labels, tf.int64)
    return labels


def loss(of: type) -> type:
    """The loss of Keras 3 that computes what one of ours does."""
    return _make_class(of, _Loss)


def metric(of: type) -> type:
    """The metric of Keras 3 that computes what a diagnostic of ours does."""
    return _make_class(of, _Metric)


def _make_class(wrapped: type, base: type) -> type:
    """A class with the name, the arguments and the docstring of `wrapped`."""
    parameters = inspect.signature(wrapped).parameters.copy()
    if "reduction" in parameters:
        default = inspect.signature(keras.losses.Loss).parameters["reduction"]
        parameters["reduction"] = parameters["reduction"].replace(
            default=default.default
        )
    properties = {
        name: property(operator.attrgetter(f"_wrapped.{name}"))
        for name in parameters
        if name not in _KERAS_ATTRIBUTES
    }
    names = {
        "OF": wrapped,
        "__doc__": _with_keras_3_imports(wrapped.__doc__),
        "__module__": __package__,
        "__signature__": inspect.Signature([*parameters.values()]),
    }
    wrapper = type(wrapped.__name__, (base,), names | properties)
    return keras.saving.register_keras_serializable("supcon_tf")(wrapper)


def _with_keras_3_imports(docstring: str) -> str:
    """A docstring whose examples take the classes of Keras 3."""
    docstring = re.sub(
        r"^( +>>> )(import supcon_tf|from supcon_tf import .*)$",
        r"\1from supcon_tf import keras_3",
        docstring,
        flags=re.M,
    )
    return re.sub(
        r"\b(losses|models|supcon_tf)\.(?=[A-Z])", "keras_3.", docstring
    )
