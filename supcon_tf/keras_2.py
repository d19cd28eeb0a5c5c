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
import types
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


def is_keras_3(thing: object) -> bool:
    """Whether an object is of Keras 3: its class, or one that this has inside.

    KerasHub's are, and a user's own. Keras 3 need not have been imported.
    """
    kinds = type(thing).__mro__
    return PACKAGE != "keras" and any(
        str(kind.__module__).partition(".")[0] == "keras" for kind in kinds
    )
