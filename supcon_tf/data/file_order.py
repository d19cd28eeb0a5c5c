"""Fields of sources that are read in the order of their files."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from supcon_tf import exceptions
from supcon_tf.data import inspection, sources

ReadImage = Callable[[sources.Record], tf.Tensor]


def fields(
    split_records: tf.data.Dataset,
    worker_records: tf.data.Dataset,
    read_image: ReadImage,
    make_keys: Callable[[], np.ndarray],
    *,
    set_name: str,
    example_name: Callable[[int], str],
    check_images: bool,
    skip_bad_images: bool,
) -> tuple[dict[str, object], np.ndarray]:
    """The fields of a `Source` on its examples: number, records, size, digests.

    Args:
      split_records: the records of the split, in its fixed order.
      worker_records: the records of this worker, or all.
      read_image: from a record to the bytes of its image.
      make_keys: makes [examples] uint64, which change with an example.
      set_name: name or path of the set.
      example_name: from a position to the name of the example.
      check_images: decode every image first.
      skip_bad_images: leave images out that cannot be decoded.

    Returns:
      The fields, and the positions in `split_records` of the examples that are
      kept.

    Raises:
      ValueError: an image cannot be decoded, or a file is damaged.
    """
    keys = make_keys()
    positions = np.arange(len(keys))
    inspected_fields = {}
    if check_images:
        inspected = inspection.inspect(
            None if "://" in set_name else set_name,
            keys,
            lambda rows: sources.numbered_at(split_records, rows, len(keys)),
            read_image,
        )
        is_bad = ~inspected.is_image
        if is_bad.any() and not skip_bad_images:
            first = np.flatnonzero(is_bad)[:1]
            ((_, record),) = sources.numbered_at(
                split_records, first, len(keys)
            )
            reason = inspection.reason(lambda: read_image(record))
            _refuse_bad(is_bad, example_name, reason, set_name)
        if is_bad.any():
            # Positions would not do: they differ in the files of a worker.
            unwanted = tf.constant(np.unique(inspected.digests[is_bad]))
            worker_records = worker_records.filter(
                lambda record: tf.reduce_all(
                    inspection.digest(read_image(record)) != unwanted
                )
            )
        positions, inspected_fields = inspection.source_fields(
            inspected, example_name, set_name
        )
    exceptions.require(
        len(positions) > 0, f"{set_name} must have images that can be read", 0
    )
    records = functools.partial(
        sources.in_file_order, worker_records, len(positions)
    )
    record_fields = {
        "num_examples": len(positions),
        "records": records,
        "fingerprint": lambda: sources.fingerprint(make_keys()[positions]),
    }
    return record_fields | inspected_fields, positions


def _refuse_bad(
    is_bad: np.ndarray,
    example_name: Callable[[int], str],
    reason: str,
    set_name: str,
) -> None:
    """Raises ValueError that names the first bad images, and why it is bad."""
    bad = np.flatnonzero(is_bad)
    names = exceptions.listed([*map(example_name, bad[:6])])
    raise exceptions.InvalidValue(
        f"{set_name} must hold only readable JPEG and PNG images, got "
        f"{len(bad)} bad ones of {len(is_bad)}: {names} (the first: {reason}). "
        "Leave them out with `skip_bad_images`"
    )


def check_shard(shard: tuple[int, int], num_files: int, set_name: str) -> None:
    """Raises ValueError for a worker without a file of its own."""
    index, count = shard
    exceptions.require(
        0 <= index < count <= num_files,
        "`shard` must be (index, count), 0 <= index < count, of at most the "
        f"{num_files} files of {set_name}",
        f"{shard}; `auto_shard` has no such limit where it is element",
    )
