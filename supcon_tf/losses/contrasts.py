"""What the anchors of a replica are contrasted with, and its sums by class."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import tensorflow as tf

from supcon_tf import distribute
from supcon_tf.losses import inputs, positive_weights


@dataclasses.dataclass(frozen=True)
class Batch:
    """The batches of all replicas, S samples, this replica's B first.

    Attributes:
      projections: [S, V, D] float32, without gradient.
      queue: [Q, D] float32, further contrasts, which are no anchors.
      filled: [Q] bool, which of these are there.
      positives: by each of the labels, how much samples, and behind them the
        rows of the queue, weigh as positives of each other.
      alone: whether S is B: there are no other replicas.
    """

    projections: tf.Tensor
    queue: tf.Tensor
    filled: tf.Tensor
    positives: list[positive_weights.Weights]
    alone: bool

    @property
    def columns(self) -> tf.Tensor:
        """[M, D], all views and the queue."""
        rows = tf.reshape(self.projections, [-1, self.queue.shape[1]])
        return tf.concat([rows, self.queue], axis=0)

    @property
    def hidden(self) -> tf.Tensor:
        """[M] bool, which columns are not there."""
        views = tf.reduce_prod(tf.shape(self.projections)[:2])
        return tf.pad(~self.filled, [[views, 0]])

    def of_columns(self, numbers: tf.Tensor) -> tf.Tensor:
        """Numbers [B, V] of the views, as [M] of all columns: 0 of a queue."""
        (numbers,) = inputs.gather(not self.alone, numbers)
        numbers = tf.reshape(numbers, [-1])
        return tf.pad(numbers, [[0, tf.shape(self.queue)[0]]])


def gather(
    z: tf.Tensor,
    labels: Sequence[tf.Tensor],
    kind: str | None,
    queue: tuple[tf.Tensor, tf.Tensor, tf.Tensor] | None,
    cross_replica: bool,
) -> Batch:
    """Collects what an anchor is contrasted with.

    Takes z [B, V, D] and labels as `positive_weights.canonical` returns them,
    of this replica, what makes them `positives`, what `ProjectionQueue.rows`
    returns, and whether the other replicas take part.
    """
    alone = not cross_replica or distribute.replicas_in_sync() == 1
    all_z, *every = inputs.gather(not alone, tf.stop_gradient(z), *labels)
    queued, filled = tf.zeros([0, z.shape[2]]), tf.zeros([0], tf.bool)
    if queue is not None:
        queued, of_queue, filled = queue
        every = [tf.concat([x, of_queue], axis=0) for x in every]
    positives = [positive_weights.of_labels(x, kind) for x in every]
    return Batch(all_z, queued, filled, positives, alone)


def mean_positive(
    z: tf.Tensor,
    batch: Batch,
    positives: positive_weights.Weights,
    temperature: float,
) -> tuple[tf.Tensor, tf.Tensor, Callable]:
    """Weighted mean [B, V] of z_i.z_p / tau over P(i), which Eq. 2 subtracts.

    Also the weight of P(i), [B, 1], and the pull of the mean, taken negative.
    """
    own, views = tf.shape(z)[0], z.shape[1]
    # [S + Q, D + 1], what samples add, and by how many rows
    values = tf.concat(
        [
            tf.pad(
                tf.reduce_sum(batch.projections, axis=1),
                [[0, 0], [0, 1]],
                constant_values=float(views),
            ),
            tf.where(
                batch.filled[:, tf.newaxis],
                tf.pad(batch.queue, [[0, 0], [0, 1]], constant_values=1.0),
                0.0,
            ),
        ],
        axis=0,
    )
    sums = positives.sums(values, own)[:, tf.newaxis]
    others, total = sums[..., :-1] - z, sums[..., -1] - 1.0
    share = tf.math.divide_no_nan(1.0, total * temperature)

    def pull(weights: tf.Tensor) -> tf.Tensor:
        weights = weights * share  # [B, V]
        (all_weights,) = inputs.gather(not batch.alone, weights)  # [S, V]
        weighted = all_weights[..., tf.newaxis] * batch.projections
        weighted = tf.pad(
            tf.reduce_sum(weighted, axis=1),
            [[0, tf.shape(batch.queue)[0]], [0, 0]],
        )
        weighted = positives.sums(weighted, own)[:, tf.newaxis]
        weights = weights[..., tf.newaxis]
        return weights * z - weights * others - weighted

    return share * tf.reduce_sum(z * others, axis=2), total, pull
