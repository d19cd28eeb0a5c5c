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

__version__ = "0.1.0"

_MODULES = (
    "augment clients config conversion data distribute doctor evaluation "
    "finetuning losses measures models reports serving settings sweeps text "
    "training"
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
    "finetune": "predictor",
    "load": "predictor",
    "Predictor": "predictor",
    "Prediction": "predictor",
}
__all__ = [*_MODULES, *_NAMES]


def _choose_keras_2() -> None:
    """Makes `tf.keras` Keras 2, by tf-keras where Keras 3 is installed.

    TensorFlow reads the variable when `tf.keras` is first used; whether that
    was before, `keras_2` checks for the rooms that use it.
    """
    try:
        if importlib.metadata.version("keras").startswith("2."):
            if importlib.util.find_spec("tf_keras") is None:
                # Importing transformers asks for the package that is not there.
                os.environ.pop("TF_USE_LEGACY_KERAS", None)
            return
    except importlib.metadata.PackageNotFoundError:
        return  # nor TensorFlow, as for a client or a report
    os.environ["TF_USE_LEGACY_KERAS"] = "1"
    if sys.modules.get("tensorflow") and importlib.util.find_spec("tf_keras"):
        # Where `from tensorflow.keras import` looks was settled without it.
        keras = importlib.import_module("tf_keras.api._v2.keras")
        sys.modules.setdefault("tensorflow.keras", keras)


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
