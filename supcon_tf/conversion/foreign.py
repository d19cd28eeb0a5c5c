"""Checkpoints of other projects: how they name the weights of a ResNet.

Each of its `places` has a kernel, and the gamma, beta, mean and variance of its
batch norm, in this order.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import os
import re
import zipfile
from collections.abc import Iterator

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import trackable_object_graph_pb2

from supcon_tf import exceptions, files, models
from supcon_tf.conversion.places import STEM, TORCH_BN, Place

_BN = ("gamma", "beta", "moving_mean", "moving_variance")
_SHORTCUTS = {"supcontrast": "shortcut", "torchvision": "downsample"}
_LEAST_TORCH = (2, 6)
# What a training leaves beside the weights, by the formats' own names.
# Counters have no shape.
_STATES = re.compile(r".*/(Momentum\w*|LARS\w*|ExponentialMovingAverage)")
# From google-research/supcon and google-research/simclr/tf2.
_GOOGLE = re.compile(
    r"ContrastiveModel/Encoder/(?:BlockGroup(\d)/(\w+?Block)(?:_(\d+))?/)?"
    r"(?:Conv2DFixedPadding(?:_(\d+))?/conv2d|batch_normalization(?:_(\d+))?)"
    r"/(\w+)"
)
_SIMCLR = re.compile(
    r"resnet/(?:block_group(\d)/(\w+?block)(?:_(\d+))?/)?(?:.*/)?"
    r"(?:conv2d|(?:sync_)?batch_normalization)(?:_(\d+))?/(\w+)"
)


@dataclasses.dataclass
class Foreign:
    """The weights of a checkpoint, by what they are.

    Attributes:
      arrays: by their names in the file; kernels as TensorFlow has them.
      places: names of the five weights of each place.
      head: kernel and bias of the layers of a projection head; no bias is "".
      classifier: kernel and bias, or ().
      architecture: as `Encoder` names it.
      stem: "cifar" or "imagenet".
      width: multiplier of the channels.
    """

    arrays: dict[str, np.ndarray]
    places: dict[Place, list[str]]
    head: list[tuple[str, str]]
    classifier: tuple[str, ...]
    architecture: str = ""
    stem: str = ""
    width: float = 1.0

    def __post_init__(self):
        used = [name for names in self.places.values() for name in names]
        used += [x for pair in self.head for x in pair if x]
        used += self.classifier
        left = sorted(self.arrays.keys() - set(used))
        exceptions.require(
            not left,
            "`checkpoint` must hold nothing but a ResNet, its projection head "
            "and its classifier; `drop` leaves out what it names",
            f"{len(left)} more: {', '.join(left[:5])}",
        )
        blocks = {(g, b) for g, b, _ in self.places if g >= 0}
        counts = tuple(sum(g == group for g, _ in blocks) for group in range(4))
        deep = any(part == 2 for _, _, part in self.places)
        depths = [
            depth
            for depth, known in models.resnet.BLOCKS_PER_GROUP.items()
            if known == counts and (depth >= 50) == deep
        ]
        exceptions.require(
            bool(depths) and STEM in self.places,
            "`checkpoint` must be of a ResNet v1 of a known depth",
            f"{counts} blocks of {3 if deep else 2} convolutions",
        )
        self.architecture = f"resnet{depths[0]}"
        kernel = self.arrays[self.places[STEM][0]]
        self.stem = "imagenet" if kernel.shape[0] == 7 else "cifar"
        self.width = kernel.shape[-1] / 64


def read(path: str, form: str) -> dict[str, np.ndarray]:
    """The arrays of a checkpoint, by name.

    Args:
      path: its file, a prefix of TensorFlow's files, or a SavedModel.
      form: "google_supcon", "simclr_tf2", "supcontrast" or "torchvision".

    Raises:
      ImportError: torch is needed and not installed.
      ValueError: it cannot be read.
    """
    if form in _SHORTCUTS:
        return _torch_arrays(path)
    return _tensorflow_arrays(path)


def understand(
    arrays: dict[str, np.ndarray], form: str, drop: tuple[str, ...] = ()
) -> Foreign:
    """What the arrays of a checkpoint are, by the names of its format.

    `drop` has beginnings of names that are left out.

    Raises:
      ValueError: some are missing, or are none of such a model.
    """
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
    if form in _SHORTCUTS:
        return _of_torch(arrays, _SHORTCUTS[form])
    return (_of_google if form == "google_supcon" else _of_simclr)(arrays)


def _torch_arrays(path: str) -> dict[str, np.ndarray]:
    """The state dict of a .pth file, unpickled by torch's safe reader."""
    _check_archive(path)
    (torch,) = exceptions.import_extra("torch", "torch")
    # Before, its safe reader could be made to run code (CVE-2025-32434).
    exceptions.require(
        tuple(map(int, torch.__version__.split(".")[:2])) >= _LEAST_TORCH,
        "torch must be 2.6 or newer to read a file of others",
        torch.__version__,
    )
    try:
        # SupContrast keeps its flags as one.
        with torch.serialization.safe_globals([argparse.Namespace]):
            state = torch.load(path, map_location="cpu", weights_only=True)
        for key in ("model", "state_dict"):
            state = state.get(key, state)
        arrays = {name: value.numpy() for name, value in state.items()}
    except Exception as error:  # of pickle, zipfile and torch
        raise exceptions.InvalidValue(
            f"`checkpoint` must be a state dict of torch, got {path}: "
            f"{exceptions.one_line(error)}"
        ) from error
    return arrays


def _check_archive(path: str) -> None:
    """Raises ValueError for an archive that is no state dict as torch saves it.

    That is a zip of stored files; a program of TorchScript is one with code,
    and a compressed one may ask for any amount of memory.
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


def _of_torch(arrays: dict[str, np.ndarray], shortcut: str) -> Foreign:
    """SupContrast's names, or torchvision's; kernels with torch's axes."""
    arrays = {
        name.removeprefix("module."): array.transpose(2, 3, 1, 0)
        if array.ndim == 4
        else array.T
        for name, array in arrays.items()
    }
    prefix = "encoder." if "encoder.conv1.weight" in arrays else ""
    places = {}
    for name in arrays:
        found = re.fullmatch(
            re.escape(prefix) + r"(?:layer(\d)\.(\d+)\.)?"
            rf"(?:conv(\d)|{shortcut}\.0)\.weight",
            name,
        )
        if not found:
            continue
        group, block, conv = found.groups()
        start = name.removesuffix(".weight")
        norm = re.sub(r"conv(\d)$", r"bn\1", start)
        if conv is None:
            norm = start.removesuffix("0") + "1"
        place = STEM
        if group is not None:
            part = -1 if conv is None else int(conv) - 1
            place = int(group) - 1, int(block), part
        places[place] = [name, *(f"{norm}.{x}" for x in TORCH_BN)]
    names = [x for x in arrays if re.fullmatch(r"head\.(\d\.)?weight", x)]
    head = [(x, x.removesuffix("weight") + "bias") for x in names]
    classifier = ("fc.weight", "fc.bias") if "fc.weight" in arrays else ()
    return _checked(arrays, places, head, classifier)


def _tensorflow_arrays(path: str) -> dict[str, np.ndarray]:
    """The variables of a checkpoint, by their names in the model."""
    prefix = path
    if tf.saved_model.contains_saved_model(path):
        prefix = f"{path}/variables/variables"
    folder, name = os.path.split(prefix)
    try:
        prefix = os.path.join(files.literal(folder), name)
        return _variables(tf.train.load_checkpoint(prefix))
    except (tf.errors.OpError, ValueError, RuntimeError) as error:
        raise exceptions.InvalidValue(
            "`checkpoint` must be a checkpoint of TensorFlow, got "
            f"{path}: {exceptions.one_line(error)}"
        ) from error


def _variables(reader: object) -> dict[str, np.ndarray]:
    """All variables that are no slots of an optimizer, by their names."""
    names = {name: name for name in reader.get_variable_to_shape_map()}
    graph = names.pop("_CHECKPOINTABLE_OBJECT_GRAPH", None)
    if graph:  # by objects: it knows the names
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


def _of_google(arrays: dict[str, np.ndarray]) -> Foreign:
    """The names of the paper's code: counters begin anew in each block."""
    found = {name: _GOOGLE.fullmatch(name) for name in arrays}
    parsed = {
        name: (int(x[1] or -1), int(x[3] or 0), int(x[4] or x[5] or 0), x[6])
        for name, x in found.items()
        if x
    }
    kinds = {x[2] for x in found.values() if x and x[2]}
    head = [
        f"ContrastiveModel/ProjectionHead/dense{end}/"
        for end in ("", *(f"_{number}" for number in range(1, 9)))
    ]
    last = "ContrastiveModel/ClassificationHead/dense/"
    return _in_order(arrays, parsed, kinds, head, last)


def _of_simclr(arrays: dict[str, np.ndarray]) -> Foreign:
    """The names of SimCLR's tf2 model: counters run over the whole model."""
    sk = [name for name in arrays if "sk_conv2d" in name]
    exceptions.require(
        not sk,
        "`checkpoint` must be of a ResNet without selective kernels, whose "
        "stem is another",
        sk[:1],
    )
    # Its last layer has a batch norm, which no head here has.
    arrays = {
        name: array
        for name, array in arrays.items()
        if not name.startswith("projection_head/")
    }
    found = {name: _SIMCLR.fullmatch(name) for name in arrays}
    parsed = {
        name: (int(x[1] or 0) - 1, int(x[3] or 0), int(x[4] or 0), x[5])
        for name, x in found.items()
        if x
    }
    kinds = {x[2] for x in found.values() if x and x[2]}
    ends = [x for x in arrays if re.match(r"head_supervised/.*/kernel", x)]
    last = ends[0].removesuffix("kernel") if ends else "none"
    return _in_order(arrays, parsed, kinds, [], last)


def _in_order(
    arrays: dict[str, np.ndarray],
    parsed: dict[str, tuple[int, int, int, str]],
    kinds: set[str],
    head: list[str],
    last: str,
) -> Foreign:
    """By the order in which TensorFlow made the variables.

    Args:
      arrays: all weights.
      parsed: of those of the encoder, numbers that rise with the group, the
        block and the layer, and what the variable is.
      kinds: names of the classes of blocks.
      head: beginnings of the names of the layers of a head, if they are there.
      last: that of the classifier.
    """
    exceptions.require(
        all("ottleneck" in kind for kind in kinds) and bool(kinds),
        "`checkpoint` must be of bottlenecks, ResNet-50 and deeper: the first "
        "shortcut of others has a convolution, which none here has",
        ", ".join(kinds) or "no block",
    )
    by_kind = collections.defaultdict(list)
    for name, (*order, kind) in parsed.items():
        by_kind[kind].append((order, name))
    columns = [
        [name for _, name in sorted(by_kind[x])] for x in ("kernel", *_BN)
    ]
    blocks = sorted({(g, b) for g, b, _, _ in parsed.values() if g >= 0})
    places = list(_places(blocks))
    exceptions.require(
        {len(places)} == set(map(len, columns)),
        "`checkpoint` must have a convolution and a batch norm for each of the "
        f"{len(places)} places of its blocks",
        [len(column) for column in columns],
    )
    rows = map(list, zip(*columns, strict=True))
    pairs = [(f"{x}kernel", f"{x}bias") for x in head if f"{x}kernel" in arrays]
    has_last = f"{last}kernel" in arrays
    classifier = (f"{last}kernel", f"{last}bias") if has_last else ()
    return _checked(
        arrays, dict(zip(places, rows, strict=True)), pairs, classifier
    )


def _places(blocks: list[tuple[int, int]]) -> Iterator[Place]:
    """Of bottlenecks, the shortcut first."""
    yield STEM
    counts = collections.Counter(group for group, _ in blocks)
    for group in sorted(counts):
        for block in range(counts[group]):
            for part in range(0 if block else -1, 3):
                yield group, block, part


def _checked(
    arrays: dict[str, np.ndarray],
    places: dict[Place, list[str]],
    head: list[tuple[str, str]],
    classifier: tuple[str, ...],
) -> Foreign:
    """The weights, if all that they need is there."""
    wanted = [x for names in places.values() for x in names] + [*classifier]
    wanted += [kernel for kernel, _ in head]
    wanted += [bias for _, bias in head[:-1]]  # of hidden layers
    missing = [x for x in wanted if x not in arrays]
    exceptions.require(
        not missing,
        "`checkpoint` must have all weights of its layers",
        f"none called {', '.join(missing[:5])}",
    )
    head = [(k, bias if bias in arrays else "") for k, bias in head]
    return Foreign(arrays, places, head, classifier)
