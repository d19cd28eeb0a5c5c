"""The layers of a ResNet in checkpoints of other projects, by their names.

At each `Position` a ResNet has five weights: the kernel of a convolution, and
the gamma, beta, mean and variance of its batch norm, in this order.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
import re

import numpy as np

from supcon_tf import exceptions, models
from supcon_tf.conversion.convolutions import STEM, Position, torch_names

_BN = ("gamma", "beta", "moving_mean", "moving_variance")
_SHORTCUTS = {"supcontrast": "shortcut", "torchvision": "downsample"}
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
