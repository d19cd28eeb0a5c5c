"""Data for Keras' fit, evaluate and predict: the shape, and the epochs."""

from __future__ import annotations

import contextlib
import inspect
import itertools
import os
from collections.abc import Iterator

import tensorflow as tf

from supcon_tf import exceptions
from supcon_tf.keras_2 import keras


def peek(data: object, is_known: bool) -> tuple[object, object]:
    """Returns an object that tells the shape of all inputs, and all data.

    The object is the specification of a dataset, the first batch of a sequence
    or a generator (None where the shape is known), or the data themselves. All
    data are returned, with the first batch of a generator.
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


def input_shape(data: object, is_batch: bool) -> tf.TensorShape | None:
    """Returns the static shape of the inputs; None if it is not known.

    Args:
      data: the first object that `peek` returns.
      is_batch: whether `data` holds labels too, as batches do.

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
        hasattr(tensor, "shape") for tensor in data
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
    """Returns the name of a sequence's class, for a message."""
    return "tuple" if isinstance(data, tuple) else "list"


def count_steps(data: object, steps: int | None) -> int | None:
    """Returns `steps`, or else the steps of an epoch that the data tell."""
    if isinstance(data, tuple | list) and data:  # validation (views, labels)
        data = data[0]
    epochs = getattr(data, "epochs", None)
    return epochs.steps if epochs and steps is None else steps


@contextlib.contextmanager
def resume_views(
    data: object, model: keras.Model, initial_step: int
) -> Iterator[object]:
    """Yields the batches after those that a model was fitted to before.

    Data that do not tell their epochs are yielded as they are. The steps that
    the model trains in this context are added to those that it was fitted to.
    """
    epochs = getattr(data, "epochs", None)
    optimizer = getattr(model, "optimizer", None)  # None before `compile`
    if epochs is None or optimizer is None:
        yield data
        return
    trained = epochs.trained.get(model, 0)
    step = max(epochs.start_step + trained, initial_step)
    first_iteration = tf.convert_to_tensor(optimizer.iterations)
    try:
        yield data if step == epochs.start_step else epochs.make(step)
    finally:
        iteration = tf.convert_to_tensor(optimizer.iterations)
        steps = int(iteration - first_iteration)
        epochs.trained[model] = step - epochs.start_step + steps


class EpochSteps:
    """A mixin before Keras' `Model`: views with epochs need no steps.

    Endless views, as those of `data.make_views`, tell how many steps an epoch
    has, for training, validation, evaluation and prediction.
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

        The views go on where this model was fitted to the same dataset before,
        or begins at a later epoch.
        """
        steps = count_steps(x, steps_per_epoch)
        first_step = initial_epoch * (steps or 0)
        with resume_views(x, self, first_step) as batches:
            return super().fit(
                self._check_data(batches),
                *args,
                initial_epoch=initial_epoch,
                steps_per_epoch=steps,
                validation_data=validation_data,
                validation_steps=count_steps(validation_data, validation_steps),
                **kwargs,
            )

    def evaluate(
        self,
        x: object = None,
        *args: object,
        steps: int | None = None,
        **kwargs: object,
    ) -> object:
        """Keras' evaluate; endless views give an epoch."""
        steps = count_steps(x, steps)
        return super().evaluate(
            self._check_data(x), *args, steps=steps, **kwargs
        )

    def predict(
        self,
        x: object,
        *args: object,
        steps: int | None = None,
        **kwargs: object,
    ) -> object:
        """Keras' predict; endless views give an epoch."""
        steps = count_steps(x, steps)
        return super().predict(
            self._check_data(x), *args, steps=steps, **kwargs
        )

    def _check_data(self, data: object) -> object:
        """The data for Keras; a subclass may add checks."""
        return data
