"""Checkpoints of other projects: how they name the weights of a ResNet.

At each `Position` a ResNet has five weights: the kernel of a convolution, and
the gamma, beta, mean and variance of its batch norm, in this order.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import itertools
import os
import re
import zipfile

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import trackable_object_graph_pb2

from supcon_tf import exceptions, models
from supcon_tf.conversion.convolutions import STEM, Position, torch_names
from supcon_tf.disk import files

_BN = ("gamma", "beta", "moving_mean", "moving_variance")
_SHORTCUTS = {"supcontrast": "shortcut", "torchvision": "downsample"}
_LEAST_TORCH = (2, 6)
_MOST_BLOCKS = 64  # of a group that are looked for
# Parts of names by torch.nn.DataParallel and torch.compile, which SupContrast
# puts around the encoder alone, others around the whole model.
_WRAPPERS = re.compile(r"(?:(?<=\.)|^)(?:(?:module|_orig_mod)\.)+")
# State of the optimizer beside the weights, by the formats' own names. Counters
# have no shape.
_STATES = re.compile(r".*/(Momentum\w*|LARS\w*|ExponentialMovingAverage)")
# Variables of google-research/supcon and of google-research/simclr/tf2. The
# numbers of group, block and layer rise in the order of creation.
_GOOGLE = re.compile(
    r"ContrastiveModel/Encoder/"
    r"(?:BlockGroup(?P<group>\d)/(?P<kind>\w+?Block)(?:_(?P<block>\d+))?/)?"
    r"(?:Conv2DFixedPadding|batch_normalization)(?:_(?P<layer>\d+))?"
    r"(?:/conv2d)?/(?P<weight>\w+)"
)
_SIMCLR = re.compile(
    r"resnet/"
    r"(?:block_group(?P<group>\d)/(?P<kind>\w+?block)(?:_(?P<block>\d+))?/)?"
    r"(?:.*/)?(?:conv2d|(?:sync_)?batch_normalization)(?:_(?P<layer>\d+))?"
    r"/(?P<weight>\w+)"
)


@dataclasses.dataclass
class ForeignWeights:
    """The weights of a checkpoint, and the layers that they belong to.

    Attributes:
      arrays: weights by their names in the file; kernels have TensorFlow's
        order of axes.
      layer_names: names of the five weights at each position.
      head: kernel and bias of the layers of a projection head; no bias is "".
      classifier: kernel and bias, or ().
      architecture: as `Encoder` names it.
      stem: "cifar" or "imagenet".
      width: multiplier of the channels.
    """

    arrays: dict[str, np.ndarray]
    layer_names: dict[Position, list[str]]
    head: list[tuple[str, str]]
    classifier: tuple[str, ...]
    architecture: str = dataclasses.field(init=False)
    stem: str = dataclasses.field(init=False)
    width: float = dataclasses.field(init=False)

    def __post_init__(self):
        required = [
            name for names in self.layer_names.values() for name in names
        ]
        required += [name for names in self.head for name in names if name]
        required += self.classifier
        missing = [name for name in required if name not in self.arrays]
        exceptions.require(
            not missing,
            "`checkpoint` must have all weights of its layers",
            f"none called {', '.join(missing[:5])}",
        )
        unused = sorted(self.arrays.keys() - set(required))
        exceptions.require(
            not unused,
            "`checkpoint` must hold nothing but a ResNet, its projection head "
            "and its classifier; `drop` leaves out what it names",
            f"{len(unused)} more: {', '.join(unused[:5])}",
        )
        blocks = {
            (group, block) for group, block, _ in self.layer_names if group >= 0
        }
        groups = [group for group, _ in blocks]
        counts = tuple(map(groups.count, range(4)))  # blocks of each group
        bottleneck = any(part == 2 for _, _, part in self.layer_names)
        depths = [
            depth
            for depth, group_sizes in models.resnet.BLOCKS_PER_GROUP.items()
            if group_sizes == counts and (depth >= 50) == bottleneck
        ]
        exceptions.require(
            bool(depths) and STEM in self.layer_names,
            "`checkpoint` must be of a ResNet v1 of a known depth",
            f"{counts} blocks of {3 if bottleneck else 2} convolutions",
        )
        self.architecture = f"resnet{depths[0]}"
        kernel = self.arrays[self.layer_names[STEM][0]]
        self.stem = "imagenet" if kernel.shape[0] == 7 else "cifar"
        self.width = kernel.shape[-1] / 64


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
    if file_format in _SHORTCUTS:
        return _read_torch(path)
    return _read_tensorflow(path)


def identify(
    arrays: dict[str, np.ndarray], file_format: str, drop: tuple[str, ...] = ()
) -> ForeignWeights:
    """Returns the layers of a checkpoint, by the names of its format.

    Arrays whose names begin with one of `drop` are left out. Names of torch are
    without what `DataParallel` and `compile` add.

    Raises:
      ValueError: arrays are missing, or belong to no such model.
    """
    if file_format in _SHORTCUTS:
        arrays = {_unwrapped(name): array for name, array in arrays.items()}
        drop = tuple(map(_unwrapped, drop))
    for prefix in drop:
        exceptions.require(
            any(name.startswith(prefix) for name in arrays),
            "`drop` must begin a name of the checkpoint",
            prefix,
        )
    arrays = {
        name: array
        for name, array in arrays.items()
        if array.ndim
        and not name.startswith(drop)
        and not _STATES.fullmatch(name)
    }
    if file_format in _SHORTCUTS:
        return _parse_torch(arrays, _SHORTCUTS[file_format])
    if file_format == "google_supcon":
        return _parse_google(arrays)
    return _parse_simclr(arrays)


def _unwrapped(name: str) -> str:
    """A name of torch without its wrappers."""
    return _WRAPPERS.sub("", name)


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


def _parse_torch(
    arrays: dict[str, np.ndarray], shortcut: str
) -> ForeignWeights:
    """Parses names of SupContrast or torchvision; kernels have torch's axes."""
    arrays = {
        name: array.transpose(2, 3, 1, 0)
        if array.ndim == 4  # [out, in, H, W] to [H, W, in, out]
        else array.T
        for name, array in arrays.items()
    }
    prefix = "encoder." if "encoder.conv1.weight" in arrays else ""
    positions = itertools.product(range(4), range(_MOST_BLOCKS), range(-1, 3))
    layer_names = {
        position: names
        for position in (STEM, *positions)
        if (names := torch_names(position, shortcut, prefix))[0] in arrays
    }
    head = [
        (name, name.removesuffix("weight") + "bias")
        for name in arrays
        if re.fullmatch(r"head\.(\d\.)?weight", name)
    ]
    classifier = ("fc.weight", "fc.bias") if "fc.weight" in arrays else ()
    return ForeignWeights(
        arrays, layer_names, _with_biases(arrays, head), classifier
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


def _parse_google(arrays: dict[str, np.ndarray]) -> ForeignWeights:
    """Parses names of the paper's code, whose counters restart per block."""
    head = [
        f"ContrastiveModel/ProjectionHead/dense{suffix}/"
        for suffix in ("", *(f"_{number}" for number in range(1, 9)))
    ]
    classifier = "ContrastiveModel/ClassificationHead/dense/"
    return _parse_tensorflow(arrays, _GOOGLE, head, classifier)


def _parse_simclr(arrays: dict[str, np.ndarray]) -> ForeignWeights:
    """Parses names of SimCLR's tf2 model, whose counters never restart."""
    selective = [name for name in arrays if "sk_conv2d" in name]
    exceptions.require(
        not selective,
        "`checkpoint` must be of a ResNet without selective kernels, whose "
        "stem is another",
        selective[:1],
    )
    # The last layer of SimCLR's head has a batch norm, which no head here has.
    arrays = {
        name: array
        for name, array in arrays.items()
        if not name.startswith("projection_head/")
    }
    kernels = [
        name for name in arrays if re.match(r"head_supervised/.*/kernel", name)
    ]
    classifier = kernels[0].removesuffix("kernel") if kernels else "none"
    return _parse_tensorflow(arrays, _SIMCLR, [], classifier)


def _parse_tensorflow(
    arrays: dict[str, np.ndarray],
    pattern: re.Pattern,
    head: list[str],
    classifier: str,
) -> ForeignWeights:
    """Matches variables to positions by the order of their creation.

    Args:
      arrays: all weights.
      pattern: of the names of the encoder's variables.
      head: prefixes of the names of a head's layers, which may be absent.
      classifier: prefix of the names of the classifier, which may be absent.
    """
    names = collections.defaultdict(list)  # with their order, by weight
    block_classes, blocks = set(), set()
    for match in filter(None, map(pattern.fullmatch, arrays)):
        block = int(match["group"] or -1), int(match["block"] or 0)
        order = *block, int(match["layer"] or 0)
        names[match["weight"]].append((order, match[0]))
        if match["kind"]:
            block_classes.add(match["kind"])
            blocks.add(block)
    exceptions.require(
        all("ottleneck" in name for name in block_classes)
        and bool(block_classes),
        "`checkpoint` must be of bottlenecks, ResNet-50 and deeper: the first "
        "shortcut of others has a convolution, which none here has",
        ", ".join(block_classes) or "no block",
    )
    columns = [
        [name for _, name in sorted(names[weight])]
        for weight in ("kernel", *_BN)
    ]
    counts = collections.Counter(group for group, _ in blocks)
    positions = [STEM] + [
        (group, block, part)
        for group, number in enumerate(sorted(counts))
        for block in range(counts[number])
        for part in range(0 if block else -1, 3)  # the shortcut first
    ]
    exceptions.require(
        {len(positions)} == set(map(len, columns)),
        "`checkpoint` must have a convolution and a batch norm for each of the "
        f"{len(positions)} positions of its blocks",
        [len(column) for column in columns],
    )
    rows = map(list, zip(*columns, strict=True))
    layers = {  # the kernel and the bias of a dense layer, by its prefix
        prefix: (f"{prefix}kernel", f"{prefix}bias")
        for prefix in (*head, classifier)
        if f"{prefix}kernel" in arrays
    }
    classifier_names = layers.pop(classifier, ())
    return ForeignWeights(
        arrays,
        dict(zip(positions, rows, strict=True)),
        _with_biases(arrays, [*layers.values()]),
        classifier_names,
    )


def _with_biases(
    arrays: dict[str, np.ndarray], head: list[tuple[str, str]]
) -> list[tuple[str, str]]:
    """The layers of a head, whose last layer may have no bias: ""."""
    return head[:-1] + [
        (kernel, bias if bias in arrays else "") for kernel, bias in head[-1:]
    ]
