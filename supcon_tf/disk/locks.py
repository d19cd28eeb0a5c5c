"""Locks: of two processes that write the same files, the second is refused.

A lock is a hidden file in the directory, locked by flock: the system frees it
at any end of its process, so that the file of a killed process is no lock. The
file names the holder.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import pathlib
import socket
import threading
import time
from collections.abc import Iterator

from supcon_tf import exceptions
from supcon_tf.disk import files, leftovers

# Of a run or a stage; evaluation, export and conversion may go on beside it.
TRAINING = "training"

_NAME = ".{}.lock"
_WAIT = 1.0  # seconds: `check` holds a lock for a moment
_PAUSE = 0.05
# Errors of file systems without flock, such as some of Lustre and FUSE.
_NO_LOCK_ERRORS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)
_HELD: dict[str, int] = {}  # of this process: path of a lock to its thread


@contextlib.contextmanager
def held(directory: str | os.PathLike[str], work: str) -> Iterator[None]:
    """Holds the lock of some work on a directory during a block.

    A missing directory is created, and removed again if it is empty at the end.
    A thread may enter a lock that it holds. Directories on other machines have
    no locks.

    Args:
      directory: of the files that are written.
      work: a word for the work: other work may go on beside it.

    Raises:
      ValueError: another process, or thread, holds the lock, and is named; or
        the directory cannot be written.
    """
    path = _path(directory, work)
    if path is None or _HELD.get(path) == threading.get_ident():
        yield
        return
    files.check_writable("run_dir", directory)
    folders = _make_folders(pathlib.Path(path).parent)
    try:
        descriptor = _acquire(path)
        _HELD[path] = threading.get_ident()
        try:
            yield
        finally:
            del _HELD[path]
            with contextlib.suppress(OSError):
                os.unlink(path)  # while it is held: see `_has_name`
            os.close(descriptor)
    finally:
        for folder in folders:
            with contextlib.suppress(OSError):
                folder.rmdir()


def check(directory: str | os.PathLike[str], work: str) -> None:
    """Raises ValueError where another process holds a lock; writes nothing."""
    path = _path(directory, work)
    if path is None or _HELD.get(path) == threading.get_ident():
        return
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return  # there is no lock, or it cannot be read
    try:
        if not _lock(descriptor, path, fcntl.LOCK_SH):
            _refuse(path)
    finally:
        os.close(descriptor)


def check_all(directory: str | os.PathLike[str]) -> None:
    """Checks all locks of a directory, as `check`."""
    for path in files.children(directory, _NAME.format("*")):
        check(directory, path.name.removeprefix(".").removesuffix(".lock"))


def is_lock(name: str) -> bool:
    """Whether a file is a lock, by its name."""
    return name.startswith(".") and name.endswith(".lock")


def _path(directory: str | os.PathLike[str], work: str) -> str | None:
    if not leftovers.is_local(directory):
        return None
    return os.path.join(os.path.realpath(directory), _NAME.format(work))


def _make_folders(directory: pathlib.Path) -> list[pathlib.Path]:
    """Creates a directory; returns the created folders, the innermost first."""
    missing = [
        folder
        for folder in (directory, *directory.parents)
        if not folder.exists()
    ]
    directory.mkdir(parents=True, exist_ok=True)
    return missing


def _acquire(path: str) -> int:
    """Acquires a lock; returns its descriptor."""
    until = time.monotonic() + _WAIT
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            is_locked = _lock(descriptor, path, fcntl.LOCK_EX)
            if is_locked and _has_name(descriptor, path):
                with contextlib.suppress(OSError):  # of a full disk
                    os.truncate(descriptor, 0)
                    os.write(descriptor, json.dumps(_holder_record()).encode())
                return descriptor
            if not is_locked and time.monotonic() > until:
                _refuse(path)
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
        time.sleep(_PAUSE)


def _lock(descriptor: int, path: str, kind: int) -> bool:
    """Locks an open file, unless another process holds it."""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in _NO_LOCK_ERRORS:
            raise
        return not _is_alive(_holder(path))
    return True


def _has_name(descriptor: int, path: str) -> bool:
    """Whether an open lock still has its name: its holder may remove it."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _holder_record() -> dict[str, object]:
    return {
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "started": _started(os.getpid()),
        "since": time.strftime("%Y-%m-%d %H:%M:%S"),
    }


def _holder(path: str) -> dict[str, object]:
    """The holder's record in a lock; {} before it is written."""
    try:
        return dict(json.loads(pathlib.Path(path).read_bytes()))
    except (OSError, ValueError, TypeError):
        return {}


def _is_alive(holder: dict[str, object]) -> bool:
    """Whether a holder is another process of this machine that still runs.

    Its number and its start tell, since numbers come again. Processes of other
    machines count as ended.
    """
    pid, started = holder.get("pid"), holder.get("started")
    if holder.get("host") != socket.gethostname() or pid == os.getpid():
        return False
    return started is not None and _started(pid) == started


def _started(pid: object) -> str | None:
    """The start of a process, in the system's ticks; None for no process."""
    try:
        status = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The fields follow the name of the program, which may have any characters.
    return status.rpartition(")")[2].split()[19]


def _refuse(path: str) -> None:
    holder, directory = _holder(path), os.path.dirname(path)
    work = os.path.basename(path).removeprefix(".").removesuffix(".lock")
    owner = "another process"
    if holder:
        owner = "process {pid} on {host}, since {since}".format(**holder)
    raise exceptions.InvalidValue(
        f"the {work} of {directory} must be done by one process at a time, got "
        f"another that is at it: {owner}; wait for its end, or end it"
    )
