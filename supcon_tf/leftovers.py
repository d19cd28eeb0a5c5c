"""Files and directories that are not complete, and what kills leave of them.

What is not complete has a hidden name, `.NAME.UUID.partial`, and is locked by
the process that fills it. The system frees the lock however the process ends.
So whoever writes into the same folder next can tell what nobody fills any more,
and removes it. File systems that know no locks keep such left-overs.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import uuid
from collections.abc import Callable, Iterator

from etils import epath

_UUID = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_PARTIAL = re.compile(rf"\.(?P<name>.+)\.{_UUID}\.(?P<kind>partial|old)")


def is_local(path: epath.PathLike) -> bool:
    """Whether the path is one of this machine's file system."""
    return "://" not in os.fspath(path)


@contextlib.contextmanager
def partial_file(path: epath.Path) -> Iterator[epath.Path]:
    """An empty file beside a path, to be filled and renamed in the block."""

    def make(partial: epath.Path) -> int | None:
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY
        return os.open(partial, flags, 0o666) if is_local(path) else None

    with _locked(path, make) as partial:
        try:
            yield partial
        finally:
            with contextlib.suppress(OSError):
                partial.unlink(missing_ok=True)


@contextlib.contextmanager
def partial_directory(path: epath.Path) -> Iterator[epath.Path]:
    """An empty directory beside a path, to be filled and renamed."""

    def make(partial: epath.Path) -> int | None:
        partial.mkdir(parents=True)
        return os.open(partial, os.O_RDONLY) if is_local(path) else None

    with _locked(path, make) as partial:
        try:
            yield partial
        finally:
            remove_directory(partial)


@contextlib.contextmanager
def _locked(
    path: epath.Path, make: Callable[[epath.Path], int | None]
) -> Iterator[epath.Path]:
    """A name beside a path, made, and locked if it is local."""
    remove_dead(path.parent)
    while True:
        partial = path.with_name(f".{path.name}.{uuid.uuid4()}.partial")
        number = make(partial)
        if number is None:
            yield partial
            return
        try:
            with contextlib.suppress(OSError):  # a file system without locks
                fcntl.flock(number, fcntl.LOCK_EX)
            # Before it was locked, others may have taken it for a left-over.
            if os.path.lexists(partial):
                yield partial
                return
        finally:
            os.close(number)


def remove_dead(folder: epath.PathLike) -> None:
    """Removes from a folder what no process fills any more.

    Of a folder that is not local nobody can tell. A directory that was put
    aside for another stays where that has not come.
    """
    names = []
    with contextlib.suppress(OSError):
        names = os.listdir(folder) if is_local(folder) else []
    for name in names:
        found = _PARTIAL.fullmatch(name)
        if found and (found["name"] in names or found["kind"] == "partial"):
            with contextlib.suppress(OSError):
                _remove_unless_locked(epath.Path(folder) / name)


def remove_directory(directory: epath.Path) -> None:
    """Removes a directory, if it is there and as far as it can be."""
    with contextlib.suppress(OSError):
        directory.rmtree(missing_ok=True)


def _remove_unless_locked(path: epath.Path) -> None:
    """Removes a file or a directory; raises OSError where it is in use."""
    number = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if path.is_dir():
            path.rmtree()
        else:
            path.unlink()
    finally:
        os.close(number)
