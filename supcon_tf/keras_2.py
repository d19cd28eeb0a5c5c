"""Keras 2 by its own name: `from supcon_tf.keras_2 import keras`.

From TensorFlow 2.16 on `tf.keras` is Keras 3, and Keras 2 is tf_keras: `keras`
here is tf_keras, and the user's `tf.keras` does not change. Where Keras 2 alone
is installed, as beside TensorFlow 2.15, `keras` is `tf.keras`.

Raises:
  ImportError: there is no tf-keras beside Keras 3.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import os
import sys
import types
import warnings
from collections.abc import Iterator

import tensorflow as tf

from supcon_tf import exceptions

_VARIABLE = "TF_USE_LEGACY_KERAS"


@contextlib.contextmanager
def variable(value: str | None) -> Iterator[None]:
    """Sets TF_USE_LEGACY_KERAS, or unsets it by None, during a block.

    TensorFlow and others choose Keras by it, once, when they are imported.
    """
    earlier = os.environ.pop(_VARIABLE, None)
    if value is not None:
        os.environ[_VARIABLE] = value
    try:
        yield
    finally:
        os.environ.pop(_VARIABLE, None)
        if earlier is not None:
            os.environ[_VARIABLE] = earlier


def _find() -> types.ModuleType:
    if importlib.metadata.version("keras").startswith("2."):
        # Set, as by transformers, the variable asks for tf_keras, which is not
        # installed; `tf.keras` reads it at its first use alone.
        with variable(None):
            tf.keras.Model  # noqa: B018
        return tf.keras
    try:
        return importlib.import_module("tf_keras")
    except ImportError as error:
        raise exceptions.MissingPackage(
            "supcon_tf needs Keras 2 beside this TensorFlow: pip install "
            "tf-keras of the same release"
        ) from error


keras = _find()
PACKAGE = keras.Model.__module__.partition(".")[0]
_IMPORT = "from supcon_tf.keras_2 import keras"


def deserialized(config: dict[str, object]) -> object:
    """Returns Keras' object of a config, of a file of either platform."""
    return keras.saving.deserialize_keras_object(_translated(config))


def _translated(config: object) -> object:
    """Returns a config with the names by which this Keras 2 finds its parts.

    tf_keras reads the modules of TensorFlow 2.15, which does not read those of
    tf_keras. 2.15 writes registered functions without their package.
    """
    if isinstance(config, list | tuple):  # a list that a model tracks, too
        parts = [_translated(part) for part in config]
        return parts if isinstance(config, list) else tuple(parts)
    if not isinstance(config, dict):
        return config
    config = {name: _translated(part) for name, part in config.items()}
    module, name = config.get("module"), config.get("config")
    if isinstance(module, str) and PACKAGE == "keras":
        config["module"] = module.removeprefix("tf_")
    if module == "builtins" and config.get("class_name") == "function":
        registered_name = f"supcon_tf>{name}"
        if keras.saving.get_registered_object(registered_name) is not None:
            config["config"] = registered_name
    return config


def is_keras_3(thing: object) -> bool:
    """Whether the class of an object, or a base of it, is of Keras 3.

    Classes of KerasHub are, and subclasses of users. Does not import Keras 3.
    """
    kinds = type(thing).__mro__
    return PACKAGE != "keras" and any(
        str(kind.__module__).partition(".")[0] == "keras" for kind in kinds
    )


def refuse_keras_3(**arguments: object) -> None:
    """Raises TypeError for an argument of Keras 3, or a structure with one.

    Keras 2 would fail with it later, without the reason, or take it for a
    function and ignore sample weights.
    """
    for name, value in arguments.items():
        for leaf in _leaves(value):
            if is_keras_3(leaf):
                kind = type(leaf)
                remedy = f"make it with `{_IMPORT}`"
                if kind.__module__ == "supcon_tf.keras_3":
                    remedy = f"take supcon_tf.losses.{kind.__name__}"
                if hasattr(leaf, "save_weights"):
                    remedy += (
                        "; the same network there loads what this one saves by "
                        'save_weights("its.weights.h5")'
                    )
                raise exceptions.WrongKeras(
                    f"`{name}` must be of Keras 2, got {kind.__name__} of "
                    f"Keras 3: {remedy}"
                )


def _leaves(value: object) -> Iterator[object]:
    """The leaves of nested lists and dicts, whatever their keys are."""
    if isinstance(value, dict):
        value = [*value.values()]
    if not isinstance(value, list | tuple):
        yield value
        return
    for part in value:
        yield from _leaves(part)


def refuse_caller(callee: object, *modules: str, unless: str = "") -> None:
    """Raises TypeError if a function of Keras 3 is on the stack of a call.

    Args:
      callee: the object that is called.
      modules: names of modules of Keras 3, or prefixes of them.
      unless: words of the message on calls that are allowed.
    """
    frame = sys._getframe(1) if PACKAGE != "keras" else None
    while frame is not None:
        if frame.f_globals.get("__name__", "").startswith(modules):
            raise exceptions.WrongKeras(
                f"`{type(callee).__name__}` must be in a model of Keras 2"
                f"{unless}, got a call by Keras 3: "
                f"{_remedy(type(callee))}"
            )
        frame = frame.f_back


def _remedy(kind: type) -> str:
    """The remedy for a call of Keras 3 to an object of this class."""
    if kind.__module__.startswith("supcon_tf.losses."):
        return f"take supcon_tf.keras_3.{kind.__name__}, the same for Keras 3"
    return f"make the model with tf_keras, by `{_IMPORT}`"


def warn_of_policy() -> None:
    """Warns where a precision was set in Keras 3 alone: it has no effect."""
    keras_3 = sys.modules.get("keras") if PACKAGE != "keras" else None
    if keras_3 is None:
        return
    policy = keras.mixed_precision.global_policy().name
    other = keras_3.config.dtype_policy().name
    if other not in ("float32", policy):
        warnings.warn(
            f"the policy of Keras 3, {other}, has no effect here, where it is "
            f"{policy}: `{_IMPORT}` and its mixed_precision.set_global_policy, "
            "before the model is made, set that of Keras 2",
            stacklevel=3,
        )
