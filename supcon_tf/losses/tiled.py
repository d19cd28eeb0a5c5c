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

from supcon_tf import distribute
from supcon_tf.losses import inputs, pairs, positive_weights, streaming
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
    mask: positive_weights.Given | None = None,
    further: pairs.Further | None = None,
    tile_rows: int | None = None,
    at_once: bool = False,
) -> list[tf.Tensor]:
    """The loss [B] by each of several labels of the same samples.

    What is the same by all labels is computed once.

    Args:
      z: [B, V, D] float32, views of this replica.
      labels: [B] or [B, classes] each, of `positive_weights.canonical`.
      options: of the loss.
      unit_length: a promise that all projections have length 1.
      cross_replica: contrast with the views of all replicas.
      mask: the positives in place of labels, on one replica.
      further: contrasts that are no anchors.
      tile_rows: rows of a tile, and looped; None chooses.
      at_once: take all pairs at once, in [A, M] matrices.
    """
    options.check_views(z.shape[1])
    alone = not cross_replica or distribute.replicas_in_sync() == 1
    by_sums = options.is_plain and not at_once and mask is None
    # By sums each replica computes the gradient of its own views.
    sent = tf.stop_gradient(z) if by_sums else z
    # This replica's samples come first.
    views_of_all, *labels = inputs.gather(not alone, sent, *labels)
    contrasts = pairs.rows_of(views_of_all, further)
    anchors = contrasts.of_batch(z)
    weights = [mask]
    if mask is None:
        if further is not None:
            labels = [tf.concat([y, further.labels], axis=0) for y in labels]
        kind = options.positives
        weights = [positive_weights.of_labels(y, kind) for y in labels]

    def of_contrasts(
        anchors: pairs.Rows, contrasts: pairs.Rows, numbers: tf.Tensor
    ) -> tf.Tensor:
        """Numbers of the anchors of all replicas, [M], 0 of what is none."""
        numbers = tf.gather(numbers, tf.argsort(anchors.numbers))
        (numbers,) = inputs.gather(not alone, numbers)
        others = tf.size(contrasts.numbers) - tf.size(numbers)
        return tf.gather(tf.pad(numbers, [[0, others]]), contrasts.numbers)

    def log_sum_exp(
        anchors: pairs.Rows, contrasts: pairs.Rows, window: Window | None = None
    ) -> tf.Tensor:
        is_symmetric = alone and further is None
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

    log_d = log_sum_exp(anchors, contrasts) if by_sums else None

    def losses(positives: positive_weights.Weights) -> tf.Tensor:
        """L_i of all views, [B * V]."""
        if at_once:
            return pairs.losses(anchors, contrasts, positives, options)
        if by_sums:
            share = functools.partial(of_contrasts, anchors, contrasts)
            similarity, total = _positives(anchors, contrasts, positives, share)
            value = log_d - similarity / options.temperature
            return tf.where(total > 0, value, 0.0)
        if isinstance(positives, positive_weights.Classes):
            return _by_classes(
                anchors, contrasts, positives, options, log_sum_exp
            )
        return _strips(anchors, contrasts, positives, options)

    views = 1 if options.anchor_views == "first" else None
    scale = options.temperature if options.scale_by_temperature else 1.0

    def mean(losses: tf.Tensor) -> tf.Tensor:
        of_views = tf.reshape(losses, [-1, z.shape[1]])[:, :views]  # [B, V]
        return scale * tf.reduce_mean(of_views, axis=1)

    return [mean(losses(positives)) for positives in weights]


def _positives(
    anchors: pairs.Rows,
    contrasts: pairs.Rows,
    positives: positive_weights.Labels,
    of_contrasts: Callable[[tf.Tensor], tf.Tensor],
) -> tuple[tf.Tensor, tf.Tensor]:
    """Mean of z_i . z_p over P(i), and |P(i)|, [R] each.

    Two samples weigh as much from both sides, so that the gradient of a view as
    a positive is a sum over its own positives, too.
    """
    count = anchors.samples[-1] + 1
    itself = tf.gather(positives.of_itself(count), anchors.samples)  # [R]

    def sums(of_rows: tf.Tensor) -> tf.Tensor:
        """Of numbers [M, N] of the contrasts over the class of each anchor."""
        by_sample = tf.math.unsorted_segment_sum(
            of_rows, contrasts.samples, contrasts.samples[-1] + 1
        )
        return tf.gather(positives.sums(by_sample, count), anchors.samples)

    is_there = tf.cast(contrasts.is_there, tf.float32)[:, tf.newaxis]
    vectors = tf.stop_gradient(contrasts.vectors)
    ones = tf.ones_like(is_there)
    of_class = sums(is_there * tf.concat([vectors, ones], axis=1))  # [R, D + 1]
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
    positives: positive_weights.Classes,
    options: Options,
    log_sum_exp: Callable[..., tf.Tensor],
) -> tf.Tensor:
    """Any options, [R], in windows of classes."""
    classes = tf.gather(positives.classes, contrasts.samples)
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
    losses = _strips(
        anchors, contrasts, positives, options, window, log_negatives
    )
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
    count, num_contrasts = tf.size(anchors.numbers), tf.size(contrasts.numbers)
    strips = (count + _STRIP - 1) // _STRIP
    sources = [anchors.vectors, contrasts.vectors]
    if log_negatives is not None:
        sources.append(log_negatives)

    def rows_of(strip: tf.Tensor) -> tf.Tensor:
        """Numbers of its anchors, [T]; the last strip repeats the last one."""
        return tf.minimum(strip * _STRIP + tf.range(_STRIP), count - 1)

    def in_window(strip: tf.Tensor, function: Callable) -> object:
        """The function of the numbers of the contrasts, None for all."""
        if window is None:
            return function(None)
        rows = rows_of(strip)
        first, stop = window[0][rows[0]], window[1][rows[-1]]

        def within(width: int | tf.Tensor) -> object:
            width = tf.minimum(width, num_contrasts)
            begin = tf.minimum(first, num_contrasts - width)
            return function(begin + tf.range(width))

        widths = *_WIDTHS, num_contrasts
        is_wider = [
            tf.cast(stop - first > width, tf.int32) for width in _WIDTHS
        ]
        return tf.switch_case(
            tf.add_n(is_wider), [functools.partial(within, w) for w in widths]
        )

    def losses(
        strip: tf.Tensor, columns: tf.Tensor | None, *parts: tf.Tensor
    ) -> tf.Tensor:
        """[T] of a strip, by its parts of the sources."""
        vectors, others, *log_n = parts
        of_window = pairs.Rows(
            *(_part(of_all, columns) for of_all in contrasts)
        )
        return pairs.losses(
            anchors.gather(rows_of(strip))._replace(vectors=vectors),
            of_window._replace(vectors=others),
            positives,
            options,
            *log_n,
        )

    @tf.custom_gradient
    def compute(*sources: tf.Tensor) -> tuple:
        def indices(
            strip: tf.Tensor, columns: tf.Tensor | None
        ) -> tuple[tf.Tensor | None, ...]:
            """Those of the parts of a strip in the sources."""
            rows = rows_of(strip)
            return (rows, columns, rows)[: len(sources)]

        def parts(
            strip: tf.Tensor, columns: tf.Tensor | None
        ) -> list[tf.Tensor]:
            return list(map(_part, sources, indices(strip, columns)))

        def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, ...]:
            def add_strip(strip: tf.Tensor, *sums: tf.Tensor) -> tuple:
                is_new = strip * _STRIP + tf.range(_STRIP) < count
                weights = tf.gather(upstream, rows_of(strip))
                weights = tf.where(is_new, weights, 0.0)

                def add(columns: tf.Tensor | None) -> list[tf.Tensor]:
                    with tf.GradientTape() as tape:
                        watched = parts(strip, columns)
                        tape.watch(watched)
                        value = losses(strip, columns, *watched)
                    pulls = tape.gradient(value, watched, weights, _ZERO)
                    return list(map(_add, sums, indices(strip, columns), pulls))

                return strip + 1, *in_window(strip, add)

            _, *sums = tf.while_loop(
                lambda strip, *_: strip < strips,
                add_strip,
                (0, *map(tf.zeros_like, sources)),
            )
            return tuple(sums)

        def of_strip(strip: tf.Tensor) -> tf.Tensor:
            return in_window(
                strip,
                lambda columns: losses(strip, columns, *parts(strip, columns)),
            )

        value = tf.map_fn(
            of_strip,
            tf.range(strips),
            fn_output_signature=tf.TensorSpec([_STRIP], tf.float32),
        )
        return tf.reshape(value, [-1])[:count], gradient

    return compute(*sources)


def _part(tensor: tf.Tensor, indices: tf.Tensor | None) -> tf.Tensor:
    return tensor if indices is None else tf.gather(tensor, indices)


def _add(
    total: tf.Tensor, indices: tf.Tensor | None, part: tf.Tensor
) -> tf.Tensor:
    if indices is None:
        return total + part
    return tf.tensor_scatter_nd_add(total, indices[:, tf.newaxis], part)
