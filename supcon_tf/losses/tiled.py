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
_WIDTHS = 256, 1024, 4096  # of windows; the widest is the whole row

_ZERO = tf.UnconnectedGradients.ZERO
Queue = tuple[tf.Tensor, tf.Tensor, tf.Tensor]  # as `ProjectionQueue.rows`


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
    if positive_mask is not None:
        exceptions.require(
            labels is None and not cross_replica,
            "`positive_mask` must be without labels, and of one replica",
            "both",
        )
        mask = tf.cast(positive_mask, tf.float32)
        inputs.check_shape("positive_mask", mask, [z.shape[0]] * 2)
        labels = positive_weights.Given(mask)
    else:
        if labels is None:
            labels = inputs.sample_ids(z)
        labels = positive_weights.canonical(labels, options.positives)
        inputs.check_shape("labels", labels, [z.shape[0], *labels.shape[1:]])
    (losses,) = losses_by_labels(
        z,
        [labels],
        options,
        unit_length=unit_length,
        cross_replica=cross_replica,
        tile_rows=tile_rows,
    )
    return losses


def losses_by_labels(
    z: tf.Tensor,
    labels: Sequence[tf.Tensor | positive_weights.Given],
    options: Options,
    *,
    unit_length: bool,
    cross_replica: bool,
    queue: Queue | None = None,
    tile_rows: int | None = None,
    at_once: bool = False,
) -> list[tf.Tensor]:
    """`tiled_supcon_loss` by several labels of the same samples, [B] each.

    Takes z [B, V, D] float32 and labels as `positive_weights.canonical` returns
    them; `at_once` takes all pairs at once, in one window. What is the same by
    all labels is computed once.
    """
    options.check_views(z.shape[1])
    exceptions.require(
        tile_rows is None or tile_rows >= 1,
        "`tile_rows` must be at least 1",
        tile_rows,
    )
    batch = _Batch(z, labels, options, cross_replica, queue)
    streamed = {
        "scale": 1 / options.temperature,
        "unit_length": unit_length,
        "tile_rows": tile_rows,
    }
    if at_once:
        losses = [batch.losses_at_once(x, options) for x in batch.positives]
    elif options.is_plain:
        log_d = batch.log_sum_over_all(**streamed)
        losses = [
            batch.plain_losses(log_d, x, options) for x in batch.positives
        ]
    else:
        losses = [
            batch.losses_in_windows(x, options, streamed)
            for x in batch.positives
        ]
    by_views = (tf.reshape(x, [-1, z.shape[1]]) for x in losses)
    if options.anchor_views == "first":
        by_views = (x[:, :1] for x in by_views)
    scale = options.temperature if options.scale_by_temperature else 1.0
    return [scale * tf.reduce_mean(x, axis=1) for x in by_views]


class _Batch:
    """What the anchors of a replica are contrasted with.

    The samples of all replicas, S, this replica's B first, and behind their V
    views the Q rows of a queue: M rows, of which the first R = B * V are the
    anchors.
    """

    def __init__(
        self,
        z: tf.Tensor,
        labels: Sequence[tf.Tensor | positive_weights.Given],
        options: Options,
        cross_replica: bool,
        queue: Queue | None,
    ) -> None:
        alone = not cross_replica or distribute.replicas_in_sync() == 1
        if isinstance(labels[0], positive_weights.Given):
            self.views_of_all, self.positives = z, list(labels)
        else:
            self.views_of_all, *labels = inputs.gather(not alone, z, *labels)
            if queue is not None:
                labels = [tf.concat([x, queue[1]], axis=0) for x in labels]
            self.positives = [
                positive_weights.of_labels(x, options.positives) for x in labels
            ]
        self.z = z
        self.has_queue = queue is not None
        self.is_symmetric = alone and not self.has_queue
        queued, filled = tf.zeros([0, z.shape[2]]), tf.zeros([0], bool)
        if queue is not None:
            queued, _, filled = queue
        self.queue = queued[:, tf.newaxis]  # [Q, 1, D]
        self.filled = filled  # [Q] bool

    def contrasts(self, positives: positive_weights.Weights) -> pairs.Rows:
        """All M rows."""
        return pairs.rows_of(
            self.views_of_all, self.queue, positives.marks, self.filled
        )

    def log_sum_over_all(self, **streamed: object) -> tf.Tensor:
        """Log sum_{a in A(i)} exp(s_ia), [R]."""
        rows = self.contrasts(self.positives[0])
        anchors = rows.of_batch(self.z)
        return self.log_sum(
            anchors, rows, (anchors.numbers, anchors.numbers + 1), **streamed
        )

    def log_sum(
        self,
        anchors: pairs.Rows,
        contrasts: pairs.Rows,
        window: tuple[tf.Tensor, tf.Tensor],
        **streamed: object,
    ) -> tf.Tensor:
        """Log sum of exp(s_ij) over the contrasts beyond a window, [R]."""
        return streaming.log_sum_exp(
            anchors.vectors,
            None if self.is_symmetric else contrasts.vectors,
            window,
            hidden=~contrasts.is_there if self.has_queue else None,
            **streamed,
        )

    def plain_losses(
        self,
        log_d: tf.Tensor,
        positives: positive_weights.Weights,
        options: Options,
    ) -> tf.Tensor:
        """Eq. 2 by the sums of the positives, [R]."""
        count, views = tf.shape(self.z)[0], self.z.shape[1]
        sums = tf.reduce_sum(self.views_of_all, axis=1)  # [S, D]
        sizes = tf.fill(tf.shape(sums)[:1], float(views))
        there = tf.cast(self.filled, tf.float32)
        queued = self.queue[:, 0] * there[:, tf.newaxis]
        sums = tf.concat([sums, queued], axis=0)
        sizes = tf.concat([sizes, there], axis=0)
        weighted = positives.sums(
            tf.concat([sums, sizes[:, tf.newaxis]], axis=1), count
        )[:, tf.newaxis]  # [B, 1, D + 1]
        itself = positives.of_itself(count)[:, tf.newaxis]  # [B, 1]
        others = weighted[..., :-1] - itself[..., tf.newaxis] * self.z
        total = weighted[..., -1] - itself  # [B, 1], |P(i)|
        mean = tf.math.divide_no_nan(
            tf.reduce_sum(self.z * others, axis=2), total * options.temperature
        )
        losses = tf.reshape(log_d, [-1, views]) - mean  # [B, V]
        return tf.reshape(tf.where(total > 0, losses, 0.0), [-1])

    def losses_at_once(
        self, positives: positive_weights.Weights, options: Options
    ) -> tf.Tensor:
        """Any options, [R], by all pairs."""
        contrasts = self.contrasts(positives)
        anchors = contrasts.of_batch(self.z)
        return pairs.losses(anchors, contrasts, positives, options)

    def losses_in_windows(
        self,
        positives: positive_weights.Weights,
        options: Options,
        streamed: dict[str, object],
    ) -> tf.Tensor:
        """Any options, [R], strip by strip of the anchors."""
        contrasts = self.contrasts(positives)
        anchors = contrasts.of_batch(self.z)
        if not isinstance(positives, positive_weights.Classes):
            return _strips(anchors, contrasts, positives, options)
        # What is not there comes last, and is no one's positive.
        nobody = tf.size(contrasts.marks)
        marks = tf.where(contrasts.is_there, contrasts.marks, nobody)
        contrasts = contrasts._replace(marks=marks)
        order = tf.argsort(marks, stable=True)
        contrasts = contrasts.gather(order)
        count = tf.size(anchors.marks)
        order_of_anchors = tf.argsort(anchors.marks, stable=True)
        anchors = anchors.gather(order_of_anchors)
        window = tuple(
            tf.searchsorted(contrasts.marks, anchors.marks, side)
            for side in ("left", "right")
        )
        log_negatives = self.log_sum(anchors, contrasts, window, **streamed)
        losses = _strips(
            anchors, contrasts, positives, options, window, log_negatives
        )
        places = tf.scatter_nd(
            order_of_anchors[:, tf.newaxis], tf.range(count), [count]
        )
        return tf.gather(losses, places)


def _strips(
    anchors: pairs.Rows,
    contrasts: pairs.Rows,
    positives: positive_weights.Weights,
    options: Options,
    window: tuple[tf.Tensor, tf.Tensor] | None = None,
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
        """The function of the numbers of the contrasts of a strip."""
        if window is None:
            return function(tf.range(columns))
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
            contrasts.gather(near)._replace(vectors=others),
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
            return list(map(tf.gather, sources, places(a, near)))

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
                    return [
                        tf.tensor_scatter_nd_add(x, i[:, tf.newaxis], pull)
                        for x, i, pull in zip(
                            sums, places(a, near), pulls, strict=True
                        )
                    ]

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
