"""SupCon on classes that have parents: one loss per level, the leaves first."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import tensorflow as tf

from supcon_tf import exceptions
from supcon_tf.keras_2 import keras
from supcon_tf.losses import inputs, supcon


@keras.utils.register_keras_serializable(package="supcon_tf")
@dataclasses.dataclass(eq=False)
class HierarchicalSupConLoss(supcon.SupConLoss):
    """Hierarchical constrained SupCon of Zhang et al. 2022, per anchor.

      L_i = 1/H sum_{h=1..H} b^(1/h) max(L_i^h, M_i^(h-1)),  M_i^0 = -inf
      M_i^h = max(L_i^h, M_i^(h-1))

    L_i^h is SupCon (Eq. 2 or 3) whose positives share the ancestor at height
    h, of which 1 are the classes themselves and H their highest parents. The
    penalty b^(1/h) grows towards the leaves. By the maximum no level has a
    smaller loss than one below it. Zhang et al. take the maximum over the pairs
    of a batch; here it is of the anchor, which any split over replicas leaves
    as it is.

    `y_true` are labels of the classes as in `supcon_loss`, 0..classes-1.
    Without a queue; tiled, the levels together take little more than one.

    Args:
      ancestors: [classes, H] integers, of each class its ancestors from the
        highest down to itself; numbers of one level tell it apart, such as
        `[[0, 0], [0, 1], [1, 2]]`.
      penalty: b, at least 1; 2 as in their code, 1 for equal levels.
      constrained: take the maximum; False for the sum alone.

    All other arguments are those of `SupConLoss`.

    Example:
      >>> import numpy as np
      >>> from supcon_tf import losses
      >>> projections = np.eye(2)[[0, 0, 1, 1]].reshape(2, 2, 2)
      >>> ancestors = [[0, 0], [0, 1], [1, 2]]
      >>> loss = losses.HierarchicalSupConLoss(ancestors=ancestors)
      >>> round(float(loss([0, 2], projections)), 2)  # apart, as their parents
      0.0
      >>> round(float(loss([0, 1], projections)), 2)  # apart, of one parent
      0.47

    Raises:
      ValueError: as of `SupConLoss`; the ancestors are no such table, one has
        two parents, or two classes are one at the lowest level.
      InvalidArgumentError: a label is no row of the ancestors.

    Reference: https://arxiv.org/abs/2204.13207, Eq. 3 to 6.
    """

    ancestors: Sequence[Sequence[int]] = ()
    penalty: float = 2.0
    constrained: bool = True
    name: str = "hierarchical_supcon_loss"

    def __post_init__(self) -> None:
        super().__post_init__()
        heights = {len(row) for row in self.ancestors}
        exceptions.require(
            len(heights) == 1 and heights != {0},
            "`ancestors` must be as many integers for every class",
            f"rows of {sorted(heights) or 'no'} integers",
        )
        exceptions.require(
            self.penalty >= 1, "`penalty` must be at least 1", self.penalty
        )
        exceptions.require(
            self.queue is self.positives is None
            and not self.unsupervised_classes,
            "`queue` and `positives` must be None, and `unsupervised_classes` "
            "empty, with `ancestors`",
            "others",
        )
        for level in range(1, *heights):
            pairs = {(row[level], row[level - 1]) for row in self.ancestors}
            exceptions.require(
                len(pairs) == len({child for child, _ in pairs}),
                f"`ancestors` must have one parent for each, at level {level}",
                "several",
            )
        num_last = len({row[-1] for row in self.ancestors})
        exceptions.require(
            num_last == len(self.ancestors),
            "`ancestors` must have the class itself last, behind its parents: "
            f"{len(self.ancestors)} different numbers",
            num_last,
        )

    @inputs.nan_if_broken
    def call(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        table = tf.constant(self.ancestors, tf.int64)
        ids = inputs.class_indices(y_true, len(self.ancestors), y_pred)
        levels = tf.gather(table, ids)  # [B, H]
        labels_by_height = tf.unstack(levels, axis=1)[::-1]
        loss, losses_below = 0.0, None
        losses_by_height = self._losses_by_labels(labels_by_height, y_pred)
        for height, losses in enumerate(losses_by_height, start=1):
            if self.constrained and losses_below is not None:
                losses = tf.maximum(losses, losses_below)
            loss += self.penalty ** (1 / height) * losses
            losses_below = losses
        return loss / len(labels_by_height)
