"""TensorFlow, PyTorch and peers' files, as a measurement's process loads them.

Each is imported by the implementation that needs it, so that the process of
one library holds neither threads nor memory of the other. Peers are loaded
from where the user has them; none is copied here.
"""

from __future__ import annotations

import importlib.util
import pathlib
import sys
import types


def import_tensorflow(threads: int) -> types.ModuleType:
    """TensorFlow with this many threads; before its first operation."""
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(threads)
    return tf


def import_torch(threads: int) -> types.ModuleType:
    """PyTorch with this many threads."""
    import torch

    torch.set_num_threads(threads)
    return torch


def load_file(path: str | pathlib.Path) -> types.ModuleType:
    """The module in a Python file that is not installed."""
    file = pathlib.Path(path).resolve()
    # A file of a package imports its siblings by the package's name. Appended:
    # what is installed must not be hidden by what lies beside the file.
    sys.path.append(str(file.parent.parent))
    spec = importlib.util.spec_from_file_location(f"peer_{file.stem}", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def versions(*names: str) -> dict[str, str]:
    """Those of the named libraries that this process has imported."""
    return {
        name: sys.modules[name].__version__
        for name in names
        if name in sys.modules
    }
