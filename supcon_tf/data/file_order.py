"""Sets that are read in the order of their files: what of them is an image."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from supcon_tf import exceptions
from supcon_tf.data import inspection, sources

ReadImage = Callable[[sources.Record], tf.Tensor]


def fields(
    whole: tf.data.Dataset,
    part: tf.data.Dataset,
    read_image: ReadImage,
    make_keys: Callable[[], np.ndarray],
    *,
    place: str,
    name_of: Callable[[int], str],
    check_images: bool,
    skip_bad_images: bool,
) -> tuple[dict[str, object], np.ndarray]:
    """The fields of a `Source` that say which examples there are.

    Args:
      whole: the records of the split, in its fixed order.
      part: those of this worker, or all.
      read_image: makes the bytes of an image of a record.
      make_keys: makes [examples] uint64, which change where an example does.
      place: where the set is.
      name_of: what the example at a position is called.
      check_images: decode every image first.
      skip_bad_images: leave out those that cannot be decoded.

    Returns:
      The fields, and the positions in `whole` of the examples that are kept.

    Raises:
      ValueError: an image cannot be decoded, or a file is damaged.
    """
    exceptions.require(
        check_images or not skip_bad_images,
        "`check_images` must be True for `skip_bad_images` to find the bad "
        "images",
        check_images,
    )
    keys = make_keys()
    kept = np.arange(len(keys))
    checked = {}
    if check_images:
        inspected = inspection.inspect(
            None if "://" in place else place,
            keys,
            lambda positions: _at(whole, positions, len(keys)),
            read_image,
        )
        bad = np.flatnonzero(~inspected.is_image)
        if len(bad):
            if not skip_bad_images:
                _refuse(whole, read_image, bad, len(keys), place, name_of)
            part = without(part, read_image, inspected.digests[bad])
        kept = np.flatnonzero(inspected.is_image)
        inspected = inspected.part(kept)
        inspection.check_depth(inspected, place)
        checked = {
            "image_size": inspected.common_side,
            "digests": inspected.digests,
            "skipped": tuple(map(name_of, bad)),
            "turned": tuple(map(name_of, kept[inspected.is_turned])),
        }
    exceptions.require(
        len(kept) > 0, f"{place} must have images that can be read", 0
    )
    records = functools.partial(sources.in_file_order, part, len(kept))
    known = {
        "num_examples": len(kept),
        "records": records,
        "fingerprint": lambda: sources.fingerprint(make_keys()[kept]),
    }
    return known | checked, kept


def without(
    dataset: tf.data.Dataset, read_image: ReadImage, digests: np.ndarray
) -> tf.data.Dataset:
    """The records but for those whose image has one of some digests.

    Not by their positions, which are others in the part of a worker.
    """
    unwanted = tf.constant(np.unique(digests))
    return dataset.filter(
        lambda record: tf.reduce_all(
            inspection.digest(read_image(record)) != unwanted
        )
    )


def _at(
    whole: tf.data.Dataset, positions: np.ndarray, count: int
) -> tf.data.Dataset:
    """(position, record) of some records."""
    numbered = whole.enumerate()
    if len(positions) == count:
        return numbered
    is_wanted = np.zeros(count, bool)
    is_wanted[positions] = True
    is_wanted = tf.constant(is_wanted)
    return numbered.filter(
        lambda position, _: tf.gather(is_wanted, position)
    ).take(len(positions))


def _refuse(
    whole: tf.data.Dataset,
    read_image: ReadImage,
    bad: np.ndarray,
    count: int,
    place: str,
    name_of: Callable[[int], str],
) -> None:
    """Says which examples are no images, why, and what to do."""
    ((_, record),) = _at(whole, bad[:1], count)
    why = inspection.reason(lambda: read_image(record))
    shown = exceptions.listed([name_of(position) for position in bad[:6]])
    raise exceptions.InvalidValue(
        f"{place} must hold only readable JPEG and PNG images, got {len(bad)} "
        f"bad ones of {count}: {shown} (the first: {why}). Leave them out with "
        "`skip_bad_images`"
    )
