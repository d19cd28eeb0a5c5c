"""What the positives of an anchor add to its loss, by the tiles that have any.

With weights w_ip of the positives, W_i their sum, and D_i of the denominator:

  log p_ip = s_ip - D_i, or under "one_positive" s_ip - log( exp(s_ip) + N_i )
  out: L_i = -1/W_i sum_{p in P(i)} w_ip log p_ip
  in:  L_i = -log( 1/W_i sum_{p in P(i)} w_ip p_ip )

Let r_ip be the share of p in that sum, w_ip / W_i or w_ip p_ip / sum, and f_ip
1, or under "one_positive" 1 - p_ip. Then dL_i / ds_ip = -r_ip f_ip beside what
the denominator passes on, and dL_i / d log N_i = sum r_ip f_ip. Under a cap the
denominator "all" is of what the cap leaves: D_i = N_i + sum_{p in P(i)}
exp(s_ip), and N_i alone passes on.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable

import tensorflow as tf

from supcon_tf.losses import log_space
from supcon_tf.losses.tiling import Tiling


@dataclasses.dataclass(frozen=True)
class Options:
    """Which of the formulas.

    Attributes:
      formulation: "out" or "in".
      is_alone: whether a positive is alone in its denominator, with negatives:
        "one_positive".
      adds: whether the positives are yet to be added to the denominators.
    """

    formulation: str
    is_alone: bool
    adds: bool


@dataclasses.dataclass(frozen=True)
class Parts:
    """The losses of R rows, [R] float32 each; where W_i is 0, anything.

    Attributes:
      value: L_i.
      passed: dL_i / d log D_i, of the denominator that was given.
      total: W_i.
      norm: what shares r_ip are of, W_i, or for "in" the logarithm of the sum.
      log_d: log D_i, less the shift of the tiling.
    """

    value: tf.Tensor
    passed: tf.Tensor
    total: tf.Tensor
    norm: tf.Tensor
    log_d: tf.Tensor


def losses(tiling: Tiling, log_d: tf.Tensor, options: Options) -> Parts:
    """L_i of the rows, by the sets of the tiling and log D_i, [R] float32."""
    log_d_of = tiling.rows.cut(log_d)
    is_in = options.formulation == "in"

    def tile(a: tf.Tensor, b: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Sums over P(i) of w, w log p and w f, and log-sums of w p, w p f."""
        w, _ = tiling.both_ways(tiling.sets.weights, a, b)
        logits, log_d = tiling.logits(a, b), log_d_of[a][:, tf.newaxis]
        log_p, f, log_f = _log_p(logits, log_d, options), 1.0, 0.0
        if options.is_alone:
            f = tf.sigmoid(log_d - logits)
            log_f = -tf.nn.softplus(logits - log_d)
        sums = [tf.reduce_sum(x, axis=1) for x in (w, w * log_p, w * f)]
        logs = [tf.fill(tf.shape(sums[0]), log_space.LOG_ZERO)] * 2
        if is_in or options.adds:
            log_w = tf.math.log(tf.where(w > 0, w, 1.0))
            log_wp = tf.where(w > 0, log_w + log_p, log_space.LOG_ZERO)
            logs = [tf.reduce_logsumexp(x, 1) for x in (log_wp, log_wp + log_f)]
        return tf.stack(sums, axis=1), tf.stack(logs, axis=1)

    rows = tf.shape(tiling.rows.vectors)[1]
    sums, logs = _over_positives(
        tiling,
        tile,
        lambda x, y: (x[0] + y[0], log_space.log_add_exp(x[1], y[1])),
        (tf.zeros([rows, 3]), tf.fill([rows, 2], log_space.LOG_ZERO)),
    )
    total, out, passed = tf.unstack(tiling.rows.join(sums), axis=1)
    inside, passed_in = tf.unstack(tiling.rows.join(logs), axis=1)
    if is_in:
        norm, value = inside, inside - tf.math.log(total)
        passed = tf.exp(passed_in - inside)
    else:
        norm, value = total, tf.math.divide_no_nan(out, total)
        passed = tf.math.divide_no_nan(passed, total)
    if options.adds:  # where all positives weigh 1
        given, log_d = log_d, log_space.log_add_exp(log_d, inside)
        passed = tf.exp(given - log_d)
    shared = 0.0 if options.is_alone else log_d
    return Parts(shared - value, passed, total, norm, log_d)


def gradient(
    tiling: Tiling,
    log_d: tf.Tensor,
    norm: tf.Tensor,
    weights: tf.Tensor,
    options: Options,
) -> tf.Tensor:
    """What positives pull their anchors by, and anchors their positives.

    Args:
      tiling: as of `losses`.
      log_d: of the columns, as `Parts` has it, [M] float32.
      norm: of the columns, as `Parts` has it, [M] float32.
      weights: dL / dL_i of the columns, [M] float32, 0 where W_i is 0.
      options: as of `losses`.

    Returns:
      DL / dz of the rows but for what denominators pass on, times tau, [R, D].
    """
    shares = weights
    if options.formulation == "out":
        shares = tf.math.divide_no_nan(weights, norm)
    of_rows, of_columns = (
        [cut(x) for x in (log_d, norm, weights, shares)]
        for cut in (tiling.rows.cut, tiling.columns.cut)
    )

    def pulls(
        logits: tf.Tensor,
        positives: tf.Tensor,
        log_d: tf.Tensor,
        norm: tf.Tensor,
        weights: tf.Tensor,
        shares: tf.Tensor,
    ) -> tf.Tensor:
        def exp(logarithm: tf.Tensor) -> tf.Tensor:
            # What is no positive may have any logit, and an exp of infinity.
            return tf.exp(tf.where(positives * weights != 0, logarithm, 0.0))

        shares *= positives
        if options.formulation == "in":
            shares *= exp(_log_p(logits, log_d, options) - norm)
        if options.is_alone:
            shares *= tf.sigmoid(log_d - logits)
        if options.adds:
            in_d = tf.where(positives > 0, weights, 0.0)
            shares -= in_d * exp(logits - log_d)
        return shares

    def tile(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
        logits = tiling.logits(a, b)
        by_row, by_column = tiling.both_ways(tiling.sets.weights, a, b)
        rows = (x[a][:, tf.newaxis] for x in of_rows)
        columns = (x[b] for x in of_columns)
        pairs = pulls(logits, by_row, *rows) + pulls(
            logits, by_column, *columns
        )
        return tf.matmul(pairs, tiling.columns.vectors[b])

    nothing = tf.zeros_like(tiling.rows.vectors[0])
    sums = _over_positives(tiling, tile, operator.add, nothing)
    return -tiling.rows.join(sums[..., :-2])


def _log_p(logits: tf.Tensor, log_d: tf.Tensor, options: Options) -> tf.Tensor:
    """[T, T] log p, but for -log D_i where all positives share it."""
    if not options.is_alone:
        return logits
    return -tf.nn.softplus(log_d - logits)


def _over_positives(
    tiling: Tiling, tile: Callable, add: Callable, nothing: object
) -> object:
    """Adds up the tiles of each block of rows that may have positives.

    Tensors [...], or tuples of such, become [R / T, ...].
    """
    mixed = tf.cast(tiling.mixed, tf.int32)
    first = tf.argmax(mixed, axis=1, output_type=tf.int32)
    stop = first + tf.reduce_sum(mixed, axis=1)

    def of_rows(a: tf.Tensor) -> object:
        return tf.while_loop(
            lambda b, _: b < stop[a],
            lambda b, sums: (b + 1, add(sums, tile(a, b))),
            (first[a], nothing),
        )[1]

    return tf.map_fn(
        of_rows,
        tf.range(tf.shape(mixed)[0]),
        fn_output_signature=tf.nest.map_structure(
            lambda x: tf.TensorSpec(x.shape, x.dtype), nothing
        ),
    )
