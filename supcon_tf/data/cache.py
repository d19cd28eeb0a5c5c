"""A cache of properties of images, in the cache folder of the user.

A file for each data set has rows of numbers under keys of 64 bits, which change
with an image.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pathlib
import zipfile

import numpy as np

from supcon_tf.disk import files

_MAX_BYTES = 2**30  # of all files; the files that were read last are kept

Columns = dict[str, np.ndarray]


def key(*parts: object) -> int:
    """A hash of path, size and time of an image, in [0, 2^64)."""
    digest = hashlib.blake2b(digest_size=8)
    for part in parts:
        digest.update(part if isinstance(part, bytes) else str(part).encode())
        digest.update(b"\0")
    return int.from_bytes(digest.digest(), "big")


def read(name: str | None, keys: np.ndarray, columns: Columns) -> np.ndarray:
    """Fills the rows of the keys that are stored.

    Args:
      name: of a data set; None for one that has no file.
      keys: [rows] uint64.
      columns: arrays [rows, ...] to be filled.

    Returns:
      The mask of the rows that were filled, [rows] bool.
    """
    stored_keys, stored = _load(name, columns)
    rows, is_stored = _find(stored_keys, keys)
    for column, values in columns.items():
        values[is_stored] = stored[column][rows[is_stored]]
    return is_stored


def write(name: str | None, keys: np.ndarray, columns: Columns) -> None:
    """Adds rows to the stored ones, if the folder can be written.

    Stored rows of other keys, such as those of another split or of images that
    have changed since, are kept up to four times as many.
    """
    if name is None:
        return
    stored_keys, stored = _load(name, columns)
    _, is_same = _find(np.sort(keys), stored_keys)
    earlier_rows = np.flatnonzero(~is_same)[: 4 * max(len(keys), 10_000)]
    keys = np.concatenate([keys, stored_keys[earlier_rows]])
    keys, first = np.unique(keys, return_index=True)  # rising
    rows = {
        column: np.concatenate([values, stored[column][earlier_rows]])[first]
        for column, values in columns.items()
    }
    path = _path(name)
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        # Several processes may inspect a data set at once.
        with files.replaced(path) as partial, open(partial, "wb") as file:
            np.savez(file, keys=keys, **rows)
        _remove_oldest(path.parent)


def _path(name: str) -> pathlib.Path:
    folder = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    folder = pathlib.Path(os.path.expanduser(folder), "supcon_tf", "images")
    return folder / f"{key(os.fsencode(name)):016x}.npz"


def _load(name: str | None, columns: Columns) -> tuple[np.ndarray, Columns]:
    """The stored keys, rising, and their rows; empty without a whole file."""
    nothing = {column: values[:0] for column, values in columns.items()}
    if name is None:
        return np.zeros(0, np.uint64), nothing
    path = _path(name)
    try:
        with np.load(path) as arrays:
            stored = {column: arrays[column] for column in columns}
            keys = arrays["keys"]
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return np.zeros(0, np.uint64), nothing  # images are inspected again
    with contextlib.suppress(OSError):  # in a folder of another user
        os.utime(path)  # read last
    return keys, stored


def _find(
    stored_keys: np.ndarray, keys: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The rows of keys among the rising `stored_keys`, and a mask of hits."""
    rows = np.searchsorted(stored_keys, keys)
    is_stored = np.zeros(len(keys), bool)
    is_inside = rows < len(stored_keys)
    is_stored[is_inside] = stored_keys[rows[is_inside]] == keys[is_inside]
    return rows, is_stored


def _remove_oldest(folder: pathlib.Path) -> None:
    """Removes the files that were read longest ago, beyond `_MAX_BYTES`."""
    states = [(path.stat(), path) for path in folder.iterdir()]
    total = 0
    for status, path in sorted(
        states, key=lambda state: state[0].st_mtime, reverse=True
    ):
        total += status.st_size
        if total > _MAX_BYTES:
            path.unlink(missing_ok=True)
