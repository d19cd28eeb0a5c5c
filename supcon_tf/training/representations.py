"""Representations of a whole split, and k-NN on them while they train."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable

import numpy as np
import tensorflow as tf

from supcon_tf import data, distribute, exceptions, measures, pixels
from supcon_tf.data import progress as data_progress
from supcon_tf.keras_2 import keras
from supcon_tf.models import backbone
from supcon_tf.training import console, progress


def represent(
    encoder: keras.Model,
    images: data.Source,
    *,
    batch_size: int = 256,
    image_size: int | None = None,
    strategy: tf.distribute.Strategy | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Encodes every example of a split once, in its fixed order.

    Neither the batch size nor the number of replicas changes the result, up to
    the rounding of kernels that depends on the shape of a batch (below 1e-6).
    Several workers must call it together, and each encodes the whole split.

    Args:
      encoder: run in inference mode.
      images: the split.
      batch_size: images per step, over all replicas, at least 1; the number of
        replicas need not divide it.
      image_size: side in pixels of the evaluation's centre crops; None takes
        that of the images. Without effect on tokens.
      strategy: its replicas share each batch; the variables of `encoder` must
        have been made in its scope. None is that of the caller's scope.

    Example:
      >>> from supcon_tf import training
      >>> run = training.Run.open("runs/mine")
      >>> representations, labels = training.represent(
      ...     run.encoder, run.source("test"), image_size=run.image_size
      ... )
      >>> representations.shape, labels.shape
      ((21, 26), (21,))

    Returns:
      Representations [examples, dim] float32 and labels [examples] int32.

    Raises:
      ValueError: `batch_size` < 1, the images have no size of their own and
        `image_size` is None, or `encoder` is no encoder but a model such as
        `SupConModel`.
    """
    return representer(encoder, batch_size, image_size, strategy)(images)


# The function of `representer`.
Represent = Callable[..., tuple[np.ndarray, np.ndarray]]


def representer(
    encoder: keras.Model,
    batch_size: int = 256,
    image_size: int | None = None,
    strategy: tf.distribute.Strategy | None = None,
) -> Represent:
    """Makes `represent` for many splits; traces the encoder once.

    Args and errors are those of `represent`; errors of a split are raised by
    the function.

    Returns:
      A function (split, positions=None, into=None) to representations [n, dim]
      and labels [n]: of all examples, or of those at the rising `positions`
      [n]; in a new array, or in the array `into` [n, dim].
    """
    backbone.check_encoder(encoder)
    strategy = strategy or tf.distribute.get_strategy()
    encode = _batch_encoder(encoder, strategy)

    def represent_split(
        images: data.Source,
        positions: np.ndarray | None = None,
        into: np.ndarray | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        size = min(batch_size, images.num_examples)
        examples = data.make_examples(
            images, size, image_size=image_size, positions=positions
        )
        count = images.num_examples if positions is None else len(positions)
        batches = data_progress.track(
            examples, count, "encoding", lambda batch: len(batch[1])
        )
        return collect(lambda batch: encode(batch, size), batches, into)

    return represent_split


def _batch_encoder(
    encoder: keras.Model, strategy: tf.distribute.Strategy
) -> Callable[[tf.Tensor, int], tf.Tensor]:
    """A function from a batch, and the size of whole ones, to representations.

    The replicas of one worker share the batch. Each of several workers encodes
    it alone.
    """

    def encode(images: tf.Tensor) -> tf.Tensor:
        return _encode(encoder, images)

    if distribute.num_workers(strategy) > 1:
        encode_alone = tf.function(encode, reduce_retracing=True)
        return lambda batch, size: encode_alone(batch)
    replicas = strategy.num_replicas_in_sync

    @tf.function(reduce_retracing=True)  # tokens have many lengths
    def run(parts: tf.Tensor) -> tf.Tensor:
        return strategy.run(encode, args=(parts,))

    def encode_shared(batch: tf.Tensor, size: int) -> tf.Tensor:
        # A TPU needs parts of one static size: the last batch is padded, and
        # its padding dropped.
        full_size = -(-size // replicas) * replicas
        paddings = [[0, 0]] * len(batch.shape)
        paddings[0] = [0, full_size - len(batch)]
        # Per replica, [full_size / replicas, ...].
        parts = tf.split(tf.pad(batch, paddings), replicas)
        encoded = run(
            strategy.experimental_distribute_values_from_function(
                lambda context: parts[context.replica_id_in_sync_group]
            )
        )
        outputs = strategy.experimental_local_results(encoded)
        return tf.concat(outputs, axis=0)[: len(batch)]

    return encode_shared


def _encode(encoder: keras.Model, images: tf.Tensor) -> tf.Tensor:
    """Representations [N, dim] of images of a source, in inference mode."""
    with pixels.trusted():
        return encoder(images, training=False)


def collect(
    step: Callable[[tf.Tensor], tf.Tensor],
    examples: Iterable[tuple[tf.Tensor, tf.Tensor]],
    into: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """The outputs of `step` for all batches, [N, ...], and the labels [N].

    The outputs are a new array, or written to `into` [N, ...] batch by batch.
    """
    rows, labels, count = [], [], 0
    for batch, batch_labels in examples:
        encoded = step(batch).numpy()  # [batch, dim]
        if into is None:
            rows.append(encoded)
        else:
            into[count : count + len(encoded)] = encoded
        count += len(encoded)
        labels.append(batch_labels.numpy())
    outputs = np.concatenate(rows) if into is None else into
    return outputs, np.concatenate(labels)


class KnnAccuracy(keras.callbacks.Callback):
    """Adds `knn_accuracy`, top-1 of the test split, to the figures of an epoch.

    The bank of neighbours is the training split: all its examples, or the first
    `max_bank` of a fixed shuffled order. If the test split has none of its
    classes, the bank is the other test examples. Representations are those of
    `tools/evaluate.py`, centre crops in inference mode; with the whole training
    split as the bank the figure is that of `tools/evaluate.py`.

    Under a strategy with several processes each computes the same, so that
    each must have both splits whole. A part of a TFDS set that is read in file
    order costs reading 50,000 examples ahead each time.

    Put it before the callbacks that read the figures, and before those that
    stop a run whose weights are no longer finite: there the figure is NaN.

    Args:
      train: the bank.
      test: the queries.
      every: epochs between figures; other epochs have none.
      image_size: side in pixels of the centre crops; None takes that of the
        images.
      k: neighbours that vote, all where the bank is smaller; None for
        `measures.default_neighbors` of the bank.
      max_bank: examples of the training split that are represented at most.
      batch_size: images per step; without effect on the figure.

    Raises:
      ValueError: `every` or `max_bank` < 1, or no image size is known.

    Reference: Wu et al. 2018, https://arxiv.org/abs/1805.01978, Sec. 3.4.
    """

    def __init__(
        self,
        train: data.Source,
        test: data.Source,
        every: int = 1,
        image_size: int | None = None,
        *,
        k: int | None = None,
        max_bank: int = 10_000,
        batch_size: int = 256,
    ):
        super().__init__()
        for name, value in (("every", every), ("max_bank", max_bank)):
            exceptions.require(
                value >= 1, f"`{name}` must be at least 1", value
            )
        self.every = every
        self.k = k
        self._sources = train, test
        self._queries = data.make_examples(
            test, batch_size, image_size=image_size
        )
        is_apart = set(test.class_names).isdisjoint(train.class_names)
        exceptions.require(
            not is_apart or test.num_examples > 1,
            "`test` must have two examples or more for k-NN among them",
            test.num_examples,
        )
        self.num_classes = len((test if is_apart else train).class_names)
        self._bank = None  # the queries, each left out of its own neighbours
        if not is_apart:
            self._bank = data.make_examples(
                _first_examples(train, max_bank),
                batch_size,
                image_size=image_size,
            )

    def on_train_begin(self, logs: dict | None = None) -> None:
        # A signature: a batch of another size is not traced again.
        self._step = tf.function(
            lambda images: _encode(self.model.encoder, images),
            input_signature=[self._queries.element_spec[0]],
        )

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        if (epoch + 1) % self.every:
            return
        logs["knn_accuracy"] = float("nan")
        try:
            with data.reading(lambda: self._sources):
                logs["knn_accuracy"] = self._accuracy()
        except exceptions.FileLost as error:  # the training can go on
            progress.end_live_line()
            console.print_line("no k-NN", str(error))

    def _accuracy(self) -> float:
        """The k-NN accuracy of the test split."""
        queries, labels = bank, bank_labels = collect(self._step, self._queries)
        if self._bank is not None:
            bank, bank_labels = collect(self._step, self._bank)
        if not (np.isfinite(bank).all() and np.isfinite(queries).all()):
            return float("nan")
        predictions = measures.knn_predictions(
            queries,
            labels,
            bank,
            bank_labels,
            num_classes=self.num_classes,
            k=self.k,
            leave_one_out=self._bank is None,
        )
        return predictions["knn"].top_k(1)


def _first_examples(source: data.Source, count: int) -> data.Source:
    """The source, or its first `count` examples in a fixed shuffled order."""
    if source.num_examples <= count:
        return source

    def records(_: tf.Tensor | None) -> tf.data.Dataset:
        return source.records(tf.constant([0, 0], tf.int32)).take(count)

    return dataclasses.replace(
        source, records=records, num_examples=count, ids=None, labels=None
    )
