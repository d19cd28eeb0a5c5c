"""What was seen of images, kept in the cache folder of the user.

A file for each data set has rows of numbers under keys of 64 bits, which
change where an image does.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pathlib
import zipfile

import numpy as np

from supcon_tf import files

_MOST_BYTES = 2**30  # of all files; those that were read last stay

Columns = dict[str, np.ndarray]


def key(*parts: object) -> int:
    """A number for what an image is read from, in [0, 2^64)."""
    hashed = hashlib.blake2b(digest_size=8)
    for part in parts:
        hashed.update(part if isinstance(part, bytes) else str(part).encode())
        hashed.update(b"\0")
    return int.from_bytes(hashed.digest(), "big")


def read(name: str | None, keys: np.ndarray, columns: Columns) -> np.ndarray:
    """Fills the rows of the keys that are there.

    Args:
      name: of a data set; None for one that has no file.
      keys: [rows] uint64.
      columns: arrays [rows, ...] to be filled.

    Returns:
      Which rows were filled, [rows] bool.
    """
    stored_keys, stored = _load(name, columns)
    rows, is_there = _find(stored_keys, keys)
    for column, values in columns.items():
        values[is_there] = stored[column][rows[is_there]]
    return is_there


def write(name: str | None, keys: np.ndarray, columns: Columns) -> None:
    """Keeps rows beside those that are there, if the folder can be written.

    Of others, such as images of another split and what has changed since, at
    most four times as many as these stay.
    """
    if name is None:
        return
    stored_keys, stored = _load(name, columns)
    _, is_same = _find(np.sort(keys), stored_keys)
    others = np.flatnonzero(~is_same)[: 4 * max(len(keys), 10_000)]
    keys = np.concatenate([keys, stored_keys[others]])
    keys, first = np.unique(keys, return_index=True)  # rising
    rows = {
        column: np.concatenate([values, stored[column][others]])[first]
        for column, values in columns.items()
    }
    path = _path(name)
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        # Several processes may look at one data set at once.
        with files.replaced(path) as partial, open(partial, "wb") as file:
            np.savez(file, keys=keys, **rows)
        _remove_oldest(path.parent)


def _path(name: str) -> pathlib.Path:
    folder = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    folder = pathlib.Path(os.path.expanduser(folder), "supcon_tf", "images")
    return folder / f"{key(os.fsencode(name)):016x}.npz"


def _load(name: str | None, columns: Columns) -> tuple[np.ndarray, Columns]:
    """Keys, rising, and their rows; none where there is no whole file."""
    nothing = {column: values[:0] for column, values in columns.items()}
    if name is None:
        return np.zeros(0, np.uint64), nothing
    path = _path(name)
    try:
        with np.load(path) as arrays:
            stored = {column: arrays[column] for column in columns}
            keys = arrays["keys"]
        os.utime(path)  # read last
        return keys, stored
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return np.zeros(0, np.uint64), nothing  # another look makes it anew


def _find(
    stored_keys: np.ndarray, keys: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Where keys are among others, which rise, and whether they are."""
    rows = np.searchsorted(stored_keys, keys)
    is_there = np.zeros(len(keys), bool)
    inside = rows < len(stored_keys)
    is_there[inside] = stored_keys[rows[inside]] == keys[inside]
    return rows, is_there


def _remove_oldest(folder: pathlib.Path) -> None:
    """Removes what was read longest ago, until the rest is small enough."""
    states = [(path.stat(), path) for path in folder.iterdir()]
    total = 0
    for status, path in sorted(
        states, key=lambda state: state[0].st_mtime, reverse=True
    ):
        total += status.st_size
        if total > _MOST_BYTES:
            path.unlink(missing_ok=True)
