"""Tokenized sentences as a source: views differ by their seed alone.

A view is [1 + length, 2] int32. Row 0 is the seed of its noise, two numbers.
The row of a token is its id, `NONE` behind the last token, and the index of its
sentence.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from supcon_tf import exceptions
from supcon_tf.data import epoch_steps, pipeline, sampling, sources

NONE = -1
_UNIT = 8  # lengths of batches are its multiples: few lengths are few graphs


def check_tokens(shape: tf.TensorShape) -> None:
    """Raises ValueError unless tokens can have this static shape."""
    shape = tf.TensorShape(shape)
    exceptions.require(
        shape.rank == 3 and shape[-1] == 2,
        "`tokens` must be [batch, 1 + length, 2], a seed before the tokens",
        f"shape {shape}",
    )


def from_tokens(
    tokens: npt.NDArray[np.int32],
    labels: npt.ArrayLike,
    class_names: Sequence[str],
    ids: Sequence[str] | None = None,
    name: str = "tokens",
    split: str = "train",
    texts: Sequence[str] | None = None,
) -> sources.Source:
    """Makes a source of tokens that are in memory.

    Args:
      tokens: [N, 1 + length, 2] int32, as `text.tokenize` makes them: the
        seed of a view's noise, 0 here; then the id of every token, -1 behind
        the last one, and the number, from 0, of its sentence.
      labels: [N] integers in 0..classes-1.
      class_names: one per class.
      ids: names of the examples; None for none.
      name: of the data set.
      split: "train" or "test", for messages only.
      texts: the sentences as text; None for none.

    Example:
      >>> import numpy as np
      >>> from supcon_tf import data
      >>> tokens = np.zeros([2, 4, 2], np.int32)  # a seed, then three tokens
      >>> tokens[:, 1:, 0] = [[101, 2307, 102], [101, 102, -1]]
      >>> source = data.from_tokens(tokens, [1, 0], ["bad", "good"])
      >>> source.num_examples, source.labels.tolist()
      (2, [1, 0])

    Raises:
      ValueError: the tokens have another shape, an example has none, or a
        label is out of range.
    """
    tokens, labels = np.asarray(tokens), np.asarray(labels)
    check_tokens(tokens.shape)
    exceptions.require(
        tokens.shape[0] > 0
        and tokens.shape[1] > 1
        and (tokens[:, 1, 0] != NONE).all(),
        "`tokens` must have examples, of one token or more each",
        f"shape {tokens.shape}",
    )
    exceptions.require(
        labels.shape == tokens.shape[:1]
        and np.isin(labels, range(len(class_names))).all(),
        f"`labels` must be {len(tokens)} integers in "
        f"0..{len(class_names) - 1}, one per example",
        labels[:5],
    )
    return sources.Source(
        name=name,
        split=split,
        class_names=tuple(class_names),
        image_size=None,
        ids=None if ids is None else tuple(ids),
        dtype=tf.int32,
        texts=None if texts is None else tuple(texts),
        digests=None if texts is None else _digests(texts),
        fingerprint=lambda: sources.fingerprint(tokens),
        **sources.by_index(tokens, labels),
    )


def digest(content: bytes) -> int:
    """The hash by which a text is known: 8 bytes of the SHA-256."""
    sha256 = hashlib.sha256(content).digest()
    return int.from_bytes(sha256[:8], "little", signed=True)


def _digests(texts: Sequence[str]) -> npt.NDArray[np.int64]:
    return np.array([digest(line.encode()) for line in texts], np.int64)


@epoch_steps.with_epochs
def make_token_views(
    source: sources.Source,
    batch_size: int,
    num_views: int = 1,
    seed: int = 0,
    *,
    start_step: int = 0,
    images_per_class: int | None = None,
    shard: tuple[int, int] = (0, 1),
) -> tf.data.Dataset:
    """Makes the endless batches of training, in the order of `make_views`.

    The views of a sentence differ in their seeds alone, each a function of
    (seed, epoch, position in the epoch, view): dropout in the encoder tells
    them apart. A batch is as long as its longest sentence, up to the next
    multiple of 8.

    Args:
      source: of `from_tokens`.
      batch_size: sentences, or pairs of them, over all replicas.
      num_views: views of each.
      seed: integer in 0..2^31-1.
      start_step: step of the whole run whose batch comes first.
      images_per_class: sentences of each class of a batch; None for any.
      shard: (index, count) of a worker, which gets its rows of every batch.

    Example:
      >>> import numpy as np
      >>> from supcon_tf import data
      >>> tokens = np.full([4, 6, 2], 7, np.int32)  # a seed, then five tokens
      >>> source = data.from_tokens(tokens, [0, 0, 1, 1], ["bad", "good"])
      >>> views, _ = next(iter(data.make_token_views(source, 4, num_views=2)))
      >>> tuple(views.shape), np.array_equal(views[:, 0, 1:], views[:, 1, 1:])
      ((4, 2, 6, 2), True)

    Returns:
      An infinite dataset of (tokens [batch_size / count, num_views, 1 + length,
      2] int32, labels [batch_size / count] int32).

    Raises:
      ValueError: as `make_views`.
    """
    if images_per_class is not None:
        source = sampling.class_balanced(source, batch_size, images_per_class)

    def read(
        records: tf.Tensor, epochs: tf.Tensor, positions: tf.Tensor
    ) -> tuple[tf.Tensor, ...]:
        seeds = pipeline.view_seeds(seed, epochs, positions, num_views)
        return *source.read(records), seeds

    def views(
        tokens: tf.Tensor, labels: tf.Tensor, seeds: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        repeated = tf.repeat(trim(tokens)[:, tf.newaxis, 1:], num_views, axis=1)
        return tf.concat([seeds[:, :, tf.newaxis], repeated], axis=2), labels

    return pipeline.endless(
        pipeline.ordered(source, batch_size, seed, start_step, shard)
        .map(read)
        .rebatch(batch_size // shard[1], drop_remainder=True)
        .map(views)
    )


def holds_tokens(source: sources.Source) -> bool:
    """Whether a source has tokens, not images."""
    return source.dtype == tf.int32


def read(
    source: sources.Source, records: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """The tokens of several examples, and their labels."""
    tokens, labels = source.read(records)
    return trim(tokens), labels


def trim(tokens: tf.Tensor) -> tf.Tensor:
    """Cuts tokens [B, 1 + length, 2] to the longest sentence of the batch."""
    is_token = tf.cast(tokens[:, 1:, 0] != NONE, tf.int32)
    longest = tf.reduce_max(tf.reduce_sum(is_token, axis=1))
    return tokens[:, : 1 - (-longest // _UNIT) * _UNIT]
