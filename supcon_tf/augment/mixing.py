"""MixUp and CutMix: a batch mixed with a permutation of itself.

The labels become soft: `losses.CrossEntropyLoss` takes them, and SupCon weighs
its positives by them, `SupConLoss(positives="soft")`. Unlike a policy, mixing
reads the whole batch: the result is a function of the batch and one seed, the
same eagerly, in a function and in tf.data. All views of a sample share partner
and weight; view v is mixed with view v of the partner. Stage 1 leaves out
figures that need the class of a sample; a sample adds its soft label of the
predicted class to the accuracy of a classifier beside SupCon.
"""

from __future__ import annotations

import dataclasses
import math

import tensorflow as tf

from supcon_tf import exceptions
from supcon_tf.augment import affine

_WEIGHT_STEPS = 4096  # MixUp's weights are multiples of its reciprocal.


@dataclasses.dataclass(eq=False)
class MixUp:
    """Adds to each sample another one, lambda x_i + (1 - lambda) x_j.

    Lambda ~ Beta(alpha, alpha), one per sample, rounded to a multiple of
    1/4096 for pixels and labels alike; pixels are rounded to nearest, halves
    up. The partners j are a random permutation of the batch.

    Args:
      num_classes: classes of the soft labels, at least 2.
      alpha: shape of the distribution, positive and finite: small for little
        mixing, 1 for uniform weights. The paper has 0.1 to 0.4 on ImageNet.

    Example:
      >>> import numpy as np
      >>> from supcon_tf import augment
      >>> views = np.zeros([2, 1, 8, 8, 3], np.uint8)  # class 0 is black
      >>> views[1] = 255
      >>> mixed, soft = augment.MixUp(num_classes=2)(views, [0, 1], [0, 2])
      >>> white = mixed.numpy()[:, 0, 0, 0, 0] / 255
      >>> np.allclose(white, soft[:, 1], atol=0.01)
      True

    Raises:
      ValueError: `num_classes` is below 2, or `alpha` not positive and finite.

    Reference: Zhang et al. 2018, https://arxiv.org/abs/1710.09412, Sec. 2.
    """

    num_classes: int
    alpha: float = 0.2
    _seeds = 2  # of the partners and of `_mix`

    def __post_init__(self) -> None:
        exceptions.require(
            self.num_classes >= 2,
            "`num_classes` must be at least 2",
            self.num_classes,
        )
        exceptions.require(
            0.0 < self.alpha < math.inf,
            "`alpha` must be positive and finite",
            self.alpha,
        )

    def get_config(self) -> dict[str, float]:
        """Returns the constructor's arguments."""
        return dataclasses.asdict(self)

    def __call__(
        self, views: tf.Tensor, labels: tf.Tensor, seed: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Mixes a batch.

        Args:
          views: [batch, views, height, width, 3] uint8.
          labels: [batch] integers in 0 ... num_classes - 1.
          seed: [2] int32, of `fold_in`; another one for each batch.

        Returns:
          views of the same shape, uint8, and soft labels [batch, num_classes]
          float32, whose rows sum to 1.

        Raises:
          ValueError: an argument is of another shape or dtype.
          InvalidArgumentError: a label is not in its range.
        """
        views, labels, seed = map(tf.convert_to_tensor, (views, labels, seed))
        _check_batch(views, labels, seed)
        partner_seed, *seeds = tf.unstack(tf.random.split(seed, self._seeds))
        # Every order with the same probability.
        partners = tf.argsort(_uniform(tf.shape(views)[:1], partner_seed))
        mixed, weights = self._mix(views, partners, *seeds)
        mixed = tf.reshape(mixed, tf.shape(views))
        mixed = tf.ensure_shape(mixed, views.shape)
        return mixed, _soft_labels(labels, partners, weights, self.num_classes)

    def _mix(
        self, views: tf.Tensor, partners: tf.Tensor, seed: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """The bytes of the mixed views, and the samples' weights [B, 1]."""
        batch, pixels = tf.shape(views)[0], math.prod(views.shape[1:])
        weights = _beta(self.alpha, batch, seed)
        weights = tf.round(weights * _WEIGHT_STEPS) / _WEIGHT_STEPS
        weights = tf.cast(weights, tf.float32)[:, tf.newaxis]  # [B, 1]
        samples = tf.reshape(views, [batch, pixels])
        partner_samples = tf.cast(tf.gather(samples, partners), tf.float32)
        samples = tf.cast(samples, tf.float32)
        # Multiples of 1/4096 below 256: exact in float32, in any order.
        mixed = samples * weights + (partner_samples * (1.0 - weights) + 0.5)
        return tf.cast(mixed, tf.uint8), weights


@dataclasses.dataclass(eq=False)
class CutMix(MixUp):
    """Pastes a box of another sample into each sample.

    The box has the aspect of the image and a share 1 - lambda of its area,
    lambda ~ Beta(alpha, alpha), one per sample. Its centre is uniform over
    the pixels, and what lies outside the image is cut off: labels are
    weighted with the share of the pixels that were pasted in fact. The
    partners are a random permutation of the batch.

    Args:
      num_classes: classes of the soft labels, at least 2.
      alpha: shape of the distribution, positive and finite; the paper's 1
        makes lambda uniform.

    Example:
      >>> import numpy as np
      >>> from supcon_tf import augment
      >>> views = np.zeros([2, 1, 8, 8, 3], np.uint8)  # class 0 is black
      >>> views[1] = 255
      >>> mixed, soft = augment.CutMix(num_classes=2)(views, [0, 1], [0, 2])
      >>> white = mixed.numpy().mean(axis=(1, 2, 3, 4)) / 255
      >>> np.allclose(white, soft[:, 1])
      True

    Raises:
      ValueError: `num_classes` is below 2, or `alpha` not positive and finite.

    Reference: Yun et al. 2019, https://arxiv.org/abs/1905.04899, Sec. 3.1.
    """

    alpha: float = 1.0
    _seeds = 3

    def _mix(
        self,
        views: tf.Tensor,
        partners: tf.Tensor,
        area_seed: tf.Tensor,
        center_seed: tf.Tensor,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        batch = tf.shape(views)[0]
        num_views, height, width = views.shape[1:4]
        side = tf.sqrt(1.0 - _beta(self.alpha, batch, area_seed))
        centers = _uniform([2, batch], center_seed)
        rows = _in_box(height, side, centers[0])  # [B, H]
        columns = _in_box(width, side, centers[1])  # [B, W]
        # All views as one high image.
        samples = tf.reshape(views, [batch, num_views * height, width * 3])
        partner_samples = tf.gather(samples, partners)
        view_rows = tf.tile(rows, [1, num_views])
        mixed = affine.paste(samples, partner_samples, view_rows, columns)
        pasted = _count(rows) * _count(columns) / (height * width)
        weights = tf.cast(1.0 - pasted, tf.float32)[:, tf.newaxis]  # [B, 1]
        return mixed, weights


def _check_batch(views: tf.Tensor, labels: tf.Tensor, seed: tf.Tensor) -> None:
    shape = views.shape
    valid = shape.rank == 5 and shape[1:].is_fully_defined() and shape[4] == 3
    exceptions.require(
        views.dtype == tf.uint8 and valid,
        "`views` must be [batch, views, height, width, 3] uint8 of which only "
        "the batch may be unknown",
        f"{shape} {views.dtype.name}",
    )
    exceptions.require(
        labels.dtype.is_integer and labels.shape.is_compatible_with(shape[:1]),
        f"`labels` must be [batch] integers, the batch {shape[0]} as of "
        "`views`",
        f"{labels.shape} {labels.dtype.name}",
    )
    exceptions.require(
        seed.dtype == tf.int32 and seed.shape.is_compatible_with([2]),
        "`seed` must be [2] int32",
        f"{seed.shape} {seed.dtype.name}",
    )


def _uniform(shape: list[int | tf.Tensor], seed: tf.Tensor) -> tf.Tensor:
    """Float64 draws in [0, 1)."""
    return tf.random.stateless_uniform(shape, seed, dtype=tf.float64)


def _beta(alpha: float, count: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """[count] float64 draws of Beta(alpha, alpha), as G1 / (G1 + G2).

    G is Gamma(alpha), that is Gamma(alpha + 1) times U^(1 / alpha). Where
    alpha is small that underflows to 0 / 0, but its logarithm does not.
    """
    gamma_seed, uniform_seed = tf.unstack(tf.random.split(seed, 2))
    gamma = tf.math.log(
        tf.random.stateless_gamma(
            [2, count], gamma_seed, alpha + 1.0, dtype=tf.float64
        )
    )
    power = tf.math.log(1.0 - _uniform([2, count], uniform_seed))
    log_ratio = gamma[0] - gamma[1] + (power[0] - power[1]) / alpha
    return tf.sigmoid(log_ratio)


def _in_box(size: int, side: tf.Tensor, center: tf.Tensor) -> tf.Tensor:
    """[batch, size] uint8, 255 inside the box; [batch] in units of the axis."""
    length = tf.cast(tf.round(side * size), tf.int32)
    first = tf.cast(center * size, tf.int32) - length // 2
    return affine.band(size, first, length)


def _count(box: tf.Tensor) -> tf.Tensor:
    """The number of pixels inside of `_in_box`, [batch] float64."""
    return tf.reduce_sum(tf.cast(box, tf.float64), axis=1) / 255.0


def _soft_labels(
    labels: tf.Tensor, partners: tf.Tensor, weights: tf.Tensor, num_classes: int
) -> tf.Tensor:
    """w_i y_i + (1 - w_i) y_j for partner j, [B, classes] float32."""
    labels = tf.cast(labels, tf.int64)
    tf.debugging.assert_equal(
        (0 <= labels) & (labels < num_classes),
        True,
        f"`labels` must be in 0 ... {num_classes - 1}",
    )
    one_hot = tf.one_hot(labels, num_classes)
    return weights * one_hot + (1.0 - weights) * tf.gather(one_hot, partners)
