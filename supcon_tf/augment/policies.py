"""Policies: `policy(images, seeds)` -> images, stateless for each image.

A policy does not crop or flip: the data pipeline has done so before.
"""

from __future__ import annotations

import dataclasses

import tensorflow as tf

from supcon_tf import exceptions
from supcon_tf.augment import color, dispatch, rand_augment, randomness, warp

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


@dataclasses.dataclass(eq=False)
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

    strength: float = 0.5
    jitter_probability: float = 0.8
    grayscale_probability: float = 0.2
    warp_probability: float = 0.5
    blur_probability: float = 0.5

    def __post_init__(self) -> None:
        color.check_strength(self.strength)
        for name, value in vars(self).items():
            exceptions.require(
                not name.endswith("_probability") or 0.0 <= value <= 1.0,
                f"`{name}` must be in [0, 1]",
                value,
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

        def color_jitter(images: tf.Tensor, seeds: tf.Tensor) -> tf.Tensor:
            return color.color_jitter(images, seeds, self.strength)

        def to_gray(images: tf.Tensor, _: tf.Tensor) -> tf.Tensor:
            return color.to_grayscale(images)

        for probability, draw, operation, argument in (
            (self.jitter_probability, jitter, color_jitter, seeds),
            (self.grayscale_probability, grayscale, to_gray, seeds),
            (self.warp_probability, bend, warp.random_warp, seeds),
            (self.blur_probability, blur, color.gaussian_blur, sigma),
        ):
            if probability > 0.0:
                choice = tf.cast(draw < probability, tf.int32)
                either = (dispatch.keep, operation)
                images = dispatch.dispatch(choice, either, images, argument)
        return images

    def get_config(self) -> dict[str, float]:
        """Returns the constructor's arguments."""
        return dataclasses.asdict(self)


@dataclasses.dataclass(eq=False)
class StackedRandAugment(SimAugment, rand_augment.RandAugment):
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

    def __post_init__(self) -> None:
        rand_augment.RandAugment.__post_init__(self)
        SimAugment.__post_init__(self)

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
        images = rand_augment.RandAugment.__call__(self, images, seeds)
        return SimAugment.__call__(self, images, seeds)
