"""Policies: `policy(images, seeds)` -> images, stateless for each image.

A policy does not crop or flip: the data pipeline has done so before.
"""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from supcon_tf import exceptions
from supcon_tf.augment import (
    affine,
    color,
    dispatch,
    rand_augment,
    randomness,
    warp,
)

_BLUR_SIGMA = (0.1, 2.0)  # pixels, SimCLR, Appendix A


class Identity:
    """The policy that leaves the images as they are: crop and flip only."""

    def __call__(self, images: tf.Tensor, seeds: tf.Tensor) -> tf.Tensor:
        """Returns the images.

        Args:
          images: [batch, height, width, 3] uint8.
          seeds: [batch, 2] int32, not used.

        Returns:
          [batch, height, width, 3] uint8.

        Raises:
          ValueError: `images` is of another shape or dtype.
        """
        return dispatch.check_images(images)

    def get_config(self) -> dict[str, float]:
        """Returns the constructor's arguments: none."""
        return {}


class SimAugment:
    """SimCLR's colour jitter, grayscale and blur, with a warp before the blur.

    In this order: colour jitter, grayscale, warp, Gaussian blur with
    sigma ~ U(0.1, 2) pixels; each image draws each of them on its own. The
    paper warps before the blur (Sec. 14.2) and gives neither probability nor
    size: the size is that of the released code (see `warp.random_warp`),
    the probability that of the blur. The released recipes left the warp off:
    `warp_probability=0` is their policy, and faster. The paper also names
    rotations, which neither SimCLR nor the released code has; there are none
    here.

    Args:
      strength: of the jitter, 0 to 2.5: 0.5 for CIFAR, 1 for ImageNet; see
        `color.color_jitter`.
      jitter_probability: probability of the colour jitter.
      grayscale_probability: probability of dropping the colour.
      warp_probability: probability of the warp.
      blur_probability: probability of the blur. An operation of probability 0
        is left out of the graph.

    Raises:
      ValueError: a probability is outside [0, 1], or `strength` outside
        [0, 2.5].

    Reference: https://arxiv.org/abs/2004.11362, Sec. 14.2;
      https://arxiv.org/abs/2002.05709, Appendix A.
    """

    def __init__(
        self,
        strength: float = 0.5,
        jitter_probability: float = 0.8,
        grayscale_probability: float = 0.2,
        warp_probability: float = 0.5,
        blur_probability: float = 0.5,
    ) -> None:
        self.strength = strength
        self.jitter_probability = jitter_probability
        self.grayscale_probability = grayscale_probability
        self.warp_probability = warp_probability
        self.blur_probability = blur_probability
        color.check_strength(strength)
        for name, value in self.get_config().items():
            if name.endswith("_probability") and not 0.0 <= value <= 1.0:
                raise exceptions.InvalidValue(
                    f"`{name}` must be in [0, 1], got {value}"
                )

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
        draws = randomness.uniform(seeds, 5, randomness.Stream.SIM_AUGMENT)
        jitter, grayscale, bend, blur, width = tf.unstack(draws, axis=1)
        sigma = _BLUR_SIGMA[0] + (_BLUR_SIGMA[1] - _BLUR_SIGMA[0]) * width
        steps = (
            (self.jitter_probability, jitter, self._jitter, seeds),
            (self.grayscale_probability, grayscale, _grayscale, seeds),
            (self.warp_probability, bend, warp.random_warp, seeds),
            (self.blur_probability, blur, color.gaussian_blur, sigma),
        )
        for probability, draw, operation, argument in steps:
            images = _sometimes(probability, draw, operation, images, argument)
        return images

    def get_config(self) -> dict[str, float]:
        """Returns the constructor's arguments."""
        return {
            "strength": self.strength,
            "jitter_probability": self.jitter_probability,
            "grayscale_probability": self.grayscale_probability,
            "warp_probability": self.warp_probability,
            "blur_probability": self.blur_probability,
        }

    def _jitter(self, images: tf.Tensor, seeds: tf.Tensor) -> tf.Tensor:
        """The colour jitter at this policy's strength."""
        return color.color_jitter(images, seeds, self.strength)


class StackedRandAugment:
    """RandAugment, and then SimAugment on what it made.

    The paper's policy of ResNet-200. The released code jitters first and
    keeps RandAugment at its defaults whatever the magnitude; the paper, and
    this, put RandAugment before the jitter.

    Args:
      num_layers: of RandAugment, as the next four.
      magnitude: level of its operations, 0 to 10.
      num_operations: 14 or 16.
      probability: that a layer of it does anything.
      fill: colour of what was outside the image.
      strength: of SimAugment's jitter, 0 to 2.5, as what follows.
      jitter_probability: probability of the colour jitter.
      grayscale_probability: probability of dropping the colour.
      warp_probability: probability of the warp.
      blur_probability: probability of the blur.

    Raises:
      ValueError: an argument is out of its range.

    Reference: https://arxiv.org/abs/2004.11362, Sec. 14.2;
      https://arxiv.org/abs/2005.10243, Appendix.
    """

    def __init__(
        self,
        num_layers: int = 2,
        magnitude: float = 10.0,
        num_operations: int = 16,
        probability: float = 1.0,
        fill: affine.Color = affine.GRAY,
        strength: float = 0.5,
        jitter_probability: float = 0.8,
        grayscale_probability: float = 0.2,
        warp_probability: float = 0.5,
        blur_probability: float = 0.5,
    ) -> None:
        self.rand_augment = rand_augment.RandAugment(
            num_layers, magnitude, num_operations, probability, fill
        )
        self.sim_augment = SimAugment(
            strength,
            jitter_probability,
            grayscale_probability,
            warp_probability,
            blur_probability,
        )

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
        return self.sim_augment(self.rand_augment(images, seeds), seeds)

    def get_config(self) -> dict[str, object]:
        """Returns the constructor's arguments."""
        return {
            **self.rand_augment.get_config(),
            **self.sim_augment.get_config(),
        }


def _grayscale(images: tf.Tensor, _: tf.Tensor) -> tf.Tensor:
    """Drops the colour; nothing to draw."""
    return color.to_grayscale(images)


def _sometimes(
    probability: float,
    draws: tf.Tensor,
    operation: Callable[[tf.Tensor, tf.Tensor], tf.Tensor],
    images: tf.Tensor,
    argument: tf.Tensor,
) -> tf.Tensor:
    """Applies an operation to the images whose draw is below `probability`."""
    if probability == 0.0:
        return images
    choice = tf.cast(draws < probability, tf.int32)
    operations = (dispatch.keep, operation)
    return dispatch.dispatch(choice, operations, images, argument)
