"""`tf.keras` is Keras 2, or importing this raises: what uses Keras begins here.

Raises:
  ImportError: there is no tf-keras, or `tf.keras` has been used as Keras 3.
"""

from __future__ import annotations

import sys

import tensorflow as tf

from supcon_tf import exceptions


def _package() -> str:
    """The package that `tf.keras` is: keras or tf_keras."""
    try:
        return tf.keras.Model.__module__.partition(".")[0]
    except ImportError as error:
        raise exceptions.MissingPackage(
            "supcon_tf needs Keras 2 beside this TensorFlow: pip install "
            "tf-keras of the same release"
        ) from error


PACKAGE = _package()
if PACKAGE == "keras" and hasattr(sys.modules["keras"], "_tf_keras"):
    raise exceptions.MissingPackage(
        "supcon_tf needs Keras 2, but `tf.keras` has been used as Keras 3: "
        "put `import supcon_tf` before that, or this line before all others: "
        'import os; os.environ["TF_USE_LEGACY_KERAS"] = "1"'
    )
