"""Batches of evaluation: every example of a split once."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from supcon_tf.augment import geometry
from supcon_tf.data import images, pipeline, sources, subsets, tokens

_MAX_CACHED = 2**28  # bytes of pixels


def make_examples(
    source: sources.Source,
    batch_size: int,
    *,
    image_size: int | None = None,
    positions: npt.ArrayLike | None = None,
) -> tf.data.Dataset:
    """Makes the batches of evaluation: every example once, in fixed order.

    Splits of up to 256 MiB of pixels stay in memory once they have been read,
    for the epochs of a linear classifier.

    Args:
      source: any split.
      batch_size: examples per batch; the last batch may be smaller.
      image_size: side S in pixels; None takes the source's. Without effect on
        tokens.
      positions: [n] in the fixed order, ascending, each once: these examples
        alone are read; None for all.

    Example:
      >>> from supcon_tf import data
      >>> source = data.load("folder", "test", "photos")
      >>> examples = data.make_examples(source, batch_size=8, image_size=16)
      >>> [tuple(images.shape) for images, labels in examples]
      [(8, 16, 16, 3), (8, 16, 16, 3), (5, 16, 16, 3)]

    Returns:
      A finite dataset of (images [<= batch_size, S, S, C] of the type of the
      source, labels [<= batch_size] int32), centre crops, in the order of
      `source.ids`. In the place of images, a source of `from_tokens` gives
      tokens [<= batch_size, 1 + length, 2] int32, as long as the longest of
      the batch, up to the next multiple of 8.

    Raises:
      ValueError: `batch_size` < 1, no image size is known, or `positions` are
        not as above.
    """
    pipeline.check_at_least("batch_size", batch_size, 1)
    records = (
        source.records(None)
        if positions is None
        else subsets.records_at(source, np.asarray(positions, np.int64))
    )
    if tokens.holds_tokens(source):
        batches = records.batch(batch_size).map(
            lambda chunk: tokens.read(source, chunk)
        )
    else:
        size = pipeline.resolve_image_size(source, image_size)
        batches = records.map(
            lambda record: _read_view(source, record, size),
            num_parallel_calls=tf.data.AUTOTUNE,
        ).batch(batch_size)
        count = source.num_examples if positions is None else len(positions)
        total = count * size**2 * source.channels * source.dtype.size
        if total <= _MAX_CACHED:
            batches = batches.cache()
    return batches.prefetch(tf.data.AUTOTUNE).with_options(pipeline.options())


def _read_view(
    source: sources.Source, record: sources.Record, size: int
) -> tuple[tf.Tensor, tf.Tensor]:
    """The centre crop of one example, and its label."""
    image, label = pipeline.read_image(source, record, decode=False)
    is_file = image.dtype == tf.string
    view = images.decode_central_view if is_file else geometry.central_view
    return view(image, size), label
