"""Representations of a whole split, computed once."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tensorflow as tf

from supcon_tf import data, exceptions, models


def represent(
    encoder: models.Encoder,
    images: data.Source,
    *,
    batch_size: int = 256,
    image_size: int | None = None,
    strategy: tf.distribute.Strategy | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Encodes every example of a split once, in its fixed order.

    Neither the batch size nor the replicas change the result, up to the
    rounding of kernels that go by the shape of a batch (below 1e-6).

    Args:
      encoder: run in inference mode.
      images: the split.
      batch_size: images per step, over all replicas, at least 1; they need not
        divide it.
      image_size: side in pixels of the evaluation's centre crops; None takes
        that of the images.
      strategy: whose replicas share each batch; the variables of `encoder`
        must have been made in its scope. None is that of the caller's scope.

    Returns:
      Representations [examples, dim] float32 and labels [examples] int32.

    Raises:
      ValueError: `batch_size` < 1, no image size is known, or `strategy` is
        one of several workers.
    """
    return representer(
        encoder, batch_size=batch_size, image_size=image_size, strategy=strategy
    )(images)


def representer(
    encoder: models.Encoder,
    *,
    batch_size: int = 256,
    image_size: int | None = None,
    strategy: tf.distribute.Strategy | None = None,
) -> Callable[[data.Source], tuple[np.ndarray, np.ndarray]]:
    """Makes `represent` for many splits, whose encoder is traced once.

    Args and errors are those of `represent`; what concerns the split is raised
    when it is given.

    Returns:
      A function from a split to representations and labels.
    """
    strategy = strategy or tf.distribute.get_strategy()
    exceptions.require(
        not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy),
        "`strategy` must be that of one process",
        "several workers, each of which may encode the whole split by itself",
    )
    replicas = strategy.num_replicas_in_sync

    @tf.function
    def run(parts: tf.Tensor) -> tf.Tensor:
        return strategy.run(lambda x: encoder(x, training=False), args=(parts,))

    def represent_split(images: data.Source) -> tuple[np.ndarray, np.ndarray]:
        size = min(batch_size, images.num_examples)
        full_size = -(-size // replicas) * replicas

        def step(batch: tf.Tensor) -> tf.Tensor:
            # All parts have one static size, as a TPU needs; what fills up the
            # last batch is dropped by its position.
            missing = [[0, full_size - len(batch)], [0, 0], [0, 0], [0, 0]]
            parts = tf.split(tf.pad(batch, missing), replicas)
            encoded = run(
                strategy.experimental_distribute_values_from_function(
                    lambda context: parts[context.replica_id_in_sync_group]
                )
            )
            outputs = strategy.experimental_local_results(encoded)
            return tf.concat(outputs, axis=0)[: len(batch)]

        examples = data.make_examples(images, size, image_size=image_size)
        return encode(step, examples)

    return represent_split


def encode(
    step: Callable[[tf.Tensor], tf.Tensor], examples: tf.data.Dataset
) -> tuple[np.ndarray, np.ndarray]:
    """`represent` of the batches of `data.make_examples`, by `step`."""
    pairs = [(step(batch).numpy(), y.numpy()) for batch, y in examples]
    representations, labels = zip(*pairs, strict=True)
    return np.concatenate(representations), np.concatenate(labels)
