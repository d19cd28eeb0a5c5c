"""Representations of a whole split, and k-NN on them while they train."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator

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

    Neither the batch size nor the replicas change the result, up to the
    rounding of kernels that go by the shape of a batch (below 1e-6). Several
    workers must call it together, and each encodes the whole split.

    Args:
      encoder: run in inference mode.
      images: the split.
      batch_size: images per step, over all replicas, at least 1; they need not
        divide it.
      image_size: side in pixels of the evaluation's centre crops; None takes
        that of the images. Without effect on tokens.
      strategy: whose replicas share each batch; the variables of `encoder`
        must have been made in its scope. None is that of the caller's scope.

    Example:
      >>> from supcon_tf import training
      >>> run = training.Run.open("runs/mine")
      >>> encoded, labels = training.represent(
      ...     run.encoder, run.source("test"), image_size=run.image_size
      ... )
      >>> encoded.shape, labels.shape
      ((21, 26), (21,))

    Returns:
      Representations [examples, dim] float32 and labels [examples] int32.

    Raises:
      ValueError: `batch_size` < 1, no image size is known, or a model that is
        no encoder, such as a `SupConModel`.
    """
    return representer(encoder, batch_size, image_size, strategy)(images)


# From a split to representations and labels; of all its examples, or of those
# at some positions, rising; in memory, or in an array that is given.
Represent = Callable[..., tuple[np.ndarray, np.ndarray]]


def representer(
    encoder: keras.Model,
    batch_size: int = 256,
    image_size: int | None = None,
    strategy: tf.distribute.Strategy | None = None,
) -> Represent:
    """Makes `represent` for many splits, whose encoder is traced once.

    Args and errors are those of `represent`; what concerns the split is raised
    when it is given.

    Returns:
      A function of a split and, if wanted, `positions` [n] of examples of it,
      rising, and `into`, an array [n, dim] to be filled, to representations
      and labels.
    """
    backbone.check_encoder(encoder)
    strategy = strategy or tf.distribute.get_strategy()
    if distribute.num_workers(strategy) > 1:

        @tf.function(reduce_retracing=True)
        def encode(images: tf.Tensor) -> tf.Tensor:
            return _encoded(encoder, images)

        return lambda images: collect(
            encode,
            _shown(
                data.make_examples(
                    images,
                    min(batch_size, images.num_examples),
                    image_size=image_size,
                ),
                images.num_examples,
            ),
        )
    replicas = strategy.num_replicas_in_sync

    @tf.function(reduce_retracing=True)  # tokens have many lengths
    def run(parts: tf.Tensor) -> tf.Tensor:
        return strategy.run(lambda x: _encoded(encoder, x), args=(parts,))

    def represent_split(
        images: data.Source,
        positions: np.ndarray | None = None,
        into: np.ndarray | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        size = min(batch_size, images.num_examples)
        full_size = -(-size // replicas) * replicas

        def step(batch: tf.Tensor) -> tf.Tensor:
            # All parts have one static size, as a TPU needs; what fills up the
            # last batch is dropped by its position.
            missing = [[0, 0]] * len(batch.shape)
            missing[0] = [0, full_size - len(batch)]
            parts = tf.split(tf.pad(batch, missing), replicas)
            encoded = run(
                strategy.experimental_distribute_values_from_function(
                    lambda context: parts[context.replica_id_in_sync_group]
                )
            )
            outputs = strategy.experimental_local_results(encoded)
            return tf.concat(outputs, axis=0)[: len(batch)]

        examples = data.make_examples(
            images, size, image_size=image_size, positions=positions
        )
        count = images.num_examples if positions is None else len(positions)
        return collect(step, _shown(examples, count), into)

    return represent_split


def _shown(
    examples: tf.data.Dataset, count: int
) -> Iterator[tuple[tf.Tensor, tf.Tensor]]:
    """Batches of so many examples; how far they are, where that takes long."""
    return data_progress.shown(
        examples, count, "encoding", lambda batch: len(batch[1])
    )


def _encoded(encoder: keras.Model, images: tf.Tensor) -> tf.Tensor:
    """The representations of images of a source."""
    with pixels.trusted():
        return encoder(images, training=False)


def collect(
    step: Callable[[tf.Tensor], tf.Tensor],
    examples: Iterable[tuple[tf.Tensor, tf.Tensor]],
    into: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """What `step` makes of all batches [N, ...], and their labels [N].

    The former are held in memory, or written to `into` [N, ...], batch by
    batch.
    """
    rows, labels, done = [], [], 0
    for batch, y in examples:
        encoded = step(batch).numpy()
        if into is None:
            rows.append(encoded)
        else:
            into[done : done + len(encoded)] = encoded
        done += len(encoded)
        labels.append(y.numpy())
    return np.concatenate(rows) if into is None else into, np.concatenate(
        labels
    )


class KnnAccuracy(keras.callbacks.Callback):
    """Adds `knn_accuracy`, top-1 of the test split, to the figures of an epoch.

    The neighbours are searched among representations of the training split:
    of all its examples, or of `max_bank`, the first of a shuffled order that
    is always the same. Where the test split has none of its classes, they are
    the other test examples. Representations are those of `tools/evaluate.py`,
    centre crops in inference mode; with the whole split as the bank the figure
    is the one that it reports.

    Under a strategy with several processes each computes the same, so that
    both splits must be whole in each. A part of a TFDS set that is read in
    file order costs reading 50,000 files' worth of examples ahead each time.

    Put it before the callbacks that read the figures, and before those that
    stop a run whose weights are no longer finite: there the figure is NaN.

    Args:
      train: where the neighbours come from.
      test: what is classified.
      every: epochs between figures; others have none.
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
                _part(train, max_bank), batch_size, image_size=image_size
            )

    def on_train_begin(self, logs: dict | None = None) -> None:
        # Traced once, however many batches it gets.
        self._step = tf.function(
            lambda images: _encoded(self.model.encoder, images),
            input_signature=[self._queries.element_spec[0]],
        )

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        if (epoch + 1) % self.every:
            return
        logs["knn_accuracy"] = float("nan")
        try:
            with data.reading(lambda: self._sources):
                logs["knn_accuracy"] = self._accuracy()
        except exceptions.FileLost as error:  # the training needs no k-NN
            progress.end_live_line()
            console.print_line("no k-NN", str(error))

    def _accuracy(self) -> float:
        """The share of the test split that its neighbours classify right."""
        queries, labels = bank, bank_labels = collect(self._step, self._queries)
        if self._bank is not None:
            bank, bank_labels = collect(self._step, self._bank)
        if not (np.isfinite(bank).all() and np.isfinite(queries).all()):
            return float("nan")
        found = measures.knn_predictions(
            queries,
            labels,
            bank,
            bank_labels,
            num_classes=self.num_classes,
            k=self.k,
            leave_one_out=self._bank is None,
        )
        return found["knn"].top_k(1)


def _part(source: data.Source, most: int) -> data.Source:
    """The source itself, or as many of its examples, the same every time."""
    if source.num_examples <= most:
        return source

    def records(_: tf.Tensor | None) -> tf.data.Dataset:
        return source.records(tf.constant([0, 0], tf.int32)).take(most)

    return dataclasses.replace(
        source, records=records, num_examples=most, ids=None, labels=None
    )
