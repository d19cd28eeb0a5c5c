"""The supervised contrastive loss by all pairs of anchors and contrasts.

Eq. 2 and 3 of Khosla et al. 2020, with P(i) the positives of anchor i, N(i) its
negatives, A(i) both, and s_ij = z_i . z_j / tau:

  out: L_i = -1/|P(i)| sum_{p in P(i)} log( exp(s_ip) / D_ip )
  in:  L_i = -log( 1/|P(i)| sum_{p in P(i)} exp(s_ip) / D_ip )

With a margin m and a hardness alpha, D_ip has exp(s_ip - m) of its own positive
and exp(s_in + alpha sg(z_i . z_n)) of a negative, where sg has no gradient.
With a share a of spread, L_i is (1 - a) times that, and a times

  log sum_{p in P(i)} exp(s_ip) - mean of s_iv over the own other views v

A anchors and M contrasts make [A, M] matrices. Whoever has the sum of the
negatives already leaves them out of the contrasts.
"""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from supcon_tf.losses import log_space, positive_weights
from supcon_tf.losses.options import Options


class Rows(NamedTuple):
    """N views, as anchors or as contrasts.

    Attributes:
      vectors: [N, D] float32.
      numbers: [N] int32, which tell the views apart.
      samples: [N] int32, which sample each is a view of.
      is_there: [N] bool, False for what is in no A(i).
      is_queued: [N] bool, True for rows of a queue.
    """

    vectors: tf.Tensor
    numbers: tf.Tensor
    samples: tf.Tensor
    is_there: tf.Tensor
    is_queued: tf.Tensor

    def of_batch(self, z: tf.Tensor) -> Rows:
        """The rows of z [B, V, D], which come first, with their gradient."""
        vectors = tf.reshape(z, [-1, z.shape[2]])
        rows = Rows(*(part[: tf.shape(vectors)[0]] for part in self))
        return rows._replace(vectors=vectors)

    def gather(self, index: tf.Tensor) -> Rows:
        """Some of them, in another order."""
        return Rows(*(tf.gather(part, index) for part in self))


class Further(NamedTuple):
    """Samples that are contrasts and no anchors, behind those of a batch.

    Attributes:
      views: [C, V, D] float32.
      labels: [C] or [C, classes], of `positive_weights.canonical`; None beside
        a mask.
      is_filled: [Q] bool, which of the last Q samples are there, a queue's;
        None without a queue.
    """

    views: tf.Tensor
    labels: tf.Tensor | None
    is_filled: tf.Tensor | None = None


def rows_of(z: tf.Tensor, further: Further | None = None) -> Rows:
    """All views, those of z [B, V, D] before further ones, sample by sample."""
    batch, views, dim = tf.shape(z)[0], z.shape[1], z.shape[2]
    vectors, samples = tf.reshape(z, [-1, dim]), tf.range(batch)
    samples = tf.repeat(samples, views)
    is_filled = None
    if further is not None:
        views = further.views.shape[1]
        numbers = batch + tf.range(tf.shape(further.views)[0])
        samples = tf.concat([samples, tf.repeat(numbers, views)], axis=0)
        of_others = tf.reshape(further.views, [-1, dim])
        vectors = tf.concat([vectors, of_others], axis=0)
        is_filled = further.is_filled
    numbers = tf.range(tf.size(samples))
    is_there = tf.ones_like(numbers, bool)
    is_queued = tf.zeros_like(numbers, bool)
    if is_filled is not None:
        is_filled = tf.repeat(is_filled, views)
        queued = tf.size(is_filled)
        is_there = tf.concat([is_there[queued:], is_filled], axis=0)
        is_queued = numbers >= tf.size(numbers) - queued
    return Rows(vectors, numbers, samples, is_there, is_queued)


def losses(
    anchors: Rows,
    contrasts: Rows,
    positives: positive_weights.Weights,
    options: Options,
    log_negatives: tf.Tensor | None = None,
) -> tf.Tensor:
    """L_i of anchors [A], 0 where it does not exist.

    Args:
      anchors: views whose loss is asked for.
      contrasts: views that are compared with them; all of P(i) in batch order.
      positives: how much samples weigh as positives of each other.
      options: of the loss.
      log_negatives: [A] log of the sum over N(i), where the contrasts need not
        hold N(i); None to sum it over them.
    """
    logits = (  # [A, M]
        tf.matmul(anchors.vectors, contrasts.vectors, transpose_b=True)
        / options.temperature
    )
    is_other = anchors.numbers[:, tf.newaxis] != contrasts.numbers
    in_a = is_other & contrasts.is_there
    weights = positives.weigh(anchors.samples, contrasts.samples)
    weights = tf.where(in_a, weights, 0.0)  # [A, M]
    if log_negatives is None:
        harder = options.hardness * options.temperature * logits
        log_n = _log_sum_exp(  # [A, 1]
            logits + tf.stop_gradient(harder), in_a & (weights == 0)
        )
    else:
        log_n = log_negatives[:, tf.newaxis]
    if options.positives_cap is not None:
        kept = _within_cap(
            weights > 0, anchors, contrasts, options.positives_cap
        )
        weights = tf.where(kept, weights, 0.0)
    is_positive = weights > 0
    # log p_ip = s_ip - log D_i, with one D_i of all positives or D_ip of each.
    log_d, log_p = log_n[:, 0], logits
    if options.denominator == "all":
        log_of_positives = _log_sum_exp(logits, is_positive)
        log_d = log_space.log_add_exp(log_n, log_of_positives)[:, 0]
    elif options.has_one_positive:
        log_d = 0.0
        log_p -= log_space.log_add_exp(logits - options.margin, log_n)
    total = tf.reduce_sum(weights, axis=1)  # [A], |P(i)|
    if options.formulation == "out":
        mean = _mean(log_p, weights)
    else:
        log_weights = tf.math.log(tf.where(is_positive, weights, 1.0))
        inside = _log_sum_exp(log_p + log_weights, is_positive)[:, 0]
        mean = inside - tf.math.log(tf.where(total > 0, total, 1.0))
    value = log_d - mean
    if options.spread:
        is_view = anchors.samples[:, tf.newaxis] == contrasts.samples
        of_views = _mean(logits, tf.where(is_view, weights, 0.0))
        apart = _log_sum_exp(logits, is_positive)[:, 0] - of_views
        value += options.spread * (apart - value)
    is_defined = total > 0
    if options.denominator == "only_negatives":
        is_defined &= log_n[:, 0] > log_space.LOG_ZERO / 2
    return tf.where(is_defined, value, 0.0)


def _mean(values: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    """[A] weighted means of values [A, M], which are any where nothing weighs.

    0 where nothing does.
    """
    values = tf.where(weights > 0, values, 0.0)
    return tf.math.divide_no_nan(
        tf.reduce_sum(weights * values, axis=1), tf.reduce_sum(weights, axis=1)
    )


def _within_cap(
    is_positive: tf.Tensor, anchors: Rows, contrasts: Rows, cap: int
) -> tf.Tensor:
    """Marks the positives [A, M] that an anchor keeps under a cap on |P(i)|.

    An anchor keeps its own other views and then the next positives in cyclic
    batch order, starting after its own sample (Suppl. Sec. 7 does not say
    which; this order needs no randomness and does not favour the front of the
    batch). Across replicas the order continues through their rows. The rows
    of a queue are no part of the cycle and come last.
    """
    is_own = anchors.samples[:, tf.newaxis] == contrasts.samples  # [A, M]
    others = tf.cast(is_positive & ~is_own, tf.int32)
    views = tf.reduce_sum(tf.cast(is_own, tf.int32), axis=1, keepdims=True)
    rank = tf.cumsum(others, axis=1, exclusive=True)  # from the first contrast
    # The own views stand together, so that all have the same rank.
    before = tf.reduce_max(tf.where(is_own, rank, 0), axis=1, keepdims=True)
    in_cycle = tf.where(contrasts.is_queued, 0, others)
    total = tf.reduce_sum(in_cycle, axis=1, keepdims=True)
    turned = rank - before  # from the anchor on
    turned = tf.where(rank < before, turned + total, turned)
    rank = tf.where(contrasts.is_queued, rank, turned)
    return is_positive & (is_own | (rank < cap - (views - 1)))


def _log_sum_exp(logits: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """[A, 1] log of the sum of exp(logits) where `mask`; finite if empty."""
    return tf.reduce_logsumexp(
        tf.where(mask, logits, log_space.LOG_ZERO), axis=1, keepdims=True
    )
