"""Labelled image files as a source, and checks of the files."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from supcon_tf import exceptions
from supcon_tf.data import cache, inspection, partition, progress, sources
from supcon_tf.disk import image_names

_MAX_FAULTS = 5
_NO_KEY = 0  # of a file whose size and time are unknown


def make_source(
    name: str,
    split: str,
    class_names: Sequence[str],
    root: str,
    paths: Sequence[str],
    labels: np.ndarray,
    *,
    check_images: bool,
    skip_bad_images: bool,
    ignored: Sequence[str] = (),
    weights: np.ndarray | None = None,
    hint: str = "",
    note: str = "",
) -> sources.Source:
    """The source of image files, encoded, in the order of `paths`.

    Args:
      name: of the source.
      split: "train", "test" or "validation".
      class_names: in the order of the labels.
      root: folder of the files.
      paths: of the files, relative to `root` or whole, such as gs://.
      labels: [files] integers or [files, classes] 0 or 1.
      check_images: decode every file first, which also gives the size.
      skip_bad_images: leave out files that cannot be decoded.
      ignored: of `Source`.
      weights: [files] float32; None for none.
      hint: ends the message of a split without images.
      note: of `Source`.

    Raises:
      ValueError: a file is no image, or a class or the split has none.
    """
    folder = os.path.join(root, "")
    locations = [full_path(folder, path) for path in paths]
    ids = [image_names.readable(path) for path in paths]
    encoded = tf.constant([*map(os.fsencode, locations)], tf.string)
    positions, keys, fields = np.arange(len(ids)), None, {"image_size": None}
    if check_images:
        keys = _keys(paths, locations)
        inspected = _inspect(root, encoded, keys)
        if not (skip_bad_images or inspected.is_image.all()):
            _refuse(root, encoded, ids, inspected.is_image)
        positions, fields = inspection.source_fields(
            inspected, ids.__getitem__, root
        )
    labels = labels[positions]
    _check_classes(root, split, class_names, labels, hint)
    return sources.Source(
        name=name,
        split=split,
        class_names=tuple(class_names),
        ignored=tuple(map(image_names.readable, ignored)),
        ids=tuple(ids[row] for row in positions),
        note=note,
        fingerprint=lambda: sources.fingerprint(
            _keys(paths, locations)[positions]
        ),
        faults=lambda: _faults(root, encoded, _keys(paths, locations), keys),
        **fields,
        **sources.by_index(
            tf.gather(encoded, positions),
            labels,
            tf.io.read_file,
            weights if weights is None else weights[positions],
        ),
    )


def full_path(folder: str, path: str) -> str:
    """The path of a file in a folder, which ends in /; whole paths stay."""
    is_whole = path.startswith("/") or "://" in path
    return path if is_whole else folder + path


def _keys(paths: Sequence[str], locations: Sequence[str]) -> np.ndarray:
    """Keys of path, size and time of each file, [files] uint64.

    `_NO_KEY` where there is no regular file: a pipe or a device might never
    end. The key of a remote file is that of its path alone.
    """
    keys = np.zeros(len(paths), np.uint64)
    files = enumerate(zip(paths, locations, strict=True))
    for row, (path, location) in progress.track(
        files, len(paths), "looking at files"
    ):
        if "://" in location:
            keys[row] = cache.key(location)
            continue
        try:
            status = os.stat(location)
        except OSError:
            continue
        if stat.S_ISREG(status.st_mode):
            state = status.st_size, status.st_mtime_ns
            keys[row] = cache.key(os.fsencode(path), *state)
    return keys


def _inspect(
    root: str, locations: tf.Tensor, keys: np.ndarray
) -> inspection.Inspection:
    """Inspects the files; files without a key are not read."""
    regular = np.flatnonzero(keys != _NO_KEY)
    is_remote = any(b"://" in location for location in locations.numpy())

    def records(rows: np.ndarray) -> tf.data.Dataset:
        chunk = tf.gather(locations, regular[rows])
        return tf.data.Dataset.from_tensor_slices((rows, chunk))

    inspected = inspection.inspect(
        None if is_remote else os.path.realpath(root),
        keys[regular],
        records,
        tf.io.read_file,
    )
    return inspected.spread(regular, len(keys))


def _faults(
    root: str,
    locations: tf.Tensor,
    keys: np.ndarray,
    earlier: np.ndarray | None,
) -> list[str]:
    """Files that can no longer be read, with the reasons.

    Checks the files whose keys differ from `earlier`, all of them if None.
    """
    if earlier is None:
        rows = np.flatnonzero(~_inspect(root, locations, keys).is_image)
    else:
        rows = np.flatnonzero(keys != earlier)
    faults: list[str] = []
    for row in rows:
        reason, location = _reason(locations[row])
        if reason != inspection.NOTHING:
            faults.append(f"{location} ({reason})")
        if len(faults) > _MAX_FAULTS:
            break
    return faults


def _reason(location: tf.Tensor) -> tuple[str, str]:
    """The reason why a file is no image, and its path as text."""
    path = location.numpy()
    name = image_names.readable(os.fsdecode(path))
    if os.path.isfile(path) or b"://" in path:
        return inspection.reason(lambda: tf.io.read_file(location)), name
    exists = os.path.lexists(path)
    return "no regular file" if exists else "not there", name


def _refuse(
    root: str, locations: tf.Tensor, ids: Sequence[str], is_image: np.ndarray
) -> None:
    """Raises ValueError with the files that are no images, and the reason."""
    rows = np.flatnonzero(~is_image)
    reason, _ = _reason(locations[rows[0]])
    names = exceptions.listed([ids[row] for row in rows])
    raise exceptions.InvalidValue(
        "`data_dir` must hold only readable "
        f"{' '.join(image_names.SUFFIXES)} images, got {len(rows)} bad files "
        f"of {len(ids)} in {root}: {names} (the first: {reason}). Remove them, "
        "or leave them out with `skip_bad_images`"
    )


def _check_classes(
    root: str,
    split: str,
    class_names: Sequence[str],
    labels: np.ndarray,
    hint: str,
) -> None:
    """Raises ValueError for a class or a split without images."""
    partition.check_class_names(class_names, root)
    has_images = np.zeros(len(class_names), bool)
    if labels.ndim == 2:
        has_images = labels.any(axis=0)
    else:
        has_images[labels[labels >= 0]] = True  # -1 is no class
    for label in np.flatnonzero(~has_images) if split == "train" else ():
        raise exceptions.InvalidValue(
            f"class `{class_names[label]}` must have at least one readable "
            f"image for training, got none in {root}{hint}"
        )
    exceptions.require(
        len(labels) > 0, f"the {split} split must hold images", f"0{hint}"
    )
