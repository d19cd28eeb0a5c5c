"""Supervised contrastive learning (Khosla et al. 2020) in TensorFlow 2.

Every public name is resolved on first use (PEP 562), so that importing
`supcon_tf.config` for a command line does not import TensorFlow.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import os
import sys

from supcon_tf import exceptions

__version__ = "0.1.0"

_MODULES = (
    "augment clients config conversion data distribute doctor evaluation "
    "losses measures models reports serving settings sweeps training"
).split()
_NAMES = {
    "SupConLoss": "losses",
    "supcon_loss": "losses",
    "Encoder": "models",
    "ProjectionHead": "models",
    "SupConModel": "models",
    "LinearClassifier": "models",
    "SimAugment": "augment",
    "load_encoder": "training",
}
__all__ = [*_MODULES, *_NAMES]


def _choose_keras_2() -> None:
    """Makes `tf.keras` Keras 2, by tf-keras where Keras 3 is installed.

    TensorFlow reads the variable when `tf.keras` is first used.

    Raises:
      ImportError: `tf.keras` was used as Keras 3, or there is no tf-keras.
    """
    try:
        if importlib.metadata.version("keras").startswith("2."):
            return
    except importlib.metadata.PackageNotFoundError:
        return  # nor TensorFlow, as for a client or a report
    if not importlib.util.find_spec("tf_keras"):
        raise exceptions.MissingPackage(
            "supcon_tf needs Keras 2 beside this TensorFlow: pip install "
            "tf-keras of the same release"
        )
    os.environ["TF_USE_LEGACY_KERAS"] = "1"
    tensorflow = sys.modules.get("tensorflow")
    if tensorflow is None:
        return
    if not tensorflow.keras.Model.__module__.startswith("tf_keras."):
        raise exceptions.MissingPackage(
            "supcon_tf needs Keras 2, but `tf.keras` has been used as Keras 3: "
            "put `import supcon_tf` before that, or this line before all "
            'others: import os; os.environ["TF_USE_LEGACY_KERAS"] = "1"'
        )
    # Where `from tensorflow.keras import` looks: settled without the variable.
    keras = importlib.import_module("tf_keras.api._v2.keras")
    sys.modules["tensorflow.keras"] = keras


_choose_keras_2()


def __getattr__(name: str) -> object:
    """Imports a subpackage, or a public name from its subpackage."""
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    if name in _NAMES:
        return getattr(
            importlib.import_module(f"{__name__}.{_NAMES[name]}"), name
        )
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
