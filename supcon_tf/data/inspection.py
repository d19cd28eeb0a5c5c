"""Inspection: all encoded images of a split are decoded before a training.

They are decoded as in evaluation. The results are kept in the cache folder of
the user, under keys of file, size and time, so that no tool inspects an image
again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from supcon_tf import exceptions
from supcon_tf.data import cache, images, progress, sources

_CHUNK = 256  # images between which a core changes: more than their overhead
_PARALLEL_CHUNKS = 16
# Of the hash of a file: two arbitrary constants.
_HASH_KEY = [0x5C0, 0x7F]
_DEPTH_16 = b"\x10"
# EXIF's entry of orientation, tag 0x0112, a number of two bytes, in both orders
# of bytes; 1 is upright. The entry is in front of any thumbnail.
_EXIF = rb"\C*Exif\x00\x00\C*"
_EXIF_BYTES = 4096
_EXIF_TURNED = (
    rb"\C*"
    rb"(\x12\x01\x03\x00\x01\x00\x00\x00[\x02-\x08]\x00"
    rb"|\x01\x12\x00\x03\x00\x00\x00\x01\x00[\x02-\x08])\C*"
)

NOTHING = "nothing is wrong now"  # of `reason`

# From positions [n], rising, to a dataset of (position, record).
Records = Callable[[np.ndarray], tf.data.Dataset]


class Inspection(NamedTuple):
    """Properties of the images of a split, a row for each.

    Attributes:
      sides: [images, 2] int32, height and width in pixels; 0 where the image
        cannot be decoded.
      digests: [images] int64, a hash of the file's bytes.
      peaks: [images] int16, the largest decoded value, 0..255, of a PNG file of
        16 bits; -1 for other files.
      is_turned: [images] bool, whether a JPEG file has an EXIF rotation or
        mirroring, which is not applied.
    """

    sides: np.ndarray
    digests: np.ndarray
    peaks: np.ndarray
    is_turned: np.ndarray

    @property
    def is_image(self) -> np.ndarray:
        """The mask of images that can be decoded, [images] bool."""
        return self.sides[:, 0] > 0

    @property
    def common_side(self) -> int | None:
        """The side in pixels if all images are squares of one size, or None."""
        sides = np.unique(self.sides)
        return int(sides[0]) if len(sides) == 1 else None

    def fill(self, positions: npt.ArrayLike, rows: Iterable[object]) -> None:
        """Fills the rows at positions, by the columns of other rows."""
        for values, column in zip(self, rows, strict=True):
            values[positions] = column

    def part(self, chosen: np.ndarray) -> Inspection:
        """The rows of some images, by a mask or by positions."""
        return Inspection(*(values[chosen] for values in self))

    def spread(self, positions: np.ndarray, count: int) -> Inspection:
        """`count` rows with these at `positions`; the others are no images."""
        inspection = _empty_rows(count)
        inspection.fill(positions, self)
        return inspection


def _empty_rows(count: int) -> Inspection:
    """Rows of files that are no images."""
    return Inspection(
        np.zeros([count, 2], np.int32),
        np.zeros(count, np.int64),
        np.full(count, -1, np.int16),
        np.zeros(count, bool),
    )


def inspect(
    name: str | None,
    keys: np.ndarray,
    records: Records,
    read: Callable[[sources.Record], tf.Tensor],
) -> Inspection:
    """Inspects the images of a split; the cache has those of earlier calls.

    Args:
      name: of the data set, whose images share a file of the cache; None for no
        cache.
      keys: [images] uint64, each of which changes with its image.
      records: from positions to the records of the images.
      read: from a record to the bytes of its image.

    Raises:
      ValueError: a file that holds several images is damaged.
    """
    inspected = _empty_rows(len(keys))
    is_cached = cache.read(name, keys, inspected._asdict())
    missing = np.flatnonzero(~is_cached)
    if len(missing):
        _decode_all(records(missing), read, len(missing), inspected)
        was_read = inspected.is_image.copy()
        bad = np.flatnonzero(~was_read)
        for position, record in records(bad) if len(bad) else ():
            # A file that cannot be read now may be readable later, or was not
            # readable before.
            with contextlib.suppress(tf.errors.OpError):
                contents = read(record)
                inspected.digests[position] = digest(contents)
                was_read[position] = _fill_one(inspected, position, contents)
        cache.write(name, keys[was_read], inspected.part(was_read)._asdict())
    return inspected


def digest(contents: tf.Tensor) -> tf.Tensor:
    """A hash of bytes [], [] int64."""
    return tf.strings.to_hash_bucket_strong(contents, 2**63 - 1, _HASH_KEY)


def reason(read: Callable[[], tf.Tensor]) -> str:
    """The reason why the bytes [] of an image cannot be read or decoded."""
    try:
        images.decode_image(read())
    except tf.errors.OpError as error:
        return exceptions.reason(error.message)
    return NOTHING


def source_fields(
    inspection: Inspection, name_example: Callable[[int], str], set_name: str
) -> tuple[np.ndarray, dict[str, object]]:
    """The positions of the images, and the fields of a `Source` on them.

    Raises:
      ValueError: PNG files of 16 bits use a small range.
    """
    positions = np.flatnonzero(inspection.is_image)
    bad = np.flatnonzero(~inspection.is_image)
    images = inspection.part(positions)
    _check_depth(images, set_name)
    return positions, {
        "image_size": images.common_side,
        "digests": images.digests,
        "skipped": tuple(map(name_example, bad)),
        "turned": tuple(map(name_example, positions[images.is_turned])),
    }


def _check_depth(inspection: Inspection, set_name: str) -> None:
    """Raises ValueError for PNG files of 16 bits that use a small range.

    A decoder keeps the high byte of 16 bits: values of 12 bits, as in X-rays
    and depth maps, would be 16 levels near black.
    """
    peaks = inspection.peaks[inspection.peaks >= 0]
    if not len(peaks) or peaks.max() >= 64:
        return
    raise exceptions.InvalidValue(
        f"PNG files of 16 bits must use their whole range, of which the high "
        f"byte is read, got values below {256 * (int(peaks.max()) + 1)} of "
        f"65536 in all {len(peaks)} in {set_name}: they would be nearly black. "
        "Save them with 8 bits, their range scaled to 0..255"
    )


def _decode_all(
    dataset: tf.data.Dataset,
    read: Callable[[sources.Record], tf.Tensor],
    count: int,
    inspection: Inspection,
) -> None:
    """Fills the rows of the images of a dataset of (position, record)."""

    def probe_chunk(
        positions: tf.Tensor, chunk: sources.Record
    ) -> tf.data.Dataset:
        # Errors of images are ignored, errors of files of records are raised.
        return (
            tf.data.Dataset.from_tensor_slices((positions, chunk))
            .map(lambda position, record: (position, *_probe(read(record))))
            .ignore_errors()
        )

    # The interleaving alone may change the order: as an option of the whole
    # pipeline, `deterministic` would mix up records and positions.
    probed = (
        dataset.batch(_CHUNK)
        .interleave(
            probe_chunk,
            cycle_length=_PARALLEL_CHUNKS,
            block_length=_CHUNK,
            num_parallel_calls=tf.data.AUTOTUNE,
            deterministic=False,
        )
        .batch(1024)
    )
    try:
        for positions, *values in progress.track(
            probed.as_numpy_iterator(),
            count,
            "checking images",
            lambda batch: len(batch[0]),
        ):
            inspection.fill(positions, values)
    except tf.errors.OpError as error:
        raise exceptions.InvalidValue(
            "the files of the images must be whole, got "
            f"{exceptions.reason(error.message)}"
        ) from error


def _fill_one(
    inspection: Inspection, position: int, contents: tf.Tensor
) -> bool:
    """Fills a row if the bytes are an image; returns whether that is sure."""
    try:
        inspection.fill(position, _probe(contents))
    except tf.errors.ResourceExhaustedError:
        return False  # later, there may be memory to decode the image
    except tf.errors.OpError:
        pass
    return True


# TensorFlow traces this function once, not for every split.
@tf.function(input_signature=[tf.TensorSpec([], tf.string)])
def _probe(contents: tf.Tensor) -> tuple[tf.Tensor, ...]:
    """The row of an image; an image that evaluation refuses is an error."""
    image = images.decode_image(contents)
    # Byte 24 of a PNG is its bit depth, behind signature, chunk header, sides.
    head = tf.strings.substr(tf.strings.join([contents, b"\0" * 25]), 0, 25)
    is_png = tf.strings.substr(head, 1, 3) == b"PNG"
    peak = tf.cond(
        is_png & (tf.strings.substr(head, 24, 1) == _DEPTH_16),
        lambda: tf.cast(tf.reduce_max(image), tf.int16),
        lambda: tf.constant(-1, tf.int16),
    )
    is_turned = tf.cond(
        tf.strings.regex_full_match(tf.strings.substr(contents, 0, 48), _EXIF),
        lambda: tf.strings.regex_full_match(
            tf.strings.substr(contents, 0, _EXIF_BYTES), _EXIF_TURNED
        ),
        lambda: tf.constant(False),
    )
    return tf.shape(image)[:2], digest(contents), peak, is_turned
