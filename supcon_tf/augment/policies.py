"""Policies: `policy(images, seeds)` -> images, stateless for each image.

A policy does not crop or flip: the data pipeline has done so before.
"""

from __future__ import annotations

import dataclasses
import functools

import tensorflow as tf

from supcon_tf import exceptions
from supcon_tf.augment import (
    affine,
    color,
    dispatch,
    operations,
    randomness,
    tables,
    warp,
)

# Draws of an operation: whether it is applied, and those of `operations.apply`.
_DRAWS = 4
_BLUR_SIGMA = (0.1, 2.0)  # pixels, SimCLR, Appendix A
_ROTATION = 30.0  # degrees to either side, as far as RandAugment's


@dataclasses.dataclass(eq=False)
class _Policy:
    """The base of the policies, which override `_augment`.

    A class checks its fields after those of its bases.
    """

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            exceptions.require(
                not name.endswith("probability") or 0.0 <= value <= 1.0,
                f"`{name}` must be in [0, 1]",
                value,
            )

    def __call__(self, images: tf.Tensor, seeds: tf.Tensor) -> tf.Tensor:
        """Augments each image with its own draws.

        Args:
          images: [batch, height, width, 3] uint8; of other channels, or
            float32, for policies without operations on colours.
          seeds: [batch, 2] int32.

        Returns:
          Images of the same shape and type.

        Raises:
          ValueError: `images` or `seeds` is of another shape or dtype.
        """
        return self._augment(dispatch.check_images(images), seeds)

    def _augment(self, images: tf.Tensor, seeds: tf.Tensor) -> tf.Tensor:
        return images

    def get_config(self) -> dict[str, object]:
        """Returns the constructor's arguments."""
        return dataclasses.asdict(self)


class Identity(_Policy):
    """The policy that does not change images: crop and flip only.

    Example:
      >>> import numpy as np
      >>> from supcon_tf import augment
      >>> images = np.full([1, 32, 32, 3], 7, np.uint8)
      >>> np.array_equal(augment.Identity()(images, [[0, 1]]), images)
      True
    """


@dataclasses.dataclass(eq=False)
class AutoAugment(_Policy):
    """Applies one of the 25 sub-policies of a table, drawn uniformly.

    A sub-policy is two operations in order, each with a probability and a
    level; geometric operations take a random sign.

    The tables "imagenet", "cifar10" and "svhn" are those of the AutoAugment
    paper, with the ranges of its Table 6: Posterize keeps 4 to 8 bits,
    translations reach 150 / 331 of the side. "v0" is what the released code of
    the SupCon paper runs, with the ranges of that code: Posterize keeps 1 to 4
    bits, translations reach 250 pixels of 224. `operations.argument` has the
    meaning of the other levels.

    Args:
      policy: "imagenet", "v0", "cifar10" or "svhn".
      fill: colour, three numbers 0 to 255, of pixels from outside the image.

    Example:
      >>> import numpy as np
      >>> from supcon_tf import augment
      >>> policy = augment.AutoAugment("cifar10")
      >>> images = np.zeros([2, 32, 32, 3], np.uint8)
      >>> tuple(policy(images, [[0, 1], [0, 2]]).shape)
      (2, 32, 32, 3)

    Raises:
      ValueError: an argument is none of these.

    Reference: https://arxiv.org/abs/1805.09501; the SupCon paper, Sec. 14.2.
    """

    policy: str = "imagenet"
    fill: affine.Color = affine.GRAY

    def __post_init__(self) -> None:
        exceptions.require_one_of(tables.AUTO_AUGMENT, "policy", self.policy)
        self.fill = affine.check_fill(self.fill)

    def _augment(self, images: tf.Tensor, seeds: tf.Tensor) -> tf.Tensor:
        rows, ranges = tables.AUTO_AUGMENT[self.policy]
        draws = randomness.uniform(
            seeds, 1 + 2 * _DRAWS, randomness.Stream.AUTO_AUGMENT
        )
        choices = tf.cast(draws[:, 0] * len(rows), tf.int32)  # [batch]
        halves = tf.split(draws[:, 1:], 2, axis=1)  # [batch, _DRAWS] each
        for index, step_draws in enumerate(halves):
            names, probabilities, levels = zip(
                *(row[index] for row in rows), strict=True
            )
            is_applied = step_draws[:, 0] < tf.gather(probabilities, choices)
            images = operations.apply(
                images,
                [("Identity", 0.0), *zip(names, levels, strict=True)],
                tf.cast(is_applied, tf.int32) * (1 + choices),
                step_draws[:, 1:],
                ranges,
                self.fill,
            )
        return images


@dataclasses.dataclass(eq=False)
class RandAugment(_Policy):
    """Applies `num_layers` operations, drawn uniformly and in that order.

    Every layer of every image draws an operation. Geometric operations take a
    random sign. `operations.argument` has the meaning of levels; at level 10
    translations reach 100 and Cutout 80 x 80 pixels of 224.

    Args:
      num_layers: N, operations one after the other, at least 1.
      magnitude: M, level of all operations, 0 to 10; fractions are welcome.
      num_operations: 16 for those of the released code and, as a 17th, the
        identity; 14 for those of the RandAugment paper, the identity being
        one of them, without Invert, SolarizeAdd and Cutout.
      probability: that a layer is applied, in [0, 1]; 1 as published.
      fill: colour, three numbers 0 to 255, of pixels from outside the image.

    Example:
      >>> import numpy as np
      >>> from supcon_tf import augment
      >>> policy = augment.RandAugment(num_layers=2, magnitude=5)
      >>> images = np.arange(384, dtype=np.uint8).reshape(2, 8, 8, 3)
      >>> both = policy(images, [[0, 1], [0, 2]])
      >>> alone = policy(images[:1], [[0, 1]])
      >>> np.array_equal(both[:1], alone)  # its seed decides, not the batch
      True

    Raises:
      ValueError: an argument is out of its range.

    Reference: https://arxiv.org/abs/1909.13719; the SupCon paper, Sec. 14.2.
    """

    num_layers: int = 2
    magnitude: float = 10.0
    num_operations: int = 16
    probability: float = 1.0
    fill: affine.Color = affine.GRAY

    def __post_init__(self) -> None:
        super().__post_init__()
        exceptions.require(
            self.num_layers >= 1, "`num_layers` must be >= 1", self.num_layers
        )
        exceptions.require(
            0.0 <= self.magnitude <= operations.MAX_LEVEL,
            "`magnitude` must be in [0, 10]",
            self.magnitude,
        )
        exceptions.require(
            self.num_operations in tables.RAND_AUGMENT,
            "`num_operations` must be "
            f"{' or '.join(map(str, tables.RAND_AUGMENT))}",
            self.num_operations,
        )
        self.fill = affine.check_fill(self.fill)

    def _augment(self, images: tf.Tensor, seeds: tf.Tensor) -> tf.Tensor:
        names = tables.RAND_AUGMENT[self.num_operations]
        steps = [(name, self.magnitude) for name in names]
        draws = randomness.uniform(
            seeds,
            (1 + _DRAWS) * self.num_layers,
            randomness.Stream.RAND_AUGMENT,
        )
        for layer in tf.split(draws, self.num_layers, axis=1):
            choices = tf.cast(layer[:, 0] * len(steps), tf.int32)
            is_applied = tf.cast(layer[:, 1] < self.probability, tf.int32)
            images = operations.apply(
                images,
                steps,
                choices * is_applied,  # step 0 is the identity
                layer[:, 2:],
                tables.RAND_AUGMENT_RANGES,
                self.fill,
            )
        return images


@dataclasses.dataclass(eq=False)
class SimAugment(_Policy):
    """SimCLR's colour jitter, grayscale and blur, with a warp before the blur.

    In this order: rotation by U(-30, 30) degrees, colour jitter, grayscale,
    warp, Gaussian blur with sigma ~ U(0.1, 2) pixels; each image draws each
    operation independently. The paper warps before the blur (Sec. 14.2) and
    gives neither probability nor size: the size is that of the released code
    (`warp.random_warp`), the probability that of the blur. The released recipes
    left the warp off: `warp_probability=0` is their policy, and faster. The
    paper also names rotations, without a range; neither SimCLR nor the released
    code has any, so they are off. These are the paper's defaults; the name
    "simaugment", in Python as on the command line, is a milder one: strength
    0.25, neither warp nor blur.

    Args:
      strength: of the jitter, 0 to 2.5: 0.5 for CIFAR, 1 for ImageNet; see
        `color.color_jitter`.
      jitter_probability: probability of the colour jitter.
      grayscale_probability: probability of dropping the colour.
      warp_probability: probability of the warp.
      blur_probability: probability of the blur.
      rotation_probability: probability of the rotation; the corners become
        grey. An operation of probability 0 is left out of the graph.

    Example:
      >>> import numpy as np
      >>> import supcon_tf
      >>> images = np.zeros([2, 32, 32, 3], np.uint8)
      >>> seeds = np.array([[0, 1], [0, 2]], np.int32)
      >>> supcon_tf.SimAugment(strength=1.0)(images, seeds).shape
      TensorShape([2, 32, 32, 3])

    Raises:
      ValueError: a probability is outside [0, 1], or `strength` outside
        [0, 2.5].

    Reference: https://arxiv.org/abs/2004.11362, Sec. 14.2;
      https://arxiv.org/abs/2002.05709, Appendix A.
    """

    strength: float = 0.5
    jitter_probability: float = 0.8
    grayscale_probability: float = 0.2
    warp_probability: float = 0.5
    blur_probability: float = 0.5
    rotation_probability: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        color.check_strength(self.strength)

    def _augment(self, images: tf.Tensor, seeds: tf.Tensor) -> tf.Tensor:
        draws = randomness.uniform(seeds, 7, randomness.Stream.SIM_AUGMENT)
        jitter, grayscale, bend, blur, width, turn, angle = tf.unstack(
            draws, axis=1
        )
        degrees = _ROTATION * (2.0 * angle - 1.0)
        sigma = _BLUR_SIGMA[0] + (_BLUR_SIGMA[1] - _BLUR_SIGMA[0]) * width
        color_jitter = functools.partial(
            color.color_jitter, strength=self.strength
        )
        for probability, draw, operation, *argument in (
            (self.rotation_probability, turn, affine.rotate, degrees),
            (self.jitter_probability, jitter, color_jitter, seeds),
            (self.grayscale_probability, grayscale, color.to_grayscale),
            (self.warp_probability, bend, warp.random_warp, seeds),
            (self.blur_probability, blur, color.gaussian_blur, sigma),
        ):
            if probability > 0.0:
                choice = tf.cast(draw < probability, tf.int32)
                pair = (dispatch.keep, operation)
                images = dispatch.dispatch(choice, pair, images, *argument)
        return images


@dataclasses.dataclass(eq=False)
class StackedRandAugment(SimAugment, RandAugment):
    """RandAugment, followed by SimAugment.

    The paper's policy of ResNet-200. The released code jitters first and keeps
    RandAugment at its defaults whatever the magnitude; here, as in the paper,
    RandAugment comes before the jitter.

    Args:
      num_layers: of RandAugment, as `magnitude`, `num_operations`,
        `probability` and `fill`.
      strength: of SimAugment, as `jitter_probability`,
        `grayscale_probability`, `warp_probability`, `blur_probability` and
        `rotation_probability`.

    Example:
      >>> import numpy as np
      >>> from supcon_tf import augment
      >>> policy = augment.StackedRandAugment(magnitude=5, strength=1.0)
      >>> tuple(policy(np.zeros([1, 8, 8, 3], np.uint8), [[0, 1]]).shape)
      (1, 8, 8, 3)

    Raises:
      ValueError: an argument is out of its range.

    Reference: https://arxiv.org/abs/2004.11362, Sec. 14.2;
      https://arxiv.org/abs/2005.10243, Appendix.
    """

    def _augment(self, images: tf.Tensor, seeds: tf.Tensor) -> tf.Tensor:
        images = RandAugment._augment(self, images, seeds)
        return SimAugment._augment(self, images, seeds)
