"""Classes of Keras 3 that wrap our losses and metrics of Keras 2.

A wrapper has the arguments of a class of ours, holds an instance of that class,
and lets the instance compute. Keras 3 does the rest: reduction, the weights of
samples, the state of a mean, saving.
"""

from __future__ import annotations

import inspect
import operator
import re
import warnings

import tensorflow as tf

from supcon_tf import exceptions, keras_2, losses
from supcon_tf.keras_3 import layers
from supcon_tf.keras_3.installed import keras

# Attributes that the base class of Keras 3 has.
_KERAS_ATTRIBUTES = ("dtype", "name", "reduction")
# A loss may be saved with its queue.
keras.saving.register_keras_serializable("supcon_tf")(losses.ProjectionQueue)


class _Wrapper:
    """The base of the wrappers: `_wrapped` is a loss or metric of Keras 2."""

    KERAS_2_CLASS: type

    @classmethod
    def _options(cls, *args: object, **kwargs: object) -> dict[str, object]:
        """Returns all arguments of a call by name, with their defaults."""
        call = inspect.signature(cls).bind(*args, **kwargs)
        call.apply_defaults()
        return call.arguments

    def get_config(self) -> dict[str, object]:
        names = inspect.signature(type(self)).parameters
        return keras.saving.serialize_keras_object(
            {name: getattr(self, name) for name in names}
        )

    @classmethod
    def from_config(cls, config: dict[str, object]) -> _Wrapper:
        """Rebuilds a loss or metric; in a loaded model, with its centres."""
        options = {
            name: layers.find_centres(value)
            or keras.saving.deserialize_keras_object(value)
            for name, value in config.items()
        }
        return cls(**options)


class _Reducer(keras.losses.Loss):
    """A loss that passes values [batch] to the reduction of Keras 3."""

    def call(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        return y_pred


class _Loss(_Wrapper, keras.losses.Loss):
    """A loss: the wrapped loss computes values [batch], Keras 3 reduces."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        options = self._options(*args, **kwargs)
        for name, value in options.items():
            if isinstance(value, keras_2.keras.layers.Layer):
                raise exceptions.WrongKeras(
                    f"`{name}` must be of Keras 3, whose model trains it, got "
                    f"{type(value).__name__} of Keras 2: take supcon_tf."
                    "keras_3.ClassCentres"
                )
        _warn_of_empty(options.get("queue"))
        super().__init__(options["name"], options["reduction"])
        self._wrapped = self.KERAS_2_CLASS(**(options | {"reduction": "none"}))
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


def _warn_of_empty(queue: losses.ProjectionQueue | None) -> None:
    """Warns of a queue that is empty, as that of a loaded loss always is."""
    if queue is not None and int(queue.filled) == 0:
        warnings.warn(
            "`queue` is empty, and `fit` of Keras 3 does not fill it: unless "
            "your train_step calls queue.enqueue(projections, labels), the "
            "loss is that without a queue",
            stacklevel=3,
        )


class _Metric(_Wrapper, keras.metrics.Mean):
    """A diagnostic: the wrapped one computes values, Keras 3 averages them."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        options = self._options(*args, **kwargs)
        super().__init__(options["name"], options["dtype"])
        self._wrapped = self.KERAS_2_CLASS(**options)

    def update_state(
        self, y_true: tf.Tensor, y_pred: tf.Tensor, sample_weight: None = None
    ) -> None:
        labels, projections = _labels(y_true), tf.convert_to_tensor(y_pred)
        values, weights = self._wrapped.measure_batch(
            labels, projections, sample_weight
        )
        super().update_state(values, weights)

    def result(self) -> tf.Tensor:
        """Returns the mean, or what the diagnostic makes of it."""
        count = tf.convert_to_tensor(self.count)
        return self._wrapped.from_mean(super().result(), count)


def _labels(labels: tf.Tensor) -> tf.Tensor:
    """Returns labels with the type that a user gives them.

    Under a strategy Keras 3 traces a trial step outside of the replicas. Its
    labels are means of batches, which are floats; class labels become integers
    again.
    """
    labels = tf.convert_to_tensor(labels)
    rank = labels.shape.rank
    # A user may call a loss in the scope of a strategy, too: not in a graph.
    is_trial = (
        tf.distribute.in_cross_replica_context() and not tf.executing_eagerly()
    )
    if is_trial and (rank == 1 or labels.shape[-1] == 1):
        return tf.cast(labels, tf.int64)
    return labels


def loss(keras_2_class: type) -> type:
    """Returns the loss of Keras 3 that wraps a loss of Keras 2."""
    return _make_class(keras_2_class, _Loss)


def metric(keras_2_class: type) -> type:
    """Returns the metric of Keras 3 that wraps a diagnostic of Keras 2."""
    return _make_class(keras_2_class, _Metric)


def _make_class(keras_2_class: type, base: type) -> type:
    """Returns a wrapper with the name, arguments and docstring of a class."""
    parameters = inspect.signature(keras_2_class).parameters.copy()
    if "reduction" in parameters:
        # Keras 2 and 3 have other defaults of the reduction.
        keras_3_parameters = inspect.signature(keras.losses.Loss).parameters
        parameters["reduction"] = parameters["reduction"].replace(
            default=keras_3_parameters["reduction"].default
        )
    properties = {
        name: property(operator.attrgetter(f"_wrapped.{name}"))
        for name in parameters
        if name not in _KERAS_ATTRIBUTES
    }
    namespace = {
        "KERAS_2_CLASS": keras_2_class,
        "__doc__": _with_keras_3_imports(keras_2_class.__doc__),
        "__module__": __package__,
        "__signature__": inspect.Signature([*parameters.values()]),
    }
    wrapper = type(keras_2_class.__name__, (base,), namespace | properties)
    return keras.saving.register_keras_serializable("supcon_tf")(wrapper)


def _with_keras_3_imports(docstring: str) -> str:
    """Returns a docstring whose examples take the classes of Keras 3."""
    docstring = re.sub(
        r"^( +>>> )(import supcon_tf|from supcon_tf import .*)$",
        r"\1from supcon_tf import keras_3",
        docstring,
        flags=re.M,
    )
    return re.sub(
        r"\b(losses|models|supcon_tf)\.(?=[A-Z])", "keras_3.", docstring
    )
