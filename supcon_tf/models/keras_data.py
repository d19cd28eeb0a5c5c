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

_BACKUP_STEPS = "train_counter/.ATTRIBUTES/VARIABLE_VALUE"


def input_shape(
    data: object, is_built: bool
) -> tuple[tf.TensorShape | None, object]:
    """Returns the static shape of the inputs in data for Keras, and all data.

    Args:
      data: a dataset, a sequence or a generator of batches, or the inputs.
      is_built: whether the model knows the shape already, so that no batch of a
        sequence or a generator is read.

    Returns:
      [None, ...], or None where the shape is not read or not static; the data,
      with the first batch of a generator.

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
    is_generator = inspect.isgenerator(data)
    if is_generator or isinstance(data, keras.utils.Sequence):
        if is_built:
            return None, data
        batch = next(data) if is_generator else data[0]
        data = itertools.chain([batch], data) if is_generator else data
    else:  # arrays are inputs alone; a dataset has labels, too
        batch = getattr(data, "element_spec", [data])
    inputs = batch[0] if isinstance(batch, tuple | list) else batch
    if isinstance(inputs, tuple | list) and any(
        hasattr(tensor, "shape") for tensor in inputs
    ):
        raise exceptions.InvalidValue(
            "`x` must be one tensor, such as tf.stack(views, axis=1) for views "
            "[batch, views, height, width, channels], got a "
            f"{'tuple' if isinstance(inputs, tuple) else 'list'} of "
            f"{len(inputs)}"
        )
    shape = tf.TensorShape(getattr(inputs, "shape", None))
    is_static = shape.rank is not None
    return tf.TensorShape([None, *shape[1:]]) if is_static else None, data


def count_steps(data: object, steps: int | None) -> int | None:
    """Returns `steps`, or else the steps of an epoch that the data tell."""
    if isinstance(data, tuple | list) and data:  # validation (views, labels)
        data = data[0]
    epochs = getattr(data, "epochs", None)
    return epochs.steps if epochs and steps is None else steps


@contextlib.contextmanager
def resume_views(
    data: object,
    model: keras.Model,
    initial_step: int,
    callbacks: object = None,
) -> Iterator[object]:
    """Yields the batches after those that a model was fitted to before.

    Data that do not tell their epochs are yielded as they are. The steps that
    the model trains in this context are added to those that it was fitted to.
    So are those of a backup, which one of the callbacks restores.
    """
    epochs = getattr(data, "epochs", None)
    is_compiled = getattr(model, "optimizer", None) is not None
    if epochs is None or not is_compiled:
        yield data
        return
    trained = epochs.trained.get(model, 0)
    step = max(epochs.start_step + trained, initial_step)
    folder, restored_steps = _backup(callbacks)
    if restored_steps:  # since the first step of the fit that wrote them
        step = epochs.backups.get(folder, step)
    epochs.backups[folder] = step
    first_step = step + restored_steps
    counter = _step_counter(model)
    first_count = int(tf.convert_to_tensor(counter))
    try:
        is_start = first_step == epochs.start_step
        yield data if is_start else epochs.make(first_step)
    finally:
        steps = int(tf.convert_to_tensor(counter)) - first_count
        epochs.trained[model] = step - epochs.start_step + steps


def _backup(callbacks: object) -> tuple[str | None, int]:
    """Returns the folder of a BackupAndRestore, and the steps in its backup.

    Keras restores the backup, with the steps, when the training begins.
    """
    for callback in tf.nest.flatten(callbacks):
        if isinstance(callback, keras.callbacks.BackupAndRestore):
            folder = os.fspath(callback.backup_dir)
            path = tf.train.latest_checkpoint(os.path.join(folder, "chief"))
            steps = path and tf.train.load_variable(path, _BACKUP_STEPS)
            return folder, int(steps or 0)
    return None, 0


def _step_counter(model: keras.Model) -> tf.Variable:
    """Returns a variable that counts the steps of `fit`.

    The optimizer's `iterations` are fewer: loss scaling skips steps, and Keras
    3 leaves out those between two updates by accumulated gradients.
    """
    if hasattr(model, "_train_counter"):  # of Keras 2
        model._train_counter.assign(0)  # as `fit` does
        return model._train_counter
    optimizer = getattr(model.optimizer, "inner_optimizer", model.optimizer)
    return optimizer._iterations


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
        """Keras' fit, which checks the shape of inputs before it traces.

        Endless views that tell their epochs, as those of `data.make_views`,
        need no steps, for training or validation. They go on where this model
        was fitted to the same dataset before, begins at a later epoch, or is
        restored by `BackupAndRestore`.

        Raises:
          ValueError: the inputs have another shape, or images for an encoder
            are not in 0..255 (tf.errors.InvalidArgumentError for images of a
            dataset).
          TypeError: data or a callback are of Keras 3.
        """
        callbacks = kwargs.get("callbacks")
        x = self._check_inputs(x, callbacks, validation_data)
        steps = count_steps(x, steps_per_epoch)
        first_step = initial_epoch * (steps or 0)
        with resume_views(x, self, first_step, callbacks) as batches:
            return super().fit(
                self._check_pixels(batches),
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
        """Keras' evaluate; raises as `fit`. Endless views give an epoch."""
        x = self._check_inputs(x, kwargs.get("callbacks"))
        steps = count_steps(x, steps)
        return super().evaluate(
            self._check_pixels(x), *args, steps=steps, **kwargs
        )

    def predict(
        self,
        x: object,
        *args: object,
        steps: int | None = None,
        **kwargs: object,
    ) -> object:
        """Keras' predict; raises as `fit`. Endless views give an epoch."""
        x = self._check_inputs(x, kwargs.get("callbacks"))
        steps = count_steps(x, steps)
        return super().predict(
            self._check_pixels(x), *args, steps=steps, **kwargs
        )

    def _check_inputs(
        self, data: object, callbacks: object, validation_data: object = None
    ) -> object:
        """All data, before a step is traced; a subclass may add checks."""
        return data

    def _check_pixels(self, data: object) -> object:
        """The data for Keras; a subclass may add checks."""
        return data
