"""TensorFlow Addons (TFA), without the notice on its end of life."""

from __future__ import annotations

import importlib
import types
import warnings


def load(part: str) -> types.ModuleType:
    """A module of TFA, such as `image`; the first import takes seconds."""
    with warnings.catch_warnings():
        # requirements.txt pins the release.
        warnings.simplefilter("ignore", UserWarning)
        return importlib.import_module(f"tensorflow_addons.{part}")
