"""Keras 3 on TensorFlow: `from supcon_tf.keras_3.installed import keras`.

Raises:
  ImportError: Keras 2 alone is installed.
  ValueError: Keras 3 computes with another package than TensorFlow.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import types

from supcon_tf import exceptions


def _import_keras_3() -> types.ModuleType:
    """Returns the module `keras`, or raises what the module's head states."""
    version = importlib.metadata.version("keras")
    if version.startswith("2."):
        raise exceptions.MissingPackage(
            "supcon_tf.keras_3 needs Keras 3, which the newest platform has: "
            "Python 3.12 or 3.13 with requirements-newest.txt; here is Keras "
            f"{version}"
        )
    from supcon_tf.models import of_keras_3

    of_keras_3.check_library()
    return importlib.import_module("keras")


keras = _import_keras_3()
