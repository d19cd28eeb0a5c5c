"""The contrastive loss of labels that are numbers, by the order of distances.

A anchors and M rows make [A, M] matrices, B samples and G samples of all
replicas make [B, G] matrices. No tensor has three of these axes: the
denominators of an anchor are one cumulative sum over the samples, from the
farthest label to the nearest.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import tensorflow as tf

from supcon_tf import exceptions
from supcon_tf.keras_2 import keras
from supcon_tf.losses import inputs, log_space

# Numbers of the anchors that are compared with all rows at once.
_NUMBERS_PER_TILE = 2**14


@keras.utils.register_keras_serializable(package="supcon_tf")
@dataclasses.dataclass(eq=False)
class RankNContrastLoss(inputs.Loss):
    """Rank-N-Contrast (RnC) of Zha et al. 2023, for labels that are numbers.

      L_i = 1/(M - 1) sum_{j != i} -log( exp(f_ij) / sum_{k in S_ij} exp(f_ik) )

    f_ij = -|z_i - z_j| / t, by the distance, not its square. S_ij are the rows
    k != i whose labels are no nearer to that of i than j's, d(y_i, y_k) >=
    d(y_i, y_j), where d sums the differences of all numbers of a label without
    their signs. So z come to lie in the order of y. Rows are all M views: the
    other views of a sample have distance 0. Nothing is normalised, neither
    projections, which may have any length, nor labels: of several numbers, the
    one of the largest scale decides.

    `y_true` are numbers [batch] or [batch, targets], `y_pred` projections
    [batch, views, dim] of this replica; the loss is [batch] float32, nats,
    averaged over views. A row that is alone has loss 0.

    Args:
      temperature: t, positive, of the unit of the distances; 2 in their code,
        for features of any length. Unit vectors are at most 2 apart.
      cross_replica: contrast with the views of all replicas.
      reduction: of Keras, as is `name`.

    Example:
      >>> import numpy as np
      >>> from supcon_tf import losses
      >>> loss = losses.RankNContrastLoss(temperature=1.0)
      >>> ages = [20.0, 30.0, 60.0]
      >>> round(float(loss(ages, np.array([[0.0], [1.0], [4.0]]))), 3)
      0.081
      >>> round(float(loss(ages, np.array([[0.0], [4.0], [1.0]]))), 3)
      1.081

    Raises:
      ValueError: `temperature` is not positive, or shapes do not go together.
      InvalidArgumentError: a label is not finite.

    Reference: https://arxiv.org/abs/2210.01189, as in its authors' code,
    https://github.com/kaiwenzha/Rank-N-Contrast, `loss.py`.
    """

    temperature: float = 2.0
    cross_replica: bool = True
    reduction: str = keras.losses.Reduction.AUTO
    name: str = "rank_n_contrast_loss"

    def __post_init__(self) -> None:
        super().__post_init__()
        inputs.require_positive(temperature=self.temperature)

    @inputs.nan_if_broken
    def call(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        z = inputs.to_batch(y_pred)
        labels = _to_numbers(y_true, z)
        batch, views, dim = tf.shape(z)[0], *z.shape[1:]
        global_z, global_labels = inputs.gather(self.cross_replica, z, labels)
        # Those of this replica come first.
        rows = tf.reshape(global_z, [-1, dim])  # [M, D]
        num_anchors, num_others = batch * views, tf.shape(rows)[0] - 1
        distances = _distances(rows[:num_anchors], rows)  # [A, M]
        logits = -distances / self.temperature
        sum_of_logits = tf.reduce_sum(logits, axis=1)  # 0 of the row itself
        anchors = tf.range(num_anchors)[:, tf.newaxis]  # indices of rows
        is_anchor = anchors == tf.range(num_others + 1)  # [A, M]
        logits = tf.where(is_anchor, log_space.LOG_ZERO, logits)
        order, counts = _ranks(labels, global_labels, views)
        sample_logits = tf.reduce_logsumexp(  # [A, G]
            tf.reshape(logits, [-1, tf.shape(global_z)[0], views]), axis=2
        )
        # The views of a sample have its order of samples, and its counts.
        order = tf.repeat(order, views, axis=0)  # [A, G]
        sum_of_log_d = _sum_of_log_denominators(  # [A]
            tf.gather(sample_logits, order, batch_dims=1),
            tf.repeat(counts, views, axis=0),
        )
        losses = tf.math.divide_no_nan(
            sum_of_log_d - sum_of_logits, tf.cast(num_others, tf.float32)
        )
        return tf.reduce_mean(tf.reshape(losses, [batch, views]), axis=1)


def _to_numbers(labels: tf.Tensor, z: tf.Tensor) -> tf.Tensor:
    """Returns labels as [batch, targets] float64, to go with z [batch, ...].

    float64 tells integers apart, such as times, that are equal in float32.
    """
    labels = tf.convert_to_tensor(labels)
    exceptions.require(
        labels.dtype.is_floating or labels.dtype.is_integer,
        "`labels` must be numbers",
        labels.dtype.name,
    )
    exceptions.require(
        labels.shape.rank in (1, 2),
        "`labels` must be [batch] or [batch, targets]",
        f"shape {labels.shape}",
    )
    if labels.shape.rank == 1:
        labels = labels[:, tf.newaxis]
    inputs.check_shape("labels", labels, [z.shape[0], None])
    labels = tf.cast(labels, tf.float64)
    is_finite = tf.math.is_finite(labels)
    return inputs.checked(labels, is_finite, "`labels` must be finite")


def _ranks(
    labels: tf.Tensor, global_labels: tf.Tensor, views: int
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns all samples by the distance of their labels, and their counts.

    Takes labels [B, T], the first of all labels [G, T]. Returns [B, G] int32,
    the nearest first, and [B, G] float32 in that order, the rows that a sample
    counts for: of samples at one distance, the first counts for the rows of
    all, without the anchor itself, and the others count for none.
    """
    distances = tf.cast(  # [B, G]
        _by_tiles(
            lambda tile: tf.reduce_sum(
                tf.abs(tile[:, tf.newaxis] - global_labels), axis=2
            ),
            labels,
        ),
        tf.float32,
    )
    order = tf.argsort(distances, axis=1)
    distances = tf.gather(distances, order, batch_dims=1)
    is_first = tf.pad(
        distances[:, 1:] > distances[:, :-1],
        [[0, 0], [1, 0]],
        constant_values=True,
    )
    shape = tf.shape(order)
    # Samples at one distance have one number, which no other row of B has.
    first_ties = tf.range(shape[0])[:, tf.newaxis] * shape[1] - 1  # [B, 1]
    ties = tf.cumsum(tf.cast(is_first, tf.int32), axis=1) + first_ties
    sizes = tf.math.unsorted_segment_sum(
        tf.ones_like(ties, tf.float32), ties, tf.size(ties)
    )
    counts = tf.where(is_first, views * tf.gather(sizes, ties), 0.0)
    is_nearest = tf.range(shape[1]) == 0
    return order, counts - tf.cast(is_nearest, tf.float32)


@tf.custom_gradient
def _sum_of_log_denominators(
    logits: tf.Tensor, counts: tf.Tensor
) -> tuple[tf.Tensor, Callable[[tf.Tensor], tuple[tf.Tensor, None]]]:
    """Returns the sums [A] of counts times log_d.

    log_d is the log of the sum of exp(logits) of a column and all later ones.
    Takes logits [A, G], and constants [A, G] of at least 0. Not by
    tf.math.cumulative_logsumexp, whose time under XLA is quadratic in G.
    """
    log_d = _log_suffix_sums(logits)

    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, None]:
        is_counted = counts > 0
        shares = tf.where(is_counted, counts, 1.0)
        shares = tf.where(
            is_counted, tf.math.log(shares) - log_d, log_space.LOG_ZERO
        )
        shares = tf.reverse(_log_suffix_sums(tf.reverse(shares, [1])), [1])
        return upstream[:, tf.newaxis] * tf.exp(logits + shares), None

    return tf.reduce_sum(counts * log_d, axis=1), gradient


def _log_suffix_sums(logs: tf.Tensor) -> tf.Tensor:
    """Returns log of the sums [A, G] of exp(logs) of a column and later ones.

    Each step adds the sums of the columns 1, 2, 4, ... further on.
    """
    positions = tf.range(tf.shape(logs)[1])

    def add_shifted(
        step: tf.Tensor, sums: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        shifted = tf.where(
            positions < tf.size(positions) - step,
            tf.roll(sums, -step, axis=1),
            log_space.LOG_ZERO,
        )
        return 2 * step, log_space.log_add_exp(sums, shifted)

    _, sums = tf.while_loop(
        lambda step, _: step < tf.size(positions), add_shifted, [1, logs]
    )
    return sums


@tf.custom_gradient
def _distances(
    anchors: tf.Tensor, rows: tf.Tensor
) -> tuple[tf.Tensor, Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]]]:
    """Returns |a - r| [A, M] of anchors [A, D] and rows [M, D].

    By differences: in products of vectors, the distance of near rows would be
    lost in the rounding. The gradient of equal rows is 0.
    """
    distances = _by_tiles(
        lambda tile: tf.sqrt(
            tf.reduce_sum(
                tf.math.squared_difference(tile[:, tf.newaxis], rows), axis=2
            )
        ),
        anchors,
    )

    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        weights = tf.math.divide_no_nan(upstream, distances)  # [A, M]
        return (
            _weighted_differences(weights, anchors, rows),
            _weighted_differences(tf.transpose(weights), rows, anchors),
        )

    return distances, gradient


def _weighted_differences(
    weights: tf.Tensor, rows: tf.Tensor, columns: tf.Tensor
) -> tf.Tensor:
    """Returns the sums [A, D] of weights [A, M] times row - column."""
    return _by_tiles(
        lambda tile, tile_weights: tf.einsum(
            "ab,abd->ad", tile_weights, tile[:, tf.newaxis] - columns
        ),
        rows,
        weights,
    )


def _by_tiles(
    function: Callable[..., tf.Tensor], rows: tf.Tensor, *tensors: tf.Tensor
) -> tf.Tensor:
    """Calls a function of tiles of rows [N, D], and of tensors [N, ...].

    Returns its results [N, ...]. A tile at a time bounds the memory.
    """
    count = tf.shape(rows)[0]
    most_rows = max(1, _NUMBERS_PER_TILE // rows.shape[1])
    # A replica without rows has a tile of padding.
    tile_rows = tf.clip_by_value(count, 1, most_rows)
    num_tiles = tf.maximum(-(-count // tile_rows), 1)

    def tiles(tensor: tf.Tensor) -> tf.Tensor:
        tensor = tf.pad(tensor, [[0, num_tiles * tile_rows - count], [0, 0]])
        return tf.reshape(tensor, [num_tiles, tile_rows, tf.shape(tensor)[1]])

    results = tf.map_fn(
        lambda arguments: function(*arguments),
        (tiles(rows), *map(tiles, tensors)),
        parallel_iterations=1,
        fn_output_signature=tf.TensorSpec([None, None], rows.dtype),
    )
    return tf.reshape(results, [-1, tf.shape(results)[2]])[:count]
