"""What Keras' fit, evaluate and predict are given: its shape, its epochs."""

from __future__ import annotations

import contextlib
import inspect
import itertools
import os
from collections.abc import Iterator

import tensorflow as tf

from supcon_tf import exceptions
from supcon_tf.keras_2 import keras


def first_of(data: object, is_known: bool) -> tuple[object, object]:
    """What tells the shape of all inputs, and the data with it, unread.

    Of a sequence or a generator it is the first batch, None where the shape
    is known; of a dataset its specification, of anything else the data.
    """
    if isinstance(data, tf.data.Dataset):
        return data.element_spec, data
    is_generator = inspect.isgenerator(data)
    if is_generator or isinstance(data, keras.utils.Sequence):
        if is_known:
            return None, data
        first = next(data) if is_generator else data[0]
        return first, itertools.chain([first], data) if is_generator else data
    return data, data


def shape_of(data: object, is_batch: bool) -> tf.TensorShape | None:
    """The shape of the inputs, where it is known.

    Args:
      data: as `first_of` returns it.
      is_batch: whether it holds labels too, as batches do.

    Raises:
      ValueError: there are several inputs, as Keras would take them, or it is
        the path of a file.
    """
    exceptions.require(
        not isinstance(data, str | os.PathLike),
        "`x` must be a tensor or a dataset; `predict` of what supcon_tf.load "
        "returns takes files",
        data,
    )
    if is_batch and isinstance(data, tuple | list):
        data = data[0]
    if isinstance(data, tuple | list) and any(
        hasattr(x, "shape") for x in data
    ):
        raise exceptions.InvalidValue(
            "`x` must be one tensor, such as tf.stack(views, axis=1) for views "
            f"[batch, views, height, width, channels], got a {_name(data)} of "
            f"{len(data)}"
        )
    shape = getattr(data, "shape", None)
    if shape is None or tf.TensorShape(shape).rank is None:
        return None
    return tf.TensorShape([None, *tf.TensorShape(shape)[1:]])


def _name(data: object) -> str:
    return "tuple" if isinstance(data, tuple) else "list"


def steps_of(data: object, steps: int | None) -> int | None:
    """The steps that are given, or else of an epoch, where that is told."""
    if isinstance(data, tuple | list) and data:  # as validation may come
        data = data[0]
    epochs = getattr(data, "epochs", None)
    return epochs.steps if epochs and steps is None else steps


@contextlib.contextmanager
def going_on(
    data: object, model: keras.Model, initial_step: int
) -> Iterator[object]:
    """The batches behind those that a model was fitted to, if they are told.

    What it is fitted to them meanwhile counts from then on.
    """
    epochs = getattr(data, "epochs", None)
    optimizer = getattr(model, "optimizer", None)  # None before `compile`
    if epochs is None or optimizer is None:
        yield data
        return
    trained = epochs.trained.get(model, 0)
    step = max(epochs.start_step + trained, initial_step)
    before = tf.convert_to_tensor(optimizer.iterations)
    try:
        yield data if step == epochs.start_step else epochs.make(step)
    finally:
        steps = int(tf.convert_to_tensor(optimizer.iterations) - before)
        epochs.trained[model] = step - epochs.start_step + steps


class EpochSteps:
    """Before `Model` of a Keras: views that tell their epochs need no steps.

    Endless views, as those of `data.make_views`, tell of how many steps an
    epoch is, for training, validation, evaluation and prediction.
    """

    def fit(
        self,
        x: object = None,
        *args: object,
        initial_epoch: int = 0,
        steps_per_epoch: int | None = None,
        validation_data: object = None,
        validation_steps: int | None = None,
        **kwargs: object,
    ) -> keras.callbacks.History:
        """Keras' fit; endless views that tell their epochs need no steps.

        Where this model was fitted to the same dataset before, or begins at a
        later epoch, they go on.
        """
        steps = steps_of(x, steps_per_epoch)
        first_step = initial_epoch * (steps or 0)
        with going_on(x, self, first_step) as batches:
            return super().fit(
                self._checked(batches),
                *args,
                initial_epoch=initial_epoch,
                steps_per_epoch=steps,
                validation_data=validation_data,
                validation_steps=steps_of(validation_data, validation_steps),
                **kwargs,
            )

    def evaluate(
        self,
        x: object = None,
        *args: object,
        steps: int | None = None,
        **kwargs: object,
    ) -> object:
        """Keras' evaluate; of endless views an epoch."""
        steps = steps_of(x, steps)
        return super().evaluate(self._checked(x), *args, steps=steps, **kwargs)

    def predict(
        self,
        x: object,
        *args: object,
        steps: int | None = None,
        **kwargs: object,
    ) -> object:
        """Keras' predict; of endless views an epoch."""
        steps = steps_of(x, steps)
        return super().predict(self._checked(x), *args, steps=steps, **kwargs)

    def _checked(self, x: object) -> object:
        """What Keras gets of the data."""
        return x
