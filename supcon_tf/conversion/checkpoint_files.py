"""Files of checkpoints of other projects: from a path to arrays by name."""

from __future__ import annotations

import argparse
import os
import zipfile

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import trackable_object_graph_pb2

from supcon_tf import exceptions
from supcon_tf.disk import files

TORCH_FORMATS = "supcontrast", "torchvision"
_LEAST_TORCH = (2, 6)


def read(path: str, file_format: str) -> dict[str, np.ndarray]:
    """Returns the arrays of a checkpoint, by name.

    Args:
      path: its file, a prefix of TensorFlow's files, or a SavedModel.
      file_format: "google_supcon", "simclr_tf2", "supcontrast" or
        "torchvision".

    Raises:
      ImportError: torch is needed and not installed.
      ValueError: it cannot be read.
    """
    if file_format in TORCH_FORMATS:
        return _read_torch(path)
    return _read_tensorflow(path)


def data_set(path: str) -> str | None:
    """Returns the --dataset that a checkpoint of SupContrast keeps, or None."""
    name = getattr(_load_torch(path).get("opt"), "dataset", None)
    return name if isinstance(name, str) else None


def _load_torch(path: str) -> dict[str, object]:
    """Returns what is in a .pth file, read by torch's safe reader."""
    _check_archive(path)
    (torch,) = exceptions.import_extra("torch", "torch")
    # Before 2.6 a file could make its safe reader run code (CVE-2025-32434).
    exceptions.require(
        tuple(map(int, torch.__version__.split(".")[:2])) >= _LEAST_TORCH,
        "torch must be 2.6 or newer to read a file of others",
        torch.__version__,
    )
    try:
        # SupContrast saves its flags as a Namespace.
        with torch.serialization.safe_globals([argparse.Namespace]):
            content = torch.load(path, map_location="cpu", weights_only=True)
        exceptions.require(
            isinstance(content, dict), "it must be a dict", type(content)
        )
        return content
    except Exception as error:  # of pickle, zipfile and torch
        raise exceptions.InvalidValue(
            f"`checkpoint` must be a state dict of torch, got {path}: "
            f"{exceptions.one_line(error)}"
        ) from error


def _read_torch(path: str) -> dict[str, np.ndarray]:
    """Returns the state dict of a .pth file."""
    state = _load_torch(path)
    (torch,) = exceptions.import_extra("torch", "torch")
    try:
        for key in ("model", "state_dict"):
            state = state.get(key, state)
        others = [
            str(name)
            for name, value in state.items()
            if not isinstance(value, torch.Tensor)
        ]
        # float32 first: NumPy has no bfloat16.
        arrays = {
            name: value.detach().float().numpy()
            for name, value in state.items()
            if not others
        }
    except Exception as error:  # of pickle, zipfile and torch
        raise exceptions.InvalidValue(
            f"`checkpoint` must be a state dict of torch, got {path}: "
            f"{exceptions.one_line(error)}"
        ) from error
    exceptions.require(
        not others,
        "`checkpoint` must be a state dict of torch, or have one called model "
        "or state_dict",
        f"{path} with {exceptions.listed(others)}",
    )
    return arrays


def _check_archive(path: str) -> None:
    """Raises ValueError for an archive that is no state dict as torch saves it.

    A state dict is a zip of stored files. A program of TorchScript is a zip
    with code, and a compressed zip may ask for any amount of memory.
    """
    if not zipfile.is_zipfile(path):
        return  # of an older torch, or another file
    with zipfile.ZipFile(path) as archive:
        entries = archive.infolist()
    names = {entry.filename.partition("/")[2] for entry in entries}
    exceptions.require(
        "constants.pkl" not in names
        and not any(name.startswith("code/") for name in names),
        "`checkpoint` must be a state dict of torch",
        f"{path}: a program of TorchScript",
    )
    for entry in entries:
        exceptions.require(
            entry.compress_type == zipfile.ZIP_STORED,
            "`checkpoint` must be a state dict of torch, which is not "
            "compressed",
            f"{path} with {entry.file_size} bytes in {entry.compress_size}",
        )


def _read_tensorflow(path: str) -> dict[str, np.ndarray]:
    """Returns the variables of a checkpoint, by their names in the model."""
    prefix = path
    if tf.saved_model.contains_saved_model(path):
        prefix = f"{path}/variables/variables"
    folder, name = os.path.split(prefix)
    try:
        prefix = os.path.join(files.literal(folder), name)
        return _read_variables(tf.train.load_checkpoint(prefix))
    except (tf.errors.OpError, ValueError, RuntimeError) as error:
        raise exceptions.InvalidValue(
            "`checkpoint` must be a checkpoint of TensorFlow, got "
            f"{path}: {exceptions.one_line(error)}"
        ) from error


def _read_variables(reader: object) -> dict[str, np.ndarray]:
    """Returns all variables but the slots of an optimizer, by their names."""
    names = {name: name for name in reader.get_variable_to_shape_map()}
    graph = names.pop("_CHECKPOINTABLE_OBJECT_GRAPH", None)
    if graph:  # keys are paths of objects, whose graph knows the names
        proto = trackable_object_graph_pb2.TrackableObjectGraph()
        proto.ParseFromString(reader.get_tensor(graph))
        slots = {
            slot.slot_variable_node_id
            for node in proto.nodes
            for slot in node.slot_variables
        }
        names = {
            attribute.checkpoint_key: attribute.full_name
            for index, node in enumerate(proto.nodes)
            for attribute in node.attributes
            if index not in slots and attribute.full_name
        }
    return {
        name.removesuffix(":0"): reader.get_tensor(key)
        for key, name in names.items()
    }
