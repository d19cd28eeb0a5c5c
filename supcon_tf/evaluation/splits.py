"""A split of the data: its representations, and its images to look at."""

from __future__ import annotations

import dataclasses
import hashlib
import secrets

import numpy as np
import tensorflow as tf
from etils import epath

from supcon_tf import data, exceptions, measures, run_files
from supcon_tf.data import subsets
from supcon_tf.disk import files, leftovers
from supcon_tf.training import console, representations, runs

_ROWS = "representations.npy"
_BATCH_SIZE = 64  # bounds the memory of images before they are reduced


@dataclasses.dataclass(frozen=True)
class EncodedSplit:
    """The examples of a split and their representations, in the same order.

    Attributes:
      source: images or texts; the arrays have their fixed order.
      representations: [examples, dim] float32.
      labels: [examples] int32.
      image_size: side in pixels of the centre crops that were encoded; None for
        texts.
      predictions: those of the first classifier of the run; None without one.
      source_positions: [examples], of the examples in the source; None where
        they are all of it.
    """

    source: data.Source
    representations: np.ndarray
    labels: np.ndarray
    image_size: int | None
    predictions: measures.Predictions | None = None
    source_positions: np.ndarray | None = None

    @property
    def predicted(self) -> np.ndarray:
        """The most probable classes, [examples] int32; -1 without any."""
        if self.predictions is None:
            return np.full_like(self.labels, -1)
        return self.predictions.predicted.astype(np.int32)

    def names(self, positions: np.ndarray) -> np.ndarray:
        """Ids of examples, [E] str; without ids, positions in the source."""
        in_source = self._positions_in_source(positions)
        if self.source.ids is None:
            return in_source.astype(str)
        return np.array([self.source.ids[position] for position in in_source])

    def _positions_in_source(self, positions: np.ndarray) -> np.ndarray:
        if self.source_positions is None:
            return positions
        return self.source_positions[positions]

    def to_display(self, positions: np.ndarray, side: int) -> np.ndarray:
        """Examples to look at: texts, or centre crops, reduced.

        Args:
          positions: integers of any shape, positions in the arrays.
          side: side in pixels that larger images are reduced to.

        Returns:
          [*shape of positions, S, S, 3] uint8, S the smaller of both sides; or
          the texts, [*shape of positions] str.
        """
        in_source = self._positions_in_source(positions)
        if self.source.texts is not None:
            texts = [self.source.texts[position] for position in in_source.flat]
            return np.array(texts, str).reshape(positions.shape)
        distinct, index = np.unique(in_source, return_inverse=True)
        examples = data.make_examples(
            self.source,
            _BATCH_SIZE,
            image_size=self.image_size,
            positions=distinct,
        )
        images = np.concatenate([reduced(batch, side) for batch, _ in examples])
        return images[index.reshape(positions.shape)]  # [..., S, S, 3]


def encode(
    run: runs.Run,
    split: str,
    represent: representations.Represent,
    max_examples: int | None = None,
) -> EncodedSplit:
    """A split of a run, encoded once: the run keeps representations on disk.

    Files of an earlier call are read, not held in memory, where they are of the
    same checkpoint and examples, by the names and labels of these, and by size
    and time of files on this machine, or by the source's own fingerprint.
    A source of images without a fingerprint is encoded anew. A run that is not
    on this machine keeps nothing.

    Args:
      run: the run that is measured.
      split: "train" or "test".
      represent: what `representer` made for the run.
      max_examples: examples that are encoded at most, evenly spread; None for
        all.
    """
    source, positions = run.source(split), None
    if max_examples is not None and max_examples >= source.num_examples:
        max_examples = None
    if max_examples is not None:
        positions = subsets.evenly(source.num_examples, max_examples)
    directory = run.files.encoded / split
    if not leftovers.is_local(directory):
        arrays = represent(source, positions)
    else:
        leftovers.remove_dead(run.files.encoded)
        record = _record(run, source, max_examples)
        try:
            arrays = _read(directory, record)
        except exceptions.Error as error:
            console.print_line("made anew", error)
            arrays = None
        if arrays is None:
            count = source.num_examples if positions is None else len(positions)
            shape = count, run.encoder.representation_dim
            with files.make_atomically(directory, overwrite=True) as partial:
                path = partial / _ROWS
                rows = np.lib.format.open_memmap(path, "w+", np.float32, shape)
                # The file is sparse so far: a page for which the disk has no
                # room would end the process.
                files.allocate(path, path.stat().length)
                _, labels = represent(source, positions, rows)
                rows.flush()
                np.save(partial / run_files.ENCODED_LABELS, labels)
                files.write_json(partial / run_files.ENCODED_RECORD, record)
                # Here: another evaluation may replace the directory next.
                arrays = _read(partial, record)
    return EncodedSplit(
        source, *arrays, run.image_size, source_positions=positions
    )


def _read(
    directory: epath.Path, record: dict[str, object]
) -> tuple[np.ndarray, np.ndarray] | None:
    """Representations and labels of this record; None where there are none.

    Raises:
      ValueError: one of the files is damaged.
    """
    if files.read_json(directory / run_files.ENCODED_RECORD, {}) != record:
        return None
    arrays = []
    for name, mode in ((_ROWS, "r"), (run_files.ENCODED_LABELS, None)):
        with files.readable(directory / name):
            arrays.append(np.load(directory / name, mmap_mode=mode))
    return tuple(arrays)


def _record(
    run: runs.Run, source: data.Source, max_examples: int | None
) -> dict[str, object]:
    """What tells whether an encoding is of the same checkpoint and examples."""
    fingerprint = source.fingerprint()
    sha256 = hashlib.sha256(fingerprint.encode())
    for texts in (source.ids, source.texts):
        sha256.update("\0".join(texts or ()).encode())
    if source.labels is not None:
        sha256.update(np.ascontiguousarray(source.labels).tobytes())
    return {
        "encoder": run.identity,
        "examples": source.num_examples,
        # Nothing may tell whether the images of a user's source have changed:
        # then no record equals another.
        "examples_sha256": (
            sha256.hexdigest()
            if fingerprint or source.texts
            else secrets.token_hex()
        ),
        "image_size": run.image_size,
        "most": max_examples,
    }


def reduced(images: tf.Tensor | np.ndarray, side: int) -> np.ndarray:
    """Reduces images by area to a side in pixels: [n, side, side, 3] uint8.

    Smaller images stay as they are; gray ones become RGB.
    """
    side = min(side, images.shape[1])
    resized = tf.image.resize(  # [n, side, side, channels] float32
        images, [side, side], method="area"
    )
    # Pixels of floats may lie outside of 0..255.
    pixels = tf.saturate_cast(tf.round(resized), tf.uint8)
    return tf.broadcast_to(pixels, [*pixels.shape[:3], 3]).numpy()
