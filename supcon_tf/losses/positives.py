"""How many positives the anchors of a batch have, as Keras metrics."""

from __future__ import annotations

import tensorflow as tf

from supcon_tf import distribute, exceptions
from supcon_tf.losses import inputs


@tf.keras.utils.register_keras_serializable(package="supcon_tf")
class PositivesPerAnchor(tf.keras.metrics.Mean):
    """Mean |P(i)|, before any cap.

    Args:
      cross_replica: count positives on all replicas, as the loss contrasts
        them; False counts within each replica.
      name: Keras' name of the metric.
      dtype: Keras' dtype of the metric.
    """

    def __init__(
        self,
        cross_replica: bool = True,
        name: str = "positives_per_anchor",
        dtype: str | None = None,
    ):
        super().__init__(name=name, dtype=dtype)
        self.cross_replica = cross_replica

    def update_state(
        self, y_true: tf.Tensor, y_pred: tf.Tensor, sample_weight: None = None
    ) -> tf.Operation | None:
        """Adds a batch, see `diagnostics.ContrastiveAccuracy`."""
        check_unweighted(sample_weight)
        return super().update_state(
            _positives(y_true, y_pred, self.cross_replica)
        )

    def get_config(self) -> dict[str, object]:
        """Returns every constructor argument."""
        return {**super().get_config(), "cross_replica": self.cross_replica}


@tf.keras.utils.register_keras_serializable(package="supcon_tf")
class AnchorsWithoutPositives(tf.keras.metrics.Mean):
    """Share of anchors without positives, whose loss is 0, in [0, 1].

    Args:
      cross_replica: see `PositivesPerAnchor`.
      name: Keras' name of the metric.
      dtype: Keras' dtype of the metric.
    """

    def __init__(
        self,
        cross_replica: bool = True,
        name: str = "share_without_positives",
        dtype: str | None = None,
    ):
        super().__init__(name=name, dtype=dtype)
        self.cross_replica = cross_replica

    def update_state(
        self, y_true: tf.Tensor, y_pred: tf.Tensor, sample_weight: None = None
    ) -> tf.Operation | None:
        """Adds a batch, see `diagnostics.ContrastiveAccuracy`."""
        check_unweighted(sample_weight)
        return super().update_state(
            _positives(y_true, y_pred, self.cross_replica) == 0
        )

    def get_config(self) -> dict[str, object]:
        """Returns every constructor argument."""
        return {**super().get_config(), "cross_replica": self.cross_replica}


def classes_of(ids: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Labels as [B] int32 in 0..C-1, and the samples [B] int32 of each class.

    Both are as long as the batch, so that XLA can compile them: the classes
    C..B-1 have no samples.
    """
    classes = inputs.class_numbers(ids)
    samples = tf.math.unsorted_segment_sum(
        tf.ones_like(classes), classes, tf.size(classes)
    )
    return classes, samples


def check_unweighted(sample_weight: None) -> None:
    """Raises ValueError for weights, which no metric here uses."""
    if sample_weight is not None:
        raise exceptions.InvalidValue(
            f"`sample_weight` must be None, got a {type(sample_weight)}"
        )


def _positives(
    y_true: tf.Tensor, y_pred: tf.Tensor, cross_replica: bool
) -> tf.Tensor:
    """[B] int32 |P(i)|, the same for each view of a sample."""
    views = inputs.as_views(y_pred, "projections").shape[1]
    ids = inputs.class_ids(y_true)
    if cross_replica:  # own rows first
        (all_ids,) = distribute.gather_across_replicas(ids)
    else:
        all_ids = ids
    classes, samples = classes_of(all_ids)
    return tf.gather(samples, classes[: tf.size(ids)]) * views - 1
