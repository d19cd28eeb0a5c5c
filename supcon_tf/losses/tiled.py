"""The supervised contrastive loss in memory that grows linearly.

Views are sorted by class. Then the positives of a strip of anchors lie in a
window of few columns, and `strips` takes the formula there; all that it needs
of the other columns is log sum_{n in N(i)} exp(s_in), which `streaming` sums.
With several labels per sample, or a mask, the window is the whole row.

Eq. 2 with the denominator of all pairs needs no window:

  L_i = log sum_{a in A(i)} exp(s_ia) - mean_{p in P(i)} s_ip

and the sum over the positives follows from the sum over their class.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import tensorflow as tf

from supcon_tf import distribute
from supcon_tf.losses import (
    inputs,
    log_space,
    pairs,
    positive_weights,
    streaming,
    strips,
)
from supcon_tf.losses.options import Options

_ROUNDING = 1e-6  # a million equal classes of one are still apart


def losses_by_labels(
    z: tf.Tensor,
    labels: Sequence[tf.Tensor],
    options: Options,
    *,
    unit_length: bool = False,
    cross_replica: bool = False,
    mask: positive_weights.PositiveMask | None = None,
    extras: pairs.ExtraContrasts | None = None,
    tile_rows: int | None = None,
    is_dense: bool = False,
) -> list[tf.Tensor]:
    """Returns the loss [B] by each of several labels of the same samples.

    Tensors that do not depend on the labels are computed once.

    Args:
      z: [B, V, D] float32, views of this replica.
      labels: [B] or [B, classes] each, of `positive_weights.canonical`.
      options: options of the loss.
      unit_length: a promise that all projections have length 1.
      cross_replica: contrast with the views of all replicas.
      mask: the positives in place of labels, on one replica.
      extras: contrasts that are no anchors.
      tile_rows: rows of a tile, in a loop; None chooses.
      is_dense: take all pairs at once, in [A, M] matrices.
    """
    options.check_views(z.shape[1])
    is_single_replica = not cross_replica or distribute.replicas_in_sync() == 1
    is_streamed = options.is_plain and not is_dense and mask is None
    # Streamed sums have no gradient of the contrasts: each replica computes the
    # gradient of its own views. A derivative of that gradient has them, which
    # it could not send to other replicas.
    sends_values = is_streamed and not is_single_replica
    sent_z = tf.stop_gradient(z) if sends_values else z
    # This replica's samples come first.
    global_z, *labels = inputs.gather(not is_single_replica, sent_z, *labels)
    contrasts = pairs.make_rows(global_z, extras)
    batch = _Batch(
        contrasts.select_anchors(z),
        contrasts,
        options,
        is_single_replica=is_single_replica,
        is_symmetric=is_single_replica and extras is None,
        unit_length=unit_length,
        tile_rows=tile_rows,
    )
    log_d = batch.log_sum_exp() if is_streamed else None

    def row_losses(positives: positive_weights.Weights) -> tf.Tensor:
        """Returns L_i of all views, [B * V]."""
        rows = batch.anchors, contrasts, positives, options
        if is_dense:
            return pairs.losses(*rows)
        if is_streamed:
            return _losses_by_sums(batch, positives, log_d)
        if isinstance(positives, positive_weights.Classes):
            return _losses_by_windows(batch, positives)
        return strips.losses(*rows)

    views = 1 if options.anchor_views == "first" else None
    scale = options.temperature if options.scale_by_temperature else 1.0

    def sample_means(losses: tf.Tensor) -> tf.Tensor:
        losses = tf.reshape(losses, [-1, z.shape[1]])[:, :views]  # [B, V]
        return scale * tf.reduce_mean(losses, axis=1)

    weights = [mask]
    if mask is None:
        weights = [_label_weights(y, extras, options) for y in labels]
    return [sample_means(row_losses(positives)) for positives in weights]


def _label_weights(
    labels: tf.Tensor, extras: pairs.ExtraContrasts | None, options: Options
) -> positive_weights.Labels:
    """Returns the weights of all samples, those of the extras last."""
    if extras is not None:
        labels = tf.concat([labels, extras.labels], axis=0)
    return positive_weights.from_labels(labels, options.positives)


@dataclasses.dataclass(frozen=True)
class _Batch:
    """The views of a batch as anchors and as contrasts.

    Attributes:
      anchors: the R views of this replica.
      contrasts: the M views of all replicas, and the extras.
      options: options of the loss.
      is_single_replica: whether the anchors are the views of all replicas.
      is_symmetric: whether the contrasts are the anchors, in their order.
      unit_length: a promise that all vectors have length 1.
      tile_rows: as in `losses_by_labels`.
    """

    anchors: pairs.Rows
    contrasts: pairs.Rows
    options: Options
    is_single_replica: bool
    is_symmetric: bool
    unit_length: bool
    tile_rows: int | None

    def to_contrasts(self, values: tf.Tensor) -> tf.Tensor:
        """Returns values of the anchors, of all replicas, for contrasts [M].

        A contrast that is no anchor has the value 0.
        """
        values = tf.gather(values, tf.argsort(self.anchors.numbers))
        (values,) = inputs.gather(not self.is_single_replica, values)
        num_others = tf.size(self.contrasts.numbers) - tf.size(values)
        values = tf.pad(values, [[0, num_others]])
        return tf.gather(values, self.contrasts.numbers)

    def log_sum_exp(self, window: strips.Window | None = None) -> tf.Tensor:
        """Returns log sums [R] over the contrasts that are in no window."""
        options = self.options
        return streaming.log_sum_exp(
            self.anchors.vectors,
            None if self.is_symmetric else self.contrasts.vectors,
            window,
            is_hidden=~self.contrasts.is_valid,
            to_columns=self.to_contrasts,
            scale=1 / options.temperature + options.hardness,
            slope=1 / options.temperature,
            unit_length=self.unit_length,
            has_derivatives=self.is_single_replica and not options.hardness,
            tile_rows=self.tile_rows,
        )


def _losses_by_sums(
    batch: _Batch, positives: positive_weights.Labels, log_d: tf.Tensor
) -> tf.Tensor:
    """Returns the losses [R] of Eq. 2, by the log [R] of its denominators."""
    similarity, num_positives = _mean_similarity(batch, positives)
    loss = log_d - similarity / batch.options.temperature
    return log_space.zero_unless(num_positives > 0, loss)


def _mean_similarity(
    batch: _Batch, positives: positive_weights.Labels
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the mean of z_i . z_p over P(i), and |P(i)|, [R] each.

    Two samples weigh as much from both sides, so that the gradient of a view as
    a positive is a sum over its own positives, too.
    """
    anchors, contrasts = batch.anchors, batch.contrasts
    # Samples of the anchors: 0 on a replica without any.
    count = tf.maximum(tf.reduce_max(anchors.samples) + 1, 0)
    self_weights = positives.self_weights(count)
    self_weights = tf.gather(self_weights, anchors.samples)  # [R]

    def sum_over_classes(values: tf.Tensor) -> tf.Tensor:
        """Sums values [M, N] of contrasts over the class of each anchor."""
        sample_sums = tf.math.unsorted_segment_sum(
            values, contrasts.samples, contrasts.samples[-1] + 1
        )
        return tf.gather(positives.sums(sample_sums, count), anchors.samples)

    is_valid = tf.cast(contrasts.is_valid, tf.float32)[:, tf.newaxis]
    ones = tf.ones_like(is_valid)
    class_sums = sum_over_classes(  # [R, D + 1]
        is_valid * tf.concat([contrasts.vectors, ones], axis=1)
    )
    num_positives = class_sums[:, -1] - self_weights
    # Products of soft labels leave a rounding error where no row is positive.
    has_positive = num_positives > _ROUNDING * class_sums[:, -1]
    num_positives = tf.where(has_positive, num_positives, 0.0)  # [R]

    @tf.custom_gradient
    def mean(
        z: tf.Tensor, class_vectors: tf.Tensor, vectors: tf.Tensor
    ) -> tuple:
        self_vectors = self_weights[:, tf.newaxis] * z  # [R, D]
        positive_sums = class_vectors - self_vectors  # [R, D]
        similarity = tf.reduce_sum(z * positive_sums, axis=1)  # [R]

        def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, None, None]:
            shares = tf.math.divide_no_nan(upstream, num_positives)
            # The gradient of a view as a positive of other anchors.
            positive_gradient = sum_over_classes(
                batch.to_contrasts(shares)[:, tf.newaxis] * vectors
            )
            shares = shares[:, tf.newaxis]  # [R, 1]
            result = shares * (positive_sums - self_vectors)  # [R, D]
            result += positive_gradient
            if not batch.is_single_replica:
                result = streaming.refuse_derivatives(result)
            return result, None, None

        return tf.math.divide_no_nan(similarity, num_positives), gradient

    similarity = mean(anchors.vectors, class_sums[:, :-1], contrasts.vectors)
    return similarity, num_positives


def _losses_by_windows(
    batch: _Batch, positives: positive_weights.Classes
) -> tf.Tensor:
    """Returns the losses [R] by any options, in windows of classes."""
    classes = tf.gather(positives.classes, batch.contrasts.samples)  # [M]
    # Rows that are in no A(i) come last, as a class without anchors.
    absent_class = tf.size(classes)
    classes = tf.where(batch.contrasts.is_valid, classes, absent_class)
    anchor_classes = classes[: tf.size(batch.anchors.numbers)]  # [R]
    order = tf.argsort(anchor_classes, stable=True)
    by_class = dataclasses.replace(
        batch,
        anchors=batch.anchors.gather(order),
        contrasts=batch.contrasts.gather(tf.argsort(classes, stable=True)),
    )
    # Not tf.searchsorted, which takes no empty values: a replica may have none.
    sorted_classes = tf.sort(classes)[tf.newaxis]
    sorted_anchor_classes = tf.sort(anchor_classes)[tf.newaxis]
    window = tuple(  # [R] each
        bound(sorted_inputs=sorted_classes, values=sorted_anchor_classes)[0]
        for bound in (tf.raw_ops.LowerBound, tf.raw_ops.UpperBound)
    )
    losses = strips.losses(
        by_class.anchors,
        by_class.contrasts,
        positives,
        batch.options,
        window,
        by_class.log_sum_exp(window),
    )
    return tf.gather(losses, tf.argsort(order))
