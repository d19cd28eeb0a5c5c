"""The base class of all models: configuration, and weights from files."""

from __future__ import annotations

import inspect
import os
import re
import warnings
from collections.abc import Mapping, Sequence

import h5py
import tensorflow as tf

from supcon_tf import exceptions, keras_2, pixels
from supcon_tf.disk import files
from supcon_tf.keras_2 import keras
from supcon_tf.models import keras_data

# A weight of the model in a .weights.h5 file, not of its metrics or optimizer.
_WEIGHT = re.compile(r"(?!metrics/|optimizer/).*\bvars/\d+")

_STARRED = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD


class Model(keras_data.EpochSteps, keras.Model):
    """A Keras model with a configuration, which loads all weights or none.

    The configuration holds every argument of the constructor: a subclass keeps
    each as an attribute of its name, and may make parts, such as the encoder,
    by itself. Keras' load_weights loads nothing before
    `build`, and in some formats ignores weights that only the model or only the
    file has: both are errors here.
    """

    def __init__(self, **kwargs: object) -> None:
        keras_2.refuse_keras_3(dtype=kwargs.get("dtype"))
        super().__init__(**kwargs)

    def __setattr__(self, name: str, value: object) -> None:
        """Keras' tracking of layers and weights; refuses those of Keras 3."""
        keras_2.refuse_keras_3(**{name: value})
        super().__setattr__(name, value)

    @classmethod
    def _arguments(cls) -> list[str]:
        """Returns the names of the constructor's arguments, without Keras'."""
        classes = []
        for base in cls.__mro__[: cls.__mro__.index(Model)]:
            if not issubclass(base, Model):  # a mixin
                continue
            classes.append(base)
            if not _takes_more(base):  # the arguments of its bases
                break
        names = {  # a dictionary, which keeps each name once and in order
            name: None
            for base in reversed(classes)
            for name in _parameters(base)
        }
        return [name for name in names if name != "name"]

    def build(self, input_shape: tf.TensorShape) -> None:
        if not self.built:
            self._build_parts(input_shape)
            # Not Model.build, which would trace a forward pass.
            keras.layers.Layer.build(self, input_shape)

    def _build_parts(self, input_shape: tf.TensorShape) -> None:
        """Creates the layers and variables for inputs of a shape."""
        raise NotImplementedError

    def _build_part(
        self, layer: keras.layers.Layer, input_shape: Sequence[int | None]
    ) -> None:
        """Builds a layer in a scope of its name."""
        # A scope ending in "/" is absolute: the variables have the same names
        # wherever this model is nested, built by `build` or by a first call.
        with tf.name_scope(f"{self.name}/{layer.name}/"):
            layer.build(input_shape)

    def __call__(
        self, inputs: tf.Tensor, *args: object, **kwargs: object
    ) -> object:
        """Keras' step around `call`.

        Raises:
          TypeError: this model is part of a model of Keras 3, which does not
            see its weights: they would not train.
        """
        keras_2.refuse_keras_3(inputs=inputs)
        if kwargs.get("training") is not False:
            in_inference = ", or called with training=False"
            caller = "keras.src.layers.layer"
            keras_2.refuse_caller(self, caller, unless=in_inference)
        inputs = self._ensure_built_shape(inputs)
        shape = getattr(inputs, "shape", None)
        if shape is not None and tf.TensorShape(shape).rank is not None:
            self._check_shape(tf.TensorShape(shape))
        return super().__call__(inputs, *args, **kwargs)

    def _ensure_built_shape(self, inputs: tf.Tensor) -> tf.Tensor:
        """Gives inputs the static views and channels of the built model.

        Keras hides the shape of a generator's batches.
        """
        if not self.built or not tf.is_tensor(inputs):
            return inputs
        built_shape = tf.TensorShape(self._build_input_shape)
        rank = inputs.shape.rank
        if rank not in (4, 5) or rank != built_shape.rank or inputs.shape[-1]:
            return inputs
        # [B, H, W, C] or [B, V, H, W, C]: B, H and W may differ from the build.
        sizes = built_shape[:-3].as_list() + [None, None, built_shape[-1]]
        return tf.ensure_shape(inputs, [None, *sizes[1:]])

    def compile(
        self,
        optimizer: str | keras.optimizers.Optimizer = "rmsprop",
        loss: keras.losses.Loss | None = None,
        metrics: object = None,
        *args: object,
        **kwargs: object,
    ) -> None:
        """Keras' compile; TypeError for arguments of Keras 3."""
        keras_2.refuse_keras_3(
            optimizer=optimizer, loss=loss, metrics=metrics, **kwargs
        )
        # A policy of Keras 3 is right for a network of Keras 3.
        if not any(
            hasattr(module, "network_layers") for module in self.submodules
        ):
            keras_2.warn_of_policy()
        for part in tf.nest.flatten(loss):  # a list or dict, as Keras takes
            self._check_loss(part)
        super().compile(optimizer, loss, metrics, *args, **kwargs)
        inner = getattr(self.optimizer, "inner_optimizer", None)
        if inner is not None and not hasattr(self.optimizer, "name"):
            # Keras' warning in `load_weights` names it: loss scaling has none.
            self.optimizer.name = getattr(inner, "name", "optimizer")

    def _check_loss(self, loss: object) -> None:
        """Raises ValueError for a loss that the model cannot train by."""

    def _check_inputs(
        self,
        data: object,
        callbacks: object,
        validation_data: object = None,
    ) -> object:
        """Builds the model for the inputs of `fit`; returns all data, unread.

        An error in tracing would leave a step that no other data could train:
        so shapes are checked first.
        """
        _check_callbacks(callbacks)
        keras_2.refuse_keras_3(validation_data=validation_data, x=data)
        shape, data = keras_data.input_shape(data, self.built)
        if shape is None or (self.built and shape[-1] is None):
            return data
        self._check_shape(shape)
        if not self.built:
            with self.distribute_strategy.scope():
                self.build(shape)
        return data

    def _check_shape(self, shape: tf.TensorShape) -> None:
        """Raises ValueError for inputs of another rank than `call` takes."""

    def _check_pixels(self, data: object) -> object:
        """Returns data whose images are checked to be in 0..255."""
        encoder = getattr(self, "encoder", self)
        takes_pixels = getattr(encoder, "takes_pixels", False)
        return pixels.checked(data) if takes_pixels else data

    def save(
        self,
        filepath: str | os.PathLike[str],
        *args: object,
        **kwargs: object,
    ) -> None:
        """Keras' save; ValueError for HDF5, which cannot hold these models."""
        _check_format(filepath)
        _warn_of_optimizer(filepath, getattr(self, "optimizer", None))
        super().save(filepath, *args, **kwargs)

    def get_config(self) -> dict[str, object]:
        # Model.get_config is empty for a subclass; Layer's has name and dtype.
        config = keras.layers.Layer.get_config(self)
        for name in self._arguments():
            exceptions.require(
                hasattr(self, name),
                f"`{type(self).__name__}` must keep its argument as the "
                f"attribute `{name}`, which its files hold",
                "no such attribute",
            )
            value = getattr(self, name)
            if isinstance(value, tf.Module):
                value = keras.saving.serialize_keras_object(value)
                # With a build_config, a newer Keras builds the part at once,
                # under other names than those that it has in this model.
                value.pop("build_config", None)
            config[name] = list(value) if isinstance(value, tuple) else value
        return config

    def compile_from_config(self, config: dict[str, object]) -> None:
        """Keras' step of load_model, which skips classes with a `compile`."""
        self._compile_loaded(keras_2.deserialized(config))

    def _compile_loaded(self, arguments: dict[str, object]) -> None:
        """Compiles a loaded model; one without a right loss stays as it is."""
        try:
            self.compile(**arguments)
        except exceptions.InvalidValue as error:
            warnings.warn(
                f"the model is loaded, and must be compiled anew: {error}",
                stacklevel=2,
            )
            return
        if self.built:
            self.optimizer.build(self.trainable_variables)

    @classmethod
    def from_config(cls, config: dict[str, object]) -> Model:
        """Rebuilds the model, with new weights, from its config."""
        parts = {
            name: keras_2.deserialized(config[name])
            for name in cls._arguments()
            if isinstance(config.get(name), dict)
        }
        options = config | parts
        try:
            return cls(**options)
        except TypeError:
            # A subclass may make parts of its base by itself.
            names = {*_parameters(cls)}
            if _takes_more(cls):  # those of Keras
                names |= options.keys() - {*cls._arguments()}
            return cls(**{name: options[name] for name in names & {*options}})

    def load_weights(
        self, filepath: str | os.PathLike[str], *args: object, **kwargs: object
    ) -> object:
        """Keras' load_weights.

        Raises:
          ValueError: the model is not built, or the file has other weights.
        """
        exceptions.require(
            self.built,
            f"`{type(self).__name__}` must be built before `load_weights`",
            f"no weights to load {filepath} into: call it once, or build it, "
            "as in encoder.build((None, size, size, 3))",
        )
        folder, name = os.path.split(os.fspath(filepath))
        filepath = os.path.join(files.literal(folder), name)
        rule = f"`filepath` must have all weights of `{type(self).__name__}`"
        try:
            status = super().load_weights(filepath, *args, **kwargs)
        except AssertionError as error:  # TensorFlow's, where nothing fits
            raise exceptions.InvalidValue(
                f"{rule}, got {filepath} without any"
            ) from error
        if status is None:  # not TensorFlow's format
            return None
        prefix = filepath
        if tf.saved_model.contains_saved_model(prefix):
            prefix = os.path.join(prefix, "variables", "variables")
        # The asserts of `status` would also require the optimizer's state.
        view = tf.train.CheckpointView(prefix)
        saved_ids = {id(trackable) for trackable in view.match(self).values()}
        unsaved = [
            weight.name
            for weight in self.weights
            if id(weight) not in saved_ids
        ]
        exceptions.require(
            not unsaved,
            rule,
            f"{prefix} without {len(unsaved)} such as {', '.join(unsaved[:1])}",
        )
        return status

    def load_own_variables(self, store: Mapping[str, object]) -> None:
        """Keras' step on its way through .weights.h5 and .keras files.

        Raises:
          ValueError: the file has more or fewer weights than this model.
        """
        # `store` is a group of the file, or {} where the file has no group.
        num_saved = 0
        if hasattr(store, "parent"):
            num_saved = count_weights(store.parent)
        layers = [part for part in self.submodules if hasattr(part, "weights")]
        weight_ids = {
            id(weight) for layer in layers for weight in layer.weights
        }
        exceptions.require(
            num_saved == len(weight_ids),
            f"`filepath` must have the {len(weight_ids)} weights of "
            f"`{type(self).__name__}`",
            num_saved,
        )
        super().load_own_variables(store)


def _parameters(cls: type) -> list[str]:
    """Returns the arguments that a constructor names, but for `self`."""
    parameters = inspect.signature(cls.__init__).parameters.values()
    return [
        parameter.name
        for parameter in parameters
        if parameter.name != "self" and parameter.kind not in _STARRED
    ]


def _takes_more(cls: type) -> bool:
    """Whether a constructor takes arguments that it does not name."""
    parameters = inspect.signature(cls.__init__).parameters.values()
    return any(parameter.kind in _STARRED for parameter in parameters)


def _check_callbacks(callbacks: object) -> None:
    """Raises ValueError for a ModelCheckpoint that Keras could not save.

    Callbacks of Keras 3 raise TypeError.
    """
    keras_2.refuse_keras_3(callbacks=callbacks)
    for callback in tf.nest.flatten(callbacks):
        if isinstance(callback, keras.callbacks.ModelCheckpoint):
            if not callback.save_weights_only:
                _check_format(callback.filepath)


def _check_format(filepath: str | os.PathLike[str]) -> None:
    """Raises ValueError for a file of HDF5 that cannot hold a whole model."""
    suffix = os.path.splitext(os.fspath(filepath))[1]
    exceptions.require(
        suffix not in (".h5", ".hdf5", ".hdf"),
        "`filepath` must end in .keras for a whole model, or in .weights.h5 "
        "for its weights alone (save_weights_only=True of ModelCheckpoint)",
        os.fspath(filepath),
    )


def _warn_of_optimizer(
    filepath: str | os.PathLike[str], optimizer: object
) -> None:
    """Warns of a .keras file, which leaves out optimizers of the older kind."""
    is_keras_file = os.path.splitext(os.fspath(filepath))[1] == ".keras"
    kind = keras.optimizers.legacy.Optimizer
    if is_keras_file and isinstance(optimizer, kind):
        warnings.warn(
            f"{filepath} holds the model without the steps and moments of "
            f"{type(optimizer).__name__}, an optimizer of the older kind: to "
            "go on with the training, keep a tf.train.Checkpoint of both",
            stacklevel=3,
        )


def count_weights(group: h5py.Group) -> int:
    """Counts the weights of a model below a group of a .weights.h5 file."""
    names: list[str] = []
    group.visit(names.append)
    return sum(map(is_weight, names))


def is_weight(name: str) -> bool:
    """Whether a name in a .weights.h5 file names a weight of the model."""
    return _WEIGHT.fullmatch(name) is not None
