"""AutoAugment: pairs of operations from published tables."""

from __future__ import annotations

import dataclasses

import tensorflow as tf

from supcon_tf import exceptions
from supcon_tf.augment import affine, dispatch, operations, randomness, tables

_DRAWS = 4  # per operation: whether at all, and `operations.apply`'s 3


@dataclasses.dataclass(eq=False)
class AutoAugment:
    """Applies one of the 25 sub-policies of a table, drawn uniformly.

    A sub-policy is two operations in order, each with a probability and a
    level; geometric operations take a random sign.

    The tables "imagenet", "cifar10" and "svhn" are those of the AutoAugment
    paper, with the ranges of its Table 6: Posterize keeps 4 to 8 bits,
    translations reach 150 / 331 of the side. "v0" is what the released code of
    the SupCon paper runs, with the ranges of that code: Posterize keeps 1 to 4
    bits, translations reach 250 pixels of 224. What else the levels mean is
    told by `operations.argument`.

    Args:
      policy: "imagenet", "v0", "cifar10" or "svhn".
      fill: colour, three numbers 0 to 255, of what was outside the image.

    Raises:
      ValueError: an argument is none of these.

    Reference: https://arxiv.org/abs/1805.09501; the SupCon paper, Sec. 14.2.
    """

    policy: str = "imagenet"
    fill: affine.Color = affine.GRAY

    def __post_init__(self) -> None:
        exceptions.require_one_of(tables.AUTO_AUGMENT, "policy", self.policy)
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
        rows, ranges = tables.AUTO_AUGMENT[self.policy]
        draws = randomness.uniform(
            seeds, 1 + 2 * _DRAWS, randomness.Stream.AUTO_AUGMENT
        )
        drawn = tf.cast(draws[:, 0] * len(rows), tf.int32)  # [batch]
        for place, first in enumerate((1, 1 + _DRAWS)):
            names, probabilities, levels = zip(
                *(row[place] for row in rows), strict=True
            )
            own = draws[:, first : first + _DRAWS]
            acts = own[:, 0] < tf.gather(probabilities, drawn)
            images = operations.apply(
                images,
                [("Identity", 0.0), *zip(names, levels, strict=True)],
                tf.cast(acts, tf.int32) * (1 + drawn),
                own[:, 1:],
                ranges,
                self.fill,
            )
        return images

    def get_config(self) -> dict[str, object]:
        """Returns the constructor's arguments."""
        return dataclasses.asdict(self)
