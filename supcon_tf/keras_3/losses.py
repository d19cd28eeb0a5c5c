"""The losses and diagnostics of `supcon_tf.losses`, as classes of Keras 3."""

from __future__ import annotations

from collections.abc import Sequence

from supcon_tf import losses
from supcon_tf.keras_3 import wrappers
from supcon_tf.keras_3.installed import keras

BalancedSupConLoss = wrappers.loss(losses.BalancedSupConLoss)
BinaryCrossEntropyLoss = wrappers.loss(losses.BinaryCrossEntropyLoss)
CrossEntropyLoss = wrappers.loss(losses.CrossEntropyLoss)
HierarchicalSupConLoss = wrappers.loss(losses.HierarchicalSupConLoss)
MaxMarginLoss = wrappers.loss(losses.MaxMarginLoss)
NPairsLoss = wrappers.loss(losses.NPairsLoss)
PaCoLoss = wrappers.loss(losses.PaCoLoss)
RankNContrastLoss = wrappers.loss(losses.RankNContrastLoss)
SimCLRLoss = wrappers.loss(losses.SimCLRLoss)
SupConLoss = wrappers.loss(losses.SupConLoss)
TripletLoss = wrappers.loss(losses.TripletLoss)

Alignment = wrappers.metric(losses.Alignment)
AnchorsWithoutPositives = wrappers.metric(losses.AnchorsWithoutPositives)
ContrastiveAccuracy = wrappers.metric(losses.ContrastiveAccuracy)
MeanCosine = wrappers.metric(losses.MeanCosine)
PositivesPerAnchor = wrappers.metric(losses.PositivesPerAnchor)
Uniformity = wrappers.metric(losses.Uniformity)


def diagnostics(
    cross_replica: bool = True,
    multi_label: bool = False,
    soft_labels: bool = False,
    ignore_labels: bool = False,
    unsupervised_classes: Sequence[int] = (),
) -> list[keras.metrics.Metric]:
    """One metric of each kind for `compile(metrics=...)`.

    They are those of `supcon_tf.losses.diagnostics`, as classes of Keras 3.

    Example:
      >>> import numpy as np
      >>> from supcon_tf import keras_3
      >>> projections = np.eye(2)[[0, 0, 1, 1]].reshape(2, 2, 2)
      >>> labels = np.eye(2)
      >>> for metric in keras_3.diagnostics(multi_label=True):
      ...     print(metric.name, round(float(metric(labels, projections)), 2))
      contrastive_accuracy 1.0
      uniformity -1.06
      mean_cosine 0.33
    """
    metrics = losses.diagnostics(
        cross_replica,
        multi_label,
        soft_labels,
        ignore_labels,
        unsupervised_classes,
    )
    return [
        globals()[type(metric).__name__](**metric.get_config())
        for metric in metrics
    ]
