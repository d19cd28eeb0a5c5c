"""The formula of `pairs` for a strip of anchors at a time.

A strip takes the contrasts in the window of its anchors alone. The gradient
computes each strip again, so that no [R, M] matrix is held.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import tensorflow as tf

from supcon_tf.losses import pairs, positive_weights
from supcon_tf.losses.options import Options

_STRIP = 128  # anchors: the fewer, the fewer pairs beside the positives
_WIDTHS = 256, 512, 1024, 4096  # of windows; the widest is the whole row

_ZERO = tf.UnconnectedGradients.ZERO
Window = tuple[tf.Tensor, tf.Tensor]  # first and stop, [R] int32 each


def losses(
    anchors: pairs.Rows,
    contrasts: pairs.Rows,
    positives: positive_weights.Weights,
    options: Options,
    window: Window | None = None,
    log_negatives: tf.Tensor | None = None,
) -> tf.Tensor:
    """Returns `pairs.losses` of anchors [R].

    Args:
      anchors: views whose loss is returned.
      contrasts: M views that are compared with them.
      positives: weights of samples as positives of each other.
      options: options of the loss.
      window: first and stop of the contrasts that each anchor needs, rising;
        None for all contrasts.
      log_negatives: [R], as in `pairs.losses`.
    """
    strips = _Strips(anchors, contrasts, positives, options, window)
    sources = [anchors.vectors, contrasts.vectors]
    if log_negatives is not None:
        sources.append(log_negatives)

    @tf.custom_gradient
    def compute(*sources: tf.Tensor) -> tuple:
        return strips.losses(sources), functools.partial(
            strips.gradients, sources
        )

    return compute(*sources)


class _Strips:
    """Strips of T anchors, and the contrasts that each of them needs.

    `sources` are the tensors with a gradient: the vectors of anchors [R, D] and
    of contrasts [M, D] and, if given, `log_negatives` [R].
    """

    def __init__(
        self,
        anchors: pairs.Rows,
        contrasts: pairs.Rows,
        positives: positive_weights.Weights,
        options: Options,
        window: Window | None,
    ) -> None:
        self._anchors = anchors
        self._contrasts = contrasts
        self._positives = positives
        self._options = options
        self._window = window
        self._num_anchors = tf.size(anchors.numbers)
        self._num_contrasts = tf.size(contrasts.numbers)
        self._num_strips = (self._num_anchors + _STRIP - 1) // _STRIP

    def losses(self, sources: Sequence[tf.Tensor]) -> tf.Tensor:
        """Returns the losses [R]."""

        def strip_losses(strip: tf.Tensor) -> tf.Tensor:
            rows = self._rows(strip)
            return self._call_in_window(
                lambda columns: self._losses(
                    rows, columns, _gather_sources(sources, rows, columns)
                ),
                rows,
            )

        losses = tf.map_fn(
            strip_losses,
            tf.range(self._num_strips),
            fn_output_signature=tf.TensorSpec([_STRIP], tf.float32),
        )
        return tf.reshape(losses, [-1])[: self._num_anchors]

    def gradients(
        self, sources: Sequence[tf.Tensor], upstream: tf.Tensor
    ) -> tuple[tf.Tensor, ...]:
        """Returns the gradient of each source, by dL / d losses [R]."""

        def add_strip(strip: tf.Tensor, *sums: tf.Tensor) -> tuple:
            rows = self._rows(strip)
            # The repeated anchors of the last strip count once.
            is_new = strip * _STRIP + tf.range(_STRIP) < self._num_anchors
            weights = tf.where(is_new, tf.gather(upstream, rows), 0.0)  # [T]

            def add(columns: tf.Tensor | None) -> list[tf.Tensor]:
                with tf.GradientTape() as tape:
                    tensors = _gather_sources(sources, rows, columns)
                    tape.watch(tensors)
                    losses = self._losses(rows, columns, tensors)
                gradients = tape.gradient(losses, tensors, weights, _ZERO)
                indices = rows, columns, rows
                return list(map(_scatter_add, sums, indices, gradients))

            return strip + 1, *self._call_in_window(add, rows)

        _, *sums = tf.while_loop(
            lambda strip, *_: strip < self._num_strips,
            add_strip,
            (0, *map(tf.zeros_like, sources)),
        )
        return tuple(sums)

    def _rows(self, strip: tf.Tensor) -> tf.Tensor:
        """Returns indices of anchors [T]; the last strip repeats the last."""
        rows = strip * _STRIP + tf.range(_STRIP)
        return tf.minimum(rows, self._num_anchors - 1)

    def _losses(
        self,
        rows: tf.Tensor,
        columns: tf.Tensor | None,
        tensors: Sequence[tf.Tensor],
    ) -> tf.Tensor:
        """Returns the losses [T] of a strip, by its part of each source."""
        anchor_vectors, contrast_vectors, *log_negatives = tensors
        contrasts = pairs.Rows(
            *(_gather(field, columns) for field in self._contrasts)
        )
        return pairs.losses(
            self._anchors.gather(rows)._replace(vectors=anchor_vectors),
            contrasts._replace(vectors=contrast_vectors),
            self._positives,
            self._options,
            *log_negatives,
        )

    def _call_in_window(
        self, function: Callable[[tf.Tensor | None], object], rows: tf.Tensor
    ) -> object:
        """Calls a function of the indices of the contrasts that anchors need.

        `rows` are the indices of the anchors, rising. The function gets None
        for all contrasts.
        """
        if self._window is None:
            return function(None)
        first, stop = self._window[0][rows[0]], self._window[1][rows[-1]]

        def call_of_width(width: int | tf.Tensor) -> object:
            width = tf.minimum(width, self._num_contrasts)
            start = tf.minimum(first, self._num_contrasts - width)
            return function(start + tf.range(width))

        num_narrower = tf.add_n(
            [tf.cast(stop - first > width, tf.int32) for width in _WIDTHS]
        )
        return tf.switch_case(
            num_narrower,
            [
                functools.partial(call_of_width, width)
                for width in (*_WIDTHS, self._num_contrasts)
            ],
        )


def _gather_sources(
    sources: Sequence[tf.Tensor], rows: tf.Tensor, columns: tf.Tensor | None
) -> list[tf.Tensor]:
    """Returns the part of each source for anchors and contrasts."""
    # `map` ends with the sources: the third may be absent.
    return list(map(_gather, sources, (rows, columns, rows)))


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
