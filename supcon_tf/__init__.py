"""Supervised contrastive learning (Khosla et al. 2020) in TensorFlow 2.

Every public name is resolved on first use (PEP 562), so that importing
`supcon_tf.config` for a command line does not import TensorFlow.
"""

from __future__ import annotations

import importlib
import importlib.util
import os

__version__ = "0.1.0"

# Locks of files need it. Windows has no such module.
if importlib.util.find_spec("fcntl") is None:
    raise ImportError(
        "supcon_tf must run on Linux, or on Windows in WSL 2, for locks of "
        "files by `fcntl`: see docs/install.md"
    )

_ROOMS = (
    "augment clients config conversion data distribute evaluation finetuning "
    "gallery keras_2 losses measures models optimizers reports serving "
    "settings sweeps text training transfer"
).split()
_MODULES = {**{room: room for room in _ROOMS}, "doctor": "cli.doctor"}
_NAMES = {
    "SupConLoss": "losses",
    "supcon_loss": "losses",
    "Encoder": "models",
    "ProjectionHead": "models",
    "SupConModel": "models",
    "LinearClassifier": "models",
    "SimAugment": "augment",
    "load_encoder": "training",
    "finetune": "finetuning",
    "load": "finetuning",
    "Predictor": "finetuning",
    "Prediction": "finetuning",
}
__all__ = [*_MODULES, *_NAMES]
# Not in `__all__`: importing it is an error beside TensorFlow 2.15.
_KERAS_3 = "keras_3"
# TensorFlow reads this variable when it is imported. Without the variable, it
# uses oneDNN, which trains up to twice as fast, only on processors with
# instructions for neural networks.
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")


def __getattr__(name: str) -> object:
    """Imports a subpackage, or a public name from its subpackage."""
    if name in _MODULES or name == _KERAS_3:
        module = _MODULES.get(name, name)
        return importlib.import_module(f"{__name__}.{module}")
    if name in _NAMES:
        return getattr(
            importlib.import_module(f"{__name__}.{_NAMES[name]}"), name
        )
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
