"""Partial files and directories, and the left-overs of killed processes.

A partial file has a hidden name, `.NAME.UUID.partial`, and is locked by the
process that fills it. The system frees the lock at any end of the process. So
the next process that writes into the folder can find the left-overs, and
removes them. They stay on file systems without locks.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

from etils import epath

_UUID = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_PARTIAL = re.compile(rf"\.(?P<name>.+)\.{_UUID}\.(?P<kind>partial|old)")


def is_local(path: epath.PathLike) -> bool:
    """Whether the path is one of this machine's file system."""
    return "://" not in os.fspath(path)


def partial_file(path: epath.Path) -> AbstractContextManager[epath.Path]:
    """An empty file beside a path, to be filled and renamed in the block."""

    def make(partial: epath.Path) -> int | None:
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY
        return os.open(partial, flags, 0o666) if is_local(path) else None

    return _locked(path, make)


def partial_directory(path: epath.Path) -> AbstractContextManager[epath.Path]:
    """An empty directory beside a path, to be filled and renamed."""

    def make(partial: epath.Path) -> int | None:
        partial.mkdir(parents=True)
        return os.open(partial, os.O_RDONLY) if is_local(path) else None

    return _locked(path, make)


@contextlib.contextmanager
def _locked(
    path: epath.Path, make: Callable[[epath.Path], int | None]
) -> Iterator[epath.Path]:
    """A new file or directory beside a path, locked if it is local.

    At the end of the block it is removed, unless it was renamed.
    """
    remove_dead(path.parent)
    while True:
        partial = path.with_name(f".{path.name}.{uuid.uuid4()}.partial")
        descriptor = make(partial)
        try:
            if descriptor is not None:
                with contextlib.suppress(OSError):  # no locks there
                    fcntl.flock(descriptor, fcntl.LOCK_EX)
            # Before the lock, another process may have removed it.
            if descriptor is None or os.path.lexists(partial):
                yield partial
                return
        finally:
            with contextlib.suppress(OSError):
                _remove(partial)
            if descriptor is not None:
                os.close(descriptor)


def remove_dead(folder: epath.PathLike) -> None:
    """Removes the left-overs of dead processes from a local folder.

    A directory that was put aside for a new one stays if the new one is
    missing.
    """
    names = []
    with contextlib.suppress(OSError):
        names = os.listdir(folder) if is_local(folder) else []
    for name in names:
        match = _PARTIAL.fullmatch(name)
        if match and (match["name"] in names or match["kind"] == "partial"):
            with contextlib.suppress(OSError):
                _remove_unless_locked(epath.Path(folder) / name)


def _remove(path: epath.Path) -> None:
    """Removes a file or a directory, if there is any."""
    if path.is_dir():
        path.rmtree()
    else:
        path.unlink(missing_ok=True)


def _remove_unless_locked(path: epath.Path) -> None:
    """Removes a file or a directory; raises OSError where it is in use."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _remove(path)
    finally:
        os.close(descriptor)
