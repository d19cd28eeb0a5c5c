"""The operations that policies draw, by name, level and batch.

A policy draws for each image the name of an operation; here names and levels
become arguments, and operations are applied to a batch.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from supcon_tf import exceptions
from supcon_tf.augment import affine, color, dispatch, tones

MAX_LEVEL = 10.0
Step = tuple[str, float]


@dataclasses.dataclass(frozen=True)
class Ranges:
    """The meaning of the levels 0 to 10 where the published policies differ.

    Attributes:
      posterize: bits kept at level 0 and at level 10.
      translate: shift at level 10, as a share of the shorter side.
      cutout: half the side of the square at level 10, as a share likewise.
    """

    posterize: tuple[int, int]
    translate: float
    cutout: float


def argument(name: str, level: float, side: int, ranges: Ranges) -> float:
    """Translates a level into the argument of an operation.

    Rotate: level * 3 degrees. Shears: level * 0.03. Translations and Cutout:
    pixels. Posterize: bits kept, at least 1; the released code keeps the
    highest bit where 0 bits should make pixels black. Solarize: the threshold
    level * 25.6, at level 10 above all pixels. SolarizeAdd: level * 11 levels
    of brightness. Color, Contrast, Brightness, Sharpness: the factor
    0.1 + level * 0.18, which changes nothing at level 5. The other operations
    have no argument. Counts are truncated; signs are drawn later.

    Args:
      name: one of `NAMES`.
      level: 0 to 10; 0 is no change for geometric operations alone.
      side: the shorter side of the images, pixels.
      ranges: of the policy.
    """
    exceptions.require_one_of(NAMES, "name", name)
    exceptions.require(
        0.0 <= level <= MAX_LEVEL, "`level` must be in [0, 10]", level
    )
    return OPERATIONS[name].argument(level / MAX_LEVEL, side, ranges)


def apply(
    images: tf.Tensor,
    steps: Sequence[Step],
    choices: tf.Tensor,
    draws: tf.Tensor,
    ranges: Ranges,
    fill: affine.Color = affine.GRAY,
) -> tf.Tensor:
    """Applies to each image the operation that it drew, bit by bit as PIL.

    Operations of one kind run together: one transform serves all rotations,
    shears and translations of the batch.

    Args:
      images: [batch, height, width, 3] uint8.
      steps: pairs of a name from `NAMES` and a level, 0 to 10; see `argument`.
        Only the kinds of these operations take time.
      choices: [batch] int32, indices of `steps`.
      draws: [batch, 3] float32, uniform in [0, 1): below 0.5 an argument that
        has a sign is negative; row and column of the centre of Cutout, as
        shares of height and width.
      ranges: of the policy.
      fill: colour of pixels from outside the image, and of Cutout.
    """
    images = dispatch.check_colors(images)
    side = min(images.shape[1:3])
    names = [name for name, _ in steps]
    arguments = [argument(*step, side, ranges) for step in steps]
    operations = [OPERATIONS[name] for name in names]
    kinds = list(dict.fromkeys(operation.kind for operation in operations))
    kind_indices = [kinds.index(operation.kind) for operation in operations]
    name_indices = [NAMES.index(name) for name in names]
    flips = [-2.0 if name in SIGNED else 0.0 for name in names]
    signs = 1.0 + tf.gather(flips, choices) * tf.cast(
        draws[:, 0] < 0.5, tf.float32
    )
    return dispatch.dispatch(
        tf.gather(kind_indices, choices),
        [functools.partial(kind, fill=fill) for kind in kinds],
        images,
        tf.gather(name_indices, choices),
        tf.gather(tf.constant(arguments, tf.float32), choices) * signs,
        draws[:, 1:],
    )


# A kind of operation takes the images that drew it, their indices in NAMES,
# arguments and centres, and the colour.
_Kind = Callable[..., tf.Tensor]


def _without_argument(operation: _Kind) -> _Kind:
    """A kind of operation without an argument."""
    return lambda images, *_, fill: operation(images)


def _with_argument(operation: _Kind) -> _Kind:
    """A kind of operation with an argument."""
    return lambda images, _, arguments, *__, fill: operation(images, arguments)


def _transform(
    images: tf.Tensor,
    numbers: tf.Tensor,
    arguments: tf.Tensor,
    _: tf.Tensor,
    fill: affine.Color,
) -> tf.Tensor:
    """Rotations, shears and translations in one transform."""
    height, width = images.shape[1:3]
    entries = np.zeros([len(NAMES), 6])
    for number, operation in enumerate(OPERATIONS.values()):
        if operation.entry is not None:
            entries[number, operation.entry] = 1.0
    is_rotation = tf.cast(numbers == NAMES.index("Rotate"), tf.float32)
    matrices = affine.rotation_matrices(arguments * is_rotation, height, width)
    moves = tf.cast(arguments, tf.float64)[:, tf.newaxis]
    matrices += moves * tf.gather(tf.constant(entries), numbers)
    return affine.affine_transform(images, matrices, fill)


def _cut_out(
    images: tf.Tensor,
    _: tf.Tensor,
    arguments: tf.Tensor,
    centers: tf.Tensor,
    fill: affine.Color,
) -> tf.Tensor:
    """Cutout, whose centres are in shares of the sides."""
    sides = tf.constant([*images.shape[1:3]], tf.float32)
    centers = tf.cast(centers * sides, tf.int32)
    return affine.cutout(images, centers, tf.cast(arguments, tf.int32), fill)


@dataclasses.dataclass(frozen=True)
class Operation:
    """An operation of policies.

    Attributes:
      kind: applies it to a batch; operations of one kind run together.
      argument: takes a level as a share of the largest, the shorter side of
        the images and `Ranges`.
      caption: format of the argument; "" where there is none.
      is_signed: whether half of the arguments become negative.
      entry: index of the argument in the matrix (a, b, c, d, e, f) of a
        transform.
    """

    kind: _Kind
    argument: Callable[[float, int, Ranges], float] = lambda *_: 0.0
    caption: str = ""
    is_signed: bool = False
    entry: int | None = None


def _bits(share: float, _: int, ranges: Ranges) -> int:
    low, high = ranges.posterize
    return max(1, low + int(share * (high - low)))


_solarize = _with_argument(tones.solarize)
_factor = lambda share, *_: 0.1 + share * 1.8, "× {:.2f}"
_shear = lambda share, *_: share * 0.3, "{:.2f}", True
_shift = (
    lambda share, side, ranges: share * ranges.translate * side,
    "{:.1f} px",
    True,
)
OPERATIONS = {
    "Identity": Operation(_without_argument(dispatch.keep)),
    "AutoContrast": Operation(_without_argument(tones.auto_contrast)),
    "Equalize": Operation(_without_argument(tones.equalize)),
    "Invert": Operation(_solarize),  # 0 is the threshold that inverts all
    "Posterize": Operation(
        _with_argument(tones.posterize), _bits, "{:.0f}-bit"
    ),
    "Solarize": Operation(
        _solarize, lambda share, *_: int(share * 256), "≥ {:.0f}"
    ),
    "SolarizeAdd": Operation(
        _with_argument(tones.solarize_add),
        lambda share, *_: int(share * 110),
        "+{:.0f}",
    ),
    "Color": Operation(_with_argument(color.adjust_saturation), *_factor),
    "Contrast": Operation(_with_argument(color.adjust_contrast), *_factor),
    "Brightness": Operation(_with_argument(color.adjust_brightness), *_factor),
    "Sharpness": Operation(_with_argument(color.adjust_sharpness), *_factor),
    "Rotate": Operation(
        _transform, lambda share, *_: share * 30.0, "{:.0f}°", True
    ),
    "ShearX": Operation(_transform, *_shear, entry=1),
    "ShearY": Operation(_transform, *_shear, entry=3),
    "TranslateX": Operation(_transform, *_shift, entry=2),
    "TranslateY": Operation(_transform, *_shift, entry=5),
    "Cutout": Operation(
        _cut_out,
        lambda share, side, ranges: int(share * ranges.cutout * side),
        "± {:.0f} px",
    ),
}
NAMES = tuple(OPERATIONS)
SIGNED = tuple(name for name in NAMES if OPERATIONS[name].is_signed)
