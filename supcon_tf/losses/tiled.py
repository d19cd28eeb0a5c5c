"""The supervised contrastive loss in memory that grows linearly.

Views are sorted by class. Then the positives of a strip of anchors lie in a
window of few columns, and `pairs` takes the formula there; all that it needs of
the other columns is log sum_{n in N(i)} exp(s_in), which `streaming` sums. With
several labels per sample, or a mask, the window is the whole row.

Eq. 2 with the denominator of all pairs needs no window:

  L_i = log sum_{a in A(i)} exp(s_ia) - mean_{p in P(i)} s_ip

and the sum over the positives follows from the sum over their class.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import tensorflow as tf

from supcon_tf import distribute
from supcon_tf.losses import (
    inputs,
    log_space,
    pairs,
    positive_weights,
    streaming,
)
from supcon_tf.losses.options import Options

_STRIP = 128  # anchors: the fewer, the fewer pairs beside the positives
_WIDTHS = 256, 512, 1024, 4096  # of windows; the widest is the whole row

_ROUNDING = 1e-6  # a million equal classes of one are still apart
_ZERO = tf.UnconnectedGradients.ZERO
Window = tuple[tf.Tensor, tf.Tensor]  # first and stop, [R] int32 each


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
    anchors = contrasts.select_anchors(z)
    weights = [mask]
    if mask is None:
        if extras is not None:
            labels = [
                tf.concat([sample_labels, extras.labels], axis=0)
                for sample_labels in labels
            ]
        kind = options.positives
        weights = [
            positive_weights.from_labels(sample_labels, kind)
            for sample_labels in labels
        ]

    def to_contrasts(
        anchors: pairs.Rows, contrasts: pairs.Rows, values: tf.Tensor
    ) -> tf.Tensor:
        """Returns values of the anchors, of all replicas, for contrasts [M].

        A contrast that is no anchor has the value 0.
        """
        values = tf.gather(values, tf.argsort(anchors.numbers))
        (values,) = inputs.gather(not is_single_replica, values)
        num_others = tf.size(contrasts.numbers) - tf.size(values)
        return tf.gather(tf.pad(values, [[0, num_others]]), contrasts.numbers)

    def log_sum_exp(
        anchors: pairs.Rows, contrasts: pairs.Rows, window: Window | None = None
    ) -> tf.Tensor:
        is_symmetric = is_single_replica and extras is None
        return streaming.log_sum_exp(
            anchors.vectors,
            None if is_symmetric else contrasts.vectors,
            window,
            is_hidden=~contrasts.is_valid,
            to_columns=functools.partial(to_contrasts, anchors, contrasts),
            scale=1 / options.temperature + options.hardness,
            slope=1 / options.temperature,
            unit_length=unit_length,
            has_derivatives=is_single_replica and not options.hardness,
            tile_rows=tile_rows,
        )

    log_d = log_sum_exp(anchors, contrasts) if is_streamed else None

    def row_losses(positives: positive_weights.Weights) -> tf.Tensor:
        """Returns L_i of all views, [B * V]."""
        if is_dense:
            return pairs.losses(anchors, contrasts, positives, options)
        if is_streamed:
            similarity, num_positives = _mean_similarity(
                anchors,
                contrasts,
                positives,
                functools.partial(to_contrasts, anchors, contrasts),
                has_derivatives=is_single_replica,
            )
            loss = log_d - similarity / options.temperature
            return log_space.zero_unless(num_positives > 0, loss)
        if isinstance(positives, positive_weights.Classes):
            return _losses_by_windows(
                anchors, contrasts, positives, options, log_sum_exp
            )
        return _losses_by_strips(anchors, contrasts, positives, options)

    views = 1 if options.anchor_views == "first" else None
    scale = options.temperature if options.scale_by_temperature else 1.0

    def sample_means(losses: tf.Tensor) -> tf.Tensor:
        losses = tf.reshape(losses, [-1, z.shape[1]])[:, :views]  # [B, V]
        return scale * tf.reduce_mean(losses, axis=1)

    return [sample_means(row_losses(positives)) for positives in weights]


def _mean_similarity(
    anchors: pairs.Rows,
    contrasts: pairs.Rows,
    positives: positive_weights.Labels,
    to_contrasts: Callable[[tf.Tensor], tf.Tensor],
    *,
    has_derivatives: bool,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the mean of z_i . z_p over P(i), and |P(i)|, [R] each.

    Two samples weigh as much from both sides, so that the gradient of a view as
    a positive is a sum over its own positives, too. `has_derivatives` is as in
    `streaming.log_sum_exp`.
    """
    count = anchors.samples[-1] + 1  # samples of the anchors
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
                to_contrasts(shares)[:, tf.newaxis] * vectors
            )
            shares = shares[:, tf.newaxis]  # [R, 1]
            result = shares * (positive_sums - self_vectors)  # [R, D]
            result += positive_gradient
            if not has_derivatives:
                result = streaming.refuse_derivatives(result)
            return result, None, None

        return tf.math.divide_no_nan(similarity, num_positives), gradient

    similarity = mean(anchors.vectors, class_sums[:, :-1], contrasts.vectors)
    return similarity, num_positives


def _losses_by_windows(
    anchors: pairs.Rows,
    contrasts: pairs.Rows,
    positives: positive_weights.Classes,
    options: Options,
    log_sum_exp: Callable[..., tf.Tensor],
) -> tf.Tensor:
    """Returns the losses [R] by any options, in windows of classes."""
    classes = tf.gather(positives.classes, contrasts.samples)  # [M]
    # Rows that are in no A(i) come last, as a class without anchors.
    absent_class = tf.size(classes)
    classes = tf.where(contrasts.is_valid, classes, absent_class)
    anchor_classes = classes[: tf.size(anchors.numbers)]  # [R]
    contrasts = contrasts.gather(tf.argsort(classes, stable=True))
    order = tf.argsort(anchor_classes, stable=True)
    anchors = anchors.gather(order)
    window = tuple(  # [R] each
        tf.searchsorted(tf.sort(classes), tf.sort(anchor_classes), side)
        for side in ("left", "right")
    )
    log_negatives = log_sum_exp(anchors, contrasts, window)
    losses = _losses_by_strips(
        anchors, contrasts, positives, options, window, log_negatives
    )
    return tf.gather(losses, tf.argsort(order))


def _losses_by_strips(
    anchors: pairs.Rows,
    contrasts: pairs.Rows,
    positives: positive_weights.Weights,
    options: Options,
    window: Window | None = None,
    log_negatives: tf.Tensor | None = None,
) -> tf.Tensor:
    """Returns `pairs.losses` [R], computed for T anchors at a time.

    The gradient computes them again, so that no [R, M] matrix is held. `window`
    is first and stop of the contrasts that each anchor needs, [R] each, rising;
    None for all contrasts.
    """
    count, num_contrasts = tf.size(anchors.numbers), tf.size(contrasts.numbers)
    strips = (count + _STRIP - 1) // _STRIP
    sources = [anchors.vectors, contrasts.vectors]
    if log_negatives is not None:
        sources.append(log_negatives)

    def strip_rows(strip: tf.Tensor) -> tf.Tensor:
        """Returns indices of anchors [T]; the last strip repeats the last."""
        return tf.minimum(strip * _STRIP + tf.range(_STRIP), count - 1)

    def strip_losses(
        rows: tf.Tensor, columns: tf.Tensor | None, tensors: list[tf.Tensor]
    ) -> tf.Tensor:
        """Returns the losses [T] of a strip, by its part of each source."""
        anchor_vectors, contrast_vectors, *log_n = tensors
        strip_contrasts = pairs.Rows(
            *(_gather(field, columns) for field in contrasts)
        )
        return pairs.losses(
            anchors.gather(rows)._replace(vectors=anchor_vectors),
            strip_contrasts._replace(vectors=contrast_vectors),
            positives,
            options,
            *log_n,
        )

    @tf.custom_gradient
    def compute(*sources: tf.Tensor) -> tuple:
        def gather_sources(
            rows: tf.Tensor, columns: tf.Tensor | None
        ) -> list[tf.Tensor]:
            # `map` ends with the sources: the third may be absent.
            return list(map(_gather, sources, (rows, columns, rows)))

        def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, ...]:
            def add_strip(strip: tf.Tensor, *sums: tf.Tensor) -> tuple:
                rows = strip_rows(strip)
                # The repeated anchors of the last strip count once.
                is_new = strip * _STRIP + tf.range(_STRIP) < count  # [T]
                weights = tf.where(is_new, tf.gather(upstream, rows), 0.0)

                def add(columns: tf.Tensor | None) -> list[tf.Tensor]:
                    with tf.GradientTape() as tape:
                        tensors = gather_sources(rows, columns)
                        tape.watch(tensors)
                        value = strip_losses(rows, columns, tensors)
                    gradients = tape.gradient(value, tensors, weights, _ZERO)
                    indices = rows, columns, rows
                    return list(map(_scatter_add, sums, indices, gradients))

                new_sums = _call_in_window(add, rows, window, num_contrasts)
                return strip + 1, *new_sums

            _, *sums = tf.while_loop(
                lambda strip, *_: strip < strips,
                add_strip,
                (0, *map(tf.zeros_like, sources)),
            )
            return tuple(sums)

        def compute_strip(strip: tf.Tensor) -> tf.Tensor:
            rows = strip_rows(strip)
            return _call_in_window(
                lambda columns: strip_losses(
                    rows, columns, gather_sources(rows, columns)
                ),
                rows,
                window,
                num_contrasts,
            )

        value = tf.map_fn(
            compute_strip,
            tf.range(strips),
            fn_output_signature=tf.TensorSpec([_STRIP], tf.float32),
        )
        return tf.reshape(value, [-1])[:count], gradient

    return compute(*sources)


def _call_in_window(
    function: Callable[[tf.Tensor | None], object],
    rows: tf.Tensor,
    window: Window | None,
    num_contrasts: tf.Tensor,
) -> object:
    """Calls a function of the indices of the contrasts that anchors need.

    `rows` are the indices of the anchors, rising. The function gets None for
    all contrasts.
    """
    if window is None:
        return function(None)
    first, stop = window[0][rows[0]], window[1][rows[-1]]

    def call_of_width(width: int | tf.Tensor) -> object:
        width = tf.minimum(width, num_contrasts)
        start = tf.minimum(first, num_contrasts - width)
        return function(start + tf.range(width))

    is_wider = [tf.cast(stop - first > width, tf.int32) for width in _WIDTHS]
    widths = *_WIDTHS, num_contrasts
    return tf.switch_case(
        tf.add_n(is_wider),
        [functools.partial(call_of_width, width) for width in widths],
    )


def _gather(tensor: tf.Tensor, indices: tf.Tensor | None) -> tf.Tensor:
    """Returns the rows with these indices; None for all rows."""
    return tensor if indices is None else tf.gather(tensor, indices)


def _scatter_add(
    total: tf.Tensor, indices: tf.Tensor | None, part: tf.Tensor
) -> tf.Tensor:
    """Adds a part to the rows with these indices; None for all rows."""
    if indices is None:
        return total + part
    return tf.tensor_scatter_nd_add(total, indices[:, tf.newaxis], part)
