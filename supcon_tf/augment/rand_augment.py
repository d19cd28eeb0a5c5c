"""RandAugment: a few operations drawn uniformly, all at one level."""

from __future__ import annotations

import dataclasses

import tensorflow as tf

from supcon_tf import exceptions
from supcon_tf.augment import affine, dispatch, operations, randomness, tables

_DRAWS = 5  # per layer: operation, whether at all, and `operations.apply`'s 3


@dataclasses.dataclass(eq=False)
class RandAugment:
    """Applies `num_layers` operations, drawn uniformly and in that order.

    Every layer of every image draws its own. Geometric operations take a
    random sign. What the levels mean is told by `operations.argument`;
    at level 10 translations reach 100 and Cutout 80 x 80 pixels of 224.

    Args:
      num_layers: N, operations one after the other, at least 1.
      magnitude: M, level of all operations, 0 to 10; fractions are welcome.
      num_operations: 16 for those of the released code and, as a 17th, the
        identity; 14 for those of the RandAugment paper, the identity being
        one of them, without Invert, SolarizeAdd and Cutout.
      probability: that a layer does anything; 1 as published.
      fill: colour, three numbers 0 to 255, of what was outside the image.

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
            "`num_operations` must be 14 or 16",
            self.num_operations,
        )
        exceptions.require(
            0.0 <= self.probability <= 1.0,
            "`probability` must be in [0, 1]",
            self.probability,
        )
        self.fill = affine.check_fill(self.fill)

    def __call__(self, images: tf.Tensor, seeds: tf.Tensor) -> tf.Tensor:
        """Augments each image with its own draws.

        Args:
          images: [batch, height, width, 3] uint8.
          seeds: [batch, 2] int32.

        Returns:
          [batch, height, width, 3] uint8.

        Raises:
          ValueError: `images` or `seeds` is of another shape or dtype.
        """
        images = dispatch.check_images(images)
        names = tables.RAND_AUGMENT[self.num_operations]
        steps = [(name, self.magnitude) for name in names]
        draws = randomness.uniform(
            seeds, _DRAWS * self.num_layers, randomness.Stream.RAND_AUGMENT
        )
        for layer in tf.split(draws, self.num_layers, axis=1):
            choices = tf.cast(layer[:, 0] * len(steps), tf.int32)
            acts = tf.cast(layer[:, 1] < self.probability, tf.int32)
            images = operations.apply(
                images,
                steps,
                choices * acts,  # step 0 is the identity
                layer[:, 2:],
                tables.RAND_AUGMENT_RANGES,
                self.fill,
            )
        return images

    def get_config(self) -> dict[str, object]:
        """Returns the constructor's arguments."""
        return dataclasses.asdict(self)
