"""The supervised contrastive loss by all pairs of anchors and contrasts.

Eq. 2 and 3 of Khosla et al. 2020, with P(i) the positives of anchor i, N(i) its
negatives, A(i) both, and s_ij = z_i . z_j / tau:

  out: L_i = -1/|P(i)| sum_{p in P(i)} log( exp(s_ip) / D_ip )
  in:  L_i = -log( 1/|P(i)| sum_{p in P(i)} exp(s_ip) / D_ip )

With a margin m and a hardness alpha, D_ip has exp(s_ip - m) of its own positive
and exp(s_in + alpha sg(z_i . z_n)) of a negative, where sg has no gradient.
With a share a of spread, L_i is (1 - a) times that, and a times

  log sum_{p in P(i)} exp(s_ip) - mean of s_iv over the own other views v

A anchors and M contrasts make [A, M] matrices. A caller that has the sum of the
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
      numbers: [N] int32, a different number for each view.
      samples: [N] int32, the number of the sample of each view.
      is_valid: [N] bool, False for rows that are in no A(i).
      is_queued: [N] bool, True for rows of a queue.
    """

    vectors: tf.Tensor
    numbers: tf.Tensor
    samples: tf.Tensor
    is_valid: tf.Tensor
    is_queued: tf.Tensor

    def select_anchors(self, z: tf.Tensor) -> Rows:
        """Returns the first rows, with z [B, V, D] and its gradient in them."""
        vectors = tf.reshape(z, [-1, z.shape[2]])  # [B * V, D]
        rows = Rows(*(field[: tf.shape(vectors)[0]] for field in self))
        return rows._replace(vectors=vectors)

    def gather(self, index: tf.Tensor) -> Rows:
        """Returns the rows with these indices, in their order."""
        return Rows(*(tf.gather(field, index) for field in self))


class ExtraContrasts(NamedTuple):
    """Samples that are contrasts and no anchors; they follow the batch.

    Attributes:
      views: [C, V, D] float32.
      labels: [C] or [C, classes], of `positive_weights.canonical`; None beside
        a mask.
      is_filled: [Q] bool, whether a row of the queue is filled; the queue is
        the last Q samples. None without a queue.
    """

    views: tf.Tensor
    labels: tf.Tensor | None
    is_filled: tf.Tensor | None = None


def make_rows(z: tf.Tensor, extras: ExtraContrasts | None = None) -> Rows:
    """Returns all views, sample by sample: z [B, V, D], then the extras."""
    batch, views, dim = tf.shape(z)[0], z.shape[1], z.shape[2]
    vectors, samples = tf.reshape(z, [-1, dim]), tf.range(batch)
    samples = tf.repeat(samples, views)  # [B * V]
    is_filled = None
    if extras is not None:
        views = extras.views.shape[1]
        numbers = batch + tf.range(tf.shape(extras.views)[0])
        samples = tf.concat([samples, tf.repeat(numbers, views)], axis=0)
        extra_vectors = tf.reshape(extras.views, [-1, dim])
        vectors = tf.concat([vectors, extra_vectors], axis=0)  # [N, D]
        is_filled = extras.is_filled
    numbers = tf.range(tf.size(samples))
    is_valid = tf.ones_like(numbers, bool)
    is_queued = tf.zeros_like(numbers, bool)
    if is_filled is not None:
        is_filled = tf.repeat(is_filled, views)
        num_queued = tf.size(is_filled)
        is_valid = tf.concat([is_valid[num_queued:], is_filled], axis=0)
        is_queued = numbers >= tf.size(numbers) - num_queued
    return Rows(vectors, numbers, samples, is_valid, is_queued)


def losses(
    anchors: Rows,
    contrasts: Rows,
    positives: positive_weights.Weights,
    options: Options,
    log_negatives: tf.Tensor | None = None,
) -> tf.Tensor:
    """Returns L_i of anchors [A], 0 where it does not exist.

    Args:
      anchors: views whose loss is returned.
      contrasts: views that are compared with them; all of P(i) in batch order.
      positives: weights of samples as positives of each other.
      options: options of the loss.
      log_negatives: [A] log of the sum over N(i), for contrasts that need not
        hold N(i); None to sum it over the contrasts.
    """
    logits = (  # [A, M]
        tf.matmul(anchors.vectors, contrasts.vectors, transpose_b=True)
        / options.temperature
    )
    is_other = anchors.numbers[:, tf.newaxis] != contrasts.numbers  # [A, M]
    is_contrast = is_other & contrasts.is_valid  # A(i)
    weights = positives.weigh(anchors.samples, contrasts.samples)
    weights = tf.where(is_contrast, weights, 0.0)  # [A, M]
    if log_negatives is None:
        hardness_logits = options.hardness * options.temperature * logits
        log_n = log_space.log_sum_exp(  # [A]
            logits + tf.stop_gradient(hardness_logits),
            is_contrast & (weights == 0),
        )
    else:
        log_n = log_negatives
    if options.positives_cap is not None:
        is_within_cap = _within_cap(
            weights > 0, anchors, contrasts, options.positives_cap
        )
        weights = tf.where(is_within_cap, weights, 0.0)
    is_positive = weights > 0
    # log p_ip = s_ip - log D_i, with one D_i of all positives or D_ip of each.
    log_d, log_p = log_n, logits
    if options.denominator == "all":
        log_positives = log_space.log_sum_exp(logits, is_positive)
        log_d = log_space.log_add_exp(log_n, log_positives)
    elif options.has_one_positive:
        log_d = 0.0
        log_p -= log_space.log_add_exp(
            logits - options.margin, log_n[:, tf.newaxis]
        )
    num_positives = tf.reduce_sum(weights, axis=1)  # [A], |P(i)|
    if options.formulation == "out":
        mean = log_space.weighted_mean(log_p, weights)
    else:
        log_weights = tf.math.log(tf.where(is_positive, weights, 1.0))
        log_sum = log_space.log_sum_exp(log_p + log_weights, is_positive)
        divisor = tf.where(num_positives > 0, num_positives, 1.0)
        mean = log_sum - tf.math.log(divisor)
    loss = log_d - mean  # [A]
    if options.spread:
        is_view = anchors.samples[:, tf.newaxis] == contrasts.samples
        view_logit = log_space.weighted_mean(
            logits, tf.where(is_view, weights, 0.0)
        )
        spread_loss = log_space.log_sum_exp(logits, is_positive) - view_logit
        loss += options.spread * (spread_loss - loss)
    is_defined = num_positives > 0
    if options.denominator == "only_negatives":
        is_defined &= log_n > log_space.LOG_ZERO / 2
    # With one D_ip of each positive, an anchor without positives has no log_n.
    loss = tf.where(tf.math.is_nan(log_n), log_n, loss)
    return log_space.zero_unless(is_defined, loss)


def _within_cap(
    is_positive: tf.Tensor, anchors: Rows, contrasts: Rows, cap: int
) -> tf.Tensor:
    """Returns whether an anchor keeps a positive [A, M] under the cap.

    An anchor keeps its own other views and then the next positives in cyclic
    batch order, starting after its own sample (Suppl. Sec. 7 does not say
    which; this order needs no randomness and does not favour the front of the
    batch). Across replicas the order continues through their rows. The rows
    of a queue are no part of the cycle and come last.
    """
    is_view = anchors.samples[:, tf.newaxis] == contrasts.samples  # [A, M]
    is_other = tf.cast(is_positive & ~is_view, tf.int32)
    views = tf.reduce_sum(tf.cast(is_view, tf.int32), axis=1, keepdims=True)
    # Ranks [A, M] count the other positives from the first contrast on.
    rank = tf.cumsum(is_other, axis=1, exclusive=True)
    # The views of an anchor stand together, so that all have the same rank.
    anchor_rank = tf.where(is_view, rank, 0)
    anchor_rank = tf.reduce_max(anchor_rank, axis=1, keepdims=True)  # [A, 1]
    in_cycle = tf.where(contrasts.is_queued, 0, is_other)
    cycle_length = tf.reduce_sum(in_cycle, axis=1, keepdims=True)
    cyclic_rank = rank - anchor_rank  # from the anchor on
    is_before = rank < anchor_rank
    cyclic_rank = tf.where(is_before, cyclic_rank + cycle_length, cyclic_rank)
    rank = tf.where(contrasts.is_queued, rank, cyclic_rank)
    return is_positive & (is_view | (rank < cap - (views - 1)))
