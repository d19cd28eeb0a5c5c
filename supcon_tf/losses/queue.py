"""Earlier projections, kept as further contrasts, Sec. 4.1."""

from __future__ import annotations

import tensorflow as tf

from supcon_tf import distribute
from supcon_tf.keras_2 import keras
from supcon_tf.losses import inputs


@keras.utils.register_keras_serializable(package="supcon_tf")
class ProjectionQueue(inputs.Configured, tf.Module):
    """The newest `size` projections and their labels, for `SupConLoss`.

    A ring: rows are written in order and overwrite the oldest. It starts
    empty, and what is not filled yet takes no part in the loss (warm start).
    Every replica holds the same rows in the same order. Enqueue a batch after
    the loss has seen it: before, its views would be contrasted with
    themselves. The variables belong into the checkpoint of a run.

    Args:
      size: rows; of a batch that has more, the last are kept. The paper has
        8192.
      dim: length of a projection.
      name: name of the module.

    Attributes:
      projections: [size, dim] float32 variable.
      labels: [size] int64 variable, class identifiers.
      position: scalar int64 variable, the row that is written next.
      filled: scalar int64 variable, rows that have been written, up to `size`.

    Example:
      >>> import numpy as np
      >>> from supcon_tf import losses
      >>> queue = losses.ProjectionQueue(size=3, dim=2)
      >>> loss = losses.SupConLoss(queue=queue)
      >>> queue.enqueue(np.eye(2), [7, 8])
      >>> queue.enqueue(np.eye(2), [9, 5])  # over the oldest
      >>> queue.labels.numpy().tolist()
      [5, 8, 9]

    Raises:
      ValueError: `size` or `dim` is not positive.

    Reference: https://arxiv.org/abs/2004.11362, Sec. 4.1.
    """

    def __init__(self, size: int, dim: int, name: str = "projection_queue"):
        super().__init__(name=name)
        inputs.require_positive(size=size, dim=dim)
        self.size = size
        self.dim = dim

        def variable(name: str, shape: list[int], dtype: str) -> tf.Variable:
            zeros = tf.zeros(shape, dtype)
            return tf.Variable(zeros, trainable=False, name=name)

        with self.name_scope:
            self.projections = variable("projections", [size, dim], "float32")
            self.labels = variable("labels", [size], "int64")
            self.position = variable("position", [], "int64")
            self.filled = variable("filled", [], "int64")

    def enqueue(self, projections: tf.Tensor, labels: tf.Tensor) -> None:
        """Overwrites the oldest rows.

        Under a strategy, call it on every replica: the rows of all replicas
        are enqueued on each of them, in the order of the global batch.

        Projections are [rows, dim] float of this replica, unit length; labels
        are of the rows, in any form that `supcon_loss` takes.
        """
        z = tf.cast(tf.stop_gradient(projections), tf.float32)
        inputs.check_shape("projections", z, [None, self.dim])
        ids = inputs.class_ids(labels)
        inputs.check_shape("labels", ids, [z.shape[0]])
        z, ids = distribute.gather_across_replicas(z, ids, cyclic=False)
        z, ids = z[-self.size :], ids[-self.size :]
        # Each replica updates its own copy of the variables, with equal rows.
        rows = tf.shape(z, tf.int64)[0]
        index = (self.position + tf.range(rows)) % self.size  # [rows]
        self.projections.scatter_update(tf.IndexedSlices(z, index))
        self.labels.scatter_update(tf.IndexedSlices(ids, index))
        self.position.assign((self.position + rows) % self.size)
        self.filled.assign(tf.minimum(self.filled + rows, self.size))

    def rows(self) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Returns all rows as constants: no gradient flows into the queue.

        They are projections [size, dim] float32, labels [size] int64, and
        [size] bool, whether a row has been filled.
        """
        is_filled = tf.range(self.size, dtype=tf.int64) < self.filled
        return (
            tf.stop_gradient(self.projections.value()),
            self.labels.value(),
            is_filled,
        )
