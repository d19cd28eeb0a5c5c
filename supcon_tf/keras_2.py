"""Keras 2 by its own name: `from supcon_tf.keras_2 import keras`.

From TensorFlow 2.16 on `tf.keras` is Keras 3, and Keras 2 is tf_keras: `keras`
here is that, and the `tf.keras` of everybody else stays what it was. Where
Keras 2 alone is installed, as beside TensorFlow 2.15, it is `tf.keras` itself.

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
    """Another value, or None, of what TensorFlow and others choose Keras by.

    For what reads it, or sets it, once: when it is imported.
    """
    before = os.environ.pop(_VARIABLE, None)
    if value is not None:
        os.environ[_VARIABLE] = value
    try:
        yield
    finally:
        os.environ.pop(_VARIABLE, None)
        if before is not None:
            os.environ[_VARIABLE] = before


def _find() -> types.ModuleType:
    if importlib.metadata.version("keras").startswith("2."):
        # Whoever sets it, as transformers does, asks for tf_keras, which is
        # not there; `tf.keras` reads it at its first use alone.
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
_HOW = "from supcon_tf.keras_2 import keras"


def is_keras_3(thing: object) -> bool:
    """Whether an object is of Keras 3: its class, or one that this has inside.

    KerasHub's are, and a user's own. Keras 3 need not have been imported.
    """
    kinds = type(thing).__mro__
    return PACKAGE != "keras" and any(
        str(kind.__module__).partition(".")[0] == "keras" for kind in kinds
    )


def refuse_keras_3(**given: object) -> None:
    """Raises TypeError for an argument of Keras 3, or a structure with one.

    Keras 2 would fail with it later, where nothing tells why, or take it for
    a function and leave out the weights of samples.
    """
    for name, value in given.items():
        for thing in _each(value):
            if is_keras_3(thing):
                remedy = f"make it with `{_HOW}`"
                if hasattr(thing, "save_weights"):
                    remedy += (
                        "; the same network there loads what this one saves by "
                        'save_weights("its.weights.h5")'
                    )
                kind = type(thing).__name__
                raise exceptions.WrongKeras(
                    f"`{name}` must be of Keras 2, got {kind} of Keras 3: "
                    f"{remedy}"
                )


def _each(value: object) -> Iterator[object]:
    """What lists and dicts hold, whatever their keys are."""
    if isinstance(value, dict):
        value = [*value.values()]
    if not isinstance(value, list | tuple):
        yield value
        return
    for part in value:
        yield from _each(part)


def refuse_caller(callee: object, *modules: str, unless: str = "") -> None:
    """Raises TypeError if Keras 3 calls an object of ours, at any distance.

    Args:
      callee: what is called.
      modules: names of modules of Keras 3, or how they start.
      unless: with what Keras 3 may call it.
    """
    frame = sys._getframe(1) if PACKAGE != "keras" else None
    while frame is not None:
        if frame.f_globals.get("__name__", "").startswith(modules):
            raise exceptions.WrongKeras(
                f"`{type(callee).__name__}` must be in a model of Keras 2"
                f"{unless}, got a call by Keras 3: {_in_keras_3()}"
            )
        frame = frame.f_back


def _in_keras_3() -> str:
    """What to do with a model of Keras 3."""
    return f"make the model with tf_keras, by `{_HOW}`"


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
            f"{policy}: `{_HOW}` and its mixed_precision.set_global_policy, "
            "before the model is made, set that of Keras 2",
            stacklevel=3,
        )
