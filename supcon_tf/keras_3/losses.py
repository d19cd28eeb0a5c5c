"""Every loss and every diagnostic of ours, as a class of Keras 3."""

from __future__ import annotations

from supcon_tf import losses
from supcon_tf.keras_3 import made
from supcon_tf.keras_3.installed import keras

BalancedSupConLoss = made.loss(losses.BalancedSupConLoss)
BinaryCrossEntropyLoss = made.loss(losses.BinaryCrossEntropyLoss)
CrossEntropyLoss = made.loss(losses.CrossEntropyLoss)
HierarchicalSupConLoss = made.loss(losses.HierarchicalSupConLoss)
MaxMarginLoss = made.loss(losses.MaxMarginLoss)
NPairsLoss = made.loss(losses.NPairsLoss)
PaCoLoss = made.loss(losses.PaCoLoss)
RankNContrastLoss = made.loss(losses.RankNContrastLoss)
SimCLRLoss = made.loss(losses.SimCLRLoss)
SupConLoss = made.loss(losses.SupConLoss)
TripletLoss = made.loss(losses.TripletLoss)

Alignment = made.metric(losses.Alignment)
AnchorsWithoutPositives = made.metric(losses.AnchorsWithoutPositives)
ContrastiveAccuracy = made.metric(losses.ContrastiveAccuracy)
MeanCosine = made.metric(losses.MeanCosine)
PositivesPerAnchor = made.metric(losses.PositivesPerAnchor)
Uniformity = made.metric(losses.Uniformity)


def diagnostics(
    cross_replica: bool = True,
    multi_label: bool = False,
    soft_labels: bool = False,
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
    metrics = losses.diagnostics(cross_replica, multi_label, soft_labels)
    return [
        globals()[type(metric).__name__](**metric.get_config())
        for metric in metrics
    ]
