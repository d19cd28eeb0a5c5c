"""The supervised contrastive loss in memory that grows linearly.

Views are sorted by class. Then the positives of a strip of anchors lie in a
window of few columns, and `pairs` takes the formula there; all that it needs
from beyond is log sum_{n in N(i)} exp(s_in), which `streaming` sums. Of several
labels, or of a mask, the window is the whole row.

Eq. 2 with the denominator of all pairs needs no window:

  L_i = log sum_{a in A(i)} exp(s_ia) - mean_{p in P(i)} s_ip

and what the positives add up to follows from the sum of their class.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import tensorflow as tf

from supcon_tf import distribute, exceptions
from supcon_tf.losses import inputs, pairs, positive_weights, streaming
from supcon_tf.losses.options import Options

_STRIP = 128  # anchors: the fewer, the fewer pairs beside the positives
_WIDTHS = 256, 512, 1024, 4096  # of windows; the widest is the whole row

_ROUNDING = 1e-6  # a million equal classes of one are still apart
_ZERO = tf.UnconnectedGradients.ZERO
Queue = tuple[tf.Tensor, tf.Tensor, tf.Tensor]  # as `ProjectionQueue.rows`
Window = tuple[tf.Tensor, tf.Tensor]  # first and stop, [R] int32 each


def tiled_supcon_loss(
    projections: tf.Tensor,
    labels: tf.Tensor | None = None,
    *,
    positive_mask: tf.Tensor | None = None,
    tile_rows: int | None = None,
    unit_length: bool = False,
    cross_replica: bool = False,
    **options: object,
) -> tf.Tensor:
    """`supcon_loss`, the same value and gradient, without any [A, M] matrix.

      projections: [batch, views, dim] or [batch, dim], any float; of this
        replica. Computed in float32, not normalised.
      labels, positive_mask: as in `supcon_loss`; the mask is [batch, batch],
        on one replica. The options without a line here are `SupConLoss`'s.
      tile_rows: rows of a tile, and looped; None chooses.
      unit_length: a promise that all projections have length 1.
      cross_replica: contrast with the views of all replicas.

    Example:
      >>> import numpy as np
      >>> from supcon_tf import losses
      >>> same = np.ones([512, 2, 1], np.float32)  # 1,024 rows
      >>> loss = losses.tiled_supcon_loss(same, np.arange(512) // 2)
      >>> round(float(loss[0]), 3), round(losses.chance_loss(1023, 0.1), 3)
      (0.693, 0.693)

    Returns [batch] float32, nats (times tau where scaled), the mean over views.
    Raises ValueError for a shape, dtype or option that is none of these.
    """
    z = inputs.as_views(projections, "projections")
    options = Options(**options)
    positives = None
    if positive_mask is not None:
        exceptions.require(
            labels is None and not cross_replica,
            "`positive_mask` must be without labels, and of one replica",
            "both",
        )
        positives = positive_weights.Given(tf.cast(positive_mask, tf.float32))
        shape = [z.shape[0]] * 2
        inputs.check_shape("positive_mask", positives.mask, shape)
    elif labels is None:
        labels = inputs.sample_ids(z)
    (losses,) = losses_by_labels(
        z,
        [labels],
        options,
        positives=positives,
        unit_length=unit_length,
        cross_replica=cross_replica,
        tile_rows=tile_rows,
    )
    return losses


def losses_by_labels(
    z: tf.Tensor,
    labels: Sequence[tf.Tensor],
    options: Options,
    *,
    unit_length: bool,
    cross_replica: bool,
    positives: positive_weights.Weights | None = None,
    queue: Queue | None = None,
    tile_rows: int | None = None,
    at_once: bool = False,
) -> list[tf.Tensor]:
    """`tiled_supcon_loss` by several labels of the same samples, [B] each.

    Takes z [B, V, D] float32, and labels as `y_true` of `SupConLoss`, or in
    their place positives on one replica. What is the same by all labels is
    computed once. `at_once` takes all pairs at once.
    """
    options.check_views(z.shape[1])
    exceptions.require(
        tile_rows is None or tile_rows >= 1,
        "`tile_rows` must be at least 1",
        tile_rows,
    )
    alone = not cross_replica or distribute.replicas_in_sync() == 1
    by_sums = options.is_plain and not at_once and positives is None
    views_of_all, queued, is_filled = z, tf.zeros([0, z.shape[2]]), None
    if positives is None:
        labels = [_canonical(x, z, options.positives) for x in labels]
        # By sums each replica computes the gradient of its own views.
        sent = tf.stop_gradient(z) if by_sums else z
        # This replica's samples come first.
        views_of_all, *labels = inputs.gather(not alone, sent, *labels)
    if queue is not None:
        queued, labels_of_queue, is_filled = queue
        labels = [tf.concat([x, labels_of_queue], axis=0) for x in labels]
    is_symmetric = alone and queue is None

    def of_contrasts(
        anchors: pairs.Rows, contrasts: pairs.Rows, numbers: tf.Tensor
    ) -> tf.Tensor:
        """Numbers of the anchors of all replicas, [M], 0 of a queue."""
        numbers = tf.gather(numbers, tf.argsort(anchors.numbers))
        (numbers,) = inputs.gather(not alone, numbers)
        numbers = tf.pad(numbers, [[0, tf.shape(queued)[0]]])
        return tf.gather(numbers, contrasts.numbers)

    def log_sum_exp(
        anchors: pairs.Rows, contrasts: pairs.Rows, window: Window | None = None
    ) -> tf.Tensor:
        return streaming.log_sum_exp(
            anchors.vectors,
            None if is_symmetric else tf.stop_gradient(contrasts.vectors),
            window,
            hidden=~contrasts.is_there,
            of_columns=functools.partial(of_contrasts, anchors, contrasts),
            scale=1 / options.temperature + options.hardness,
            slope=1 / options.temperature,
            unit_length=unit_length,
            tile_rows=tile_rows,
        )

    contrasts = pairs.rows_of(views_of_all, queued[:, tf.newaxis], is_filled)
    anchors = contrasts.of_batch(z)
    log_d, losses = None, []
    for x in labels:
        alike = positives or positive_weights.of_labels(x, options.positives)
        if at_once:
            value = pairs.losses(anchors, contrasts, alike, options)
        elif by_sums:
            if log_d is None:
                log_d = log_sum_exp(anchors, contrasts)
            share = functools.partial(of_contrasts, anchors, contrasts)
            similarity, total = _positives(anchors, contrasts, alike, share)
            losses_of_views = log_d - similarity / options.temperature
            value = tf.where(total > 0, losses_of_views, 0.0)
        elif isinstance(alike, positive_weights.Classes):
            value = _by_classes(anchors, contrasts, alike, options, log_sum_exp)
        else:
            value = _strips(anchors, contrasts, alike, options)
        losses.append(tf.reshape(value, [-1, z.shape[1]]))  # [B, V]
    views = 1 if options.anchor_views == "first" else None
    scale = options.temperature if options.scale_by_temperature else 1.0
    return [scale * tf.reduce_mean(x[:, :views], axis=1) for x in losses]


def _canonical(labels: tf.Tensor, z: tf.Tensor, kind: str | None) -> tf.Tensor:
    labels = positive_weights.canonical(labels, kind)
    inputs.check_shape("labels", labels, [z.shape[0], *labels.shape[1:]])
    return labels


def _positives(
    anchors: pairs.Rows,
    contrasts: pairs.Rows,
    alike: positive_weights.Labels,
    of_contrasts: Callable[[tf.Tensor], tf.Tensor],
) -> tuple[tf.Tensor, tf.Tensor]:
    """Mean of z_i . z_p over P(i), and |P(i)|, [R] each.

    Two samples weigh as much from both sides, so that the gradient of a view as
    a positive is a sum over its own positives, too.
    """
    count = anchors.samples[-1] + 1
    itself = tf.gather(alike.of_itself(count), anchors.samples)  # [R]

    def sums(of_rows: tf.Tensor) -> tf.Tensor:
        """Of numbers [M, N] of the contrasts over the class of each anchor."""
        by_sample = tf.math.unsorted_segment_sum(
            of_rows, contrasts.samples, contrasts.samples[-1] + 1
        )
        return tf.gather(alike.sums(by_sample, count), anchors.samples)

    there = tf.cast(contrasts.is_there, tf.float32)[:, tf.newaxis]
    vectors = tf.stop_gradient(contrasts.vectors)
    of_class = sums(there * tf.concat([vectors, tf.ones_like(there)], axis=1))
    total = of_class[:, -1] - itself
    # Products of soft labels leave a rounding of what is no positive.
    total = tf.where(total > _ROUNDING * of_class[:, -1], total, 0.0)

    @tf.custom_gradient
    def mean(z: tf.Tensor) -> tuple:
        others = of_class[:, :-1] - itself[:, tf.newaxis] * z  # [R, D]
        similarity = tf.reduce_sum(z * others, axis=1)

        def gradient(upstream: tf.Tensor) -> tf.Tensor:
            shares = tf.math.divide_no_nan(upstream, total)
            as_positive = sums(of_contrasts(shares)[:, tf.newaxis] * vectors)
            shares = shares[:, tf.newaxis]
            return shares * (others - itself[:, tf.newaxis] * z) + as_positive

        return tf.math.divide_no_nan(similarity, total), gradient

    return mean(anchors.vectors), total


def _by_classes(
    anchors: pairs.Rows,
    contrasts: pairs.Rows,
    alike: positive_weights.Classes,
    options: Options,
    log_sum_exp: Callable[..., tf.Tensor],
) -> tf.Tensor:
    """Any options, [R], in windows of classes."""
    classes = tf.gather(alike.classes, contrasts.samples)
    # What is not there comes last, and is no one's positive.
    nobody = tf.size(classes)
    classes = tf.where(contrasts.is_there, classes, nobody)
    of_anchors = classes[: tf.size(anchors.numbers)]
    contrasts = contrasts.gather(tf.argsort(classes, stable=True))
    order = tf.argsort(of_anchors, stable=True)
    anchors = anchors.gather(order)
    window = tuple(
        tf.searchsorted(tf.sort(classes), tf.sort(of_anchors), side)
        for side in ("left", "right")
    )
    log_negatives = log_sum_exp(anchors, contrasts, window)
    losses = _strips(anchors, contrasts, alike, options, window, log_negatives)
    return tf.gather(losses, tf.argsort(order))


def _strips(
    anchors: pairs.Rows,
    contrasts: pairs.Rows,
    positives: positive_weights.Weights,
    options: Options,
    window: Window | None = None,
    log_negatives: tf.Tensor | None = None,
) -> tf.Tensor:
    """`pairs.losses` [R], some anchors at a time, and anew for the gradient.

    `window` is first and stop of the contrasts that each anchor needs, [R]
    each, rising; None for all of them.
    """
    count, columns = tf.size(anchors.numbers), tf.size(contrasts.numbers)
    strips = (count + _STRIP - 1) // _STRIP
    sources = [anchors.vectors, contrasts.vectors]
    if log_negatives is not None:
        sources.append(log_negatives)

    def strip(a: tf.Tensor) -> tf.Tensor:
        """Numbers of anchors; the last strip repeats the last of them."""
        return tf.minimum(a * _STRIP + tf.range(_STRIP), count - 1)

    def in_window(a: tf.Tensor, function: Callable) -> object:
        """The function of the numbers of the contrasts, None for all."""
        if window is None:
            return function(None)
        first, stop = window[0][strip(a)[0]], window[1][strip(a)[-1]]

        def within(width: int | tf.Tensor) -> object:
            width = tf.minimum(width, columns)
            return function(
                tf.minimum(first, columns - width) + tf.range(width)
            )

        is_wider = [tf.cast(stop - first > x, tf.int32) for x in _WIDTHS]
        branches = [functools.partial(within, x) for x in (*_WIDTHS, columns)]
        return tf.switch_case(tf.add_n(is_wider), branches)

    def losses(a: tf.Tensor, near: tf.Tensor, *parts: tf.Tensor) -> tf.Tensor:
        """[T] of a strip, by its parts of the sources."""
        vectors, others, *log_n = parts
        return pairs.losses(
            anchors.gather(strip(a))._replace(vectors=vectors),
            pairs.Rows(*(_part(x, near) for x in contrasts))._replace(
                vectors=others
            ),
            positives,
            options,
            *log_n,
        )

    @tf.custom_gradient
    def compute(*sources: tf.Tensor) -> tuple:
        def places(a: tf.Tensor, near: tf.Tensor) -> tuple[tf.Tensor, ...]:
            """Where the parts are in the sources."""
            return (strip(a), near, strip(a))[: len(sources)]

        def parts(a: tf.Tensor, near: tf.Tensor) -> list[tf.Tensor]:
            return list(map(_part, sources, places(a, near)))

        def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, ...]:
            def add_strip(a: tf.Tensor, *sums: tf.Tensor) -> tuple:
                is_new = a * _STRIP + tf.range(_STRIP) < count
                weights = tf.where(is_new, tf.gather(upstream, strip(a)), 0.0)

                def add(near: tf.Tensor) -> list[tf.Tensor]:
                    with tf.GradientTape() as tape:
                        watched = parts(a, near)
                        tape.watch(watched)
                        value = losses(a, near, *watched)
                    pulls = tape.gradient(value, watched, weights, _ZERO)
                    return list(map(_add, sums, places(a, near), pulls))

                return a + 1, *in_window(a, add)

            _, *sums = tf.while_loop(
                lambda a, *_: a < strips,
                add_strip,
                (0, *map(tf.zeros_like, sources)),
            )
            return tuple(sums)

        value = tf.map_fn(
            lambda a: in_window(
                a, lambda near: losses(a, near, *parts(a, near))
            ),
            tf.range(strips),
            fn_output_signature=tf.TensorSpec([_STRIP], tf.float32),
        )
        return tf.reshape(value, [-1])[:count], gradient

    return compute(*sources)


def _part(tensor: tf.Tensor, places: tf.Tensor | None) -> tf.Tensor:
    return tensor if places is None else tf.gather(tensor, places)


def _add(
    total: tf.Tensor, places: tf.Tensor | None, part: tf.Tensor
) -> tf.Tensor:
    if places is None:
        return total + part
    return tf.tensor_scatter_nd_add(total, places[:, tf.newaxis], part)
