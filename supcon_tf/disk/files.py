"""Atomic writes of files and directories, and checked reading."""

from __future__ import annotations

import contextlib
import fnmatch
import hashlib
import io
import itertools
import json
import os
import pathlib
import re
import tempfile
import zipfile
from collections.abc import Iterator
from concurrent import futures
from typing import TYPE_CHECKING, TypeVar

from etils import epath

from supcon_tf import exceptions
from supcon_tf.disk import leftovers

if TYPE_CHECKING:
    from matplotlib.figure import Figure

JsonType = TypeVar("JsonType")

_CHUNK = 2**22  # bytes
_SYNC_THREADS = 8  # files
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")  # its first bytes
# Characters of patterns to TensorFlow, in the path of a checkpoint.
_PATTERN = re.compile(r"[*?\[\\]")
_LINKS: dict[str, tempfile.TemporaryDirectory] = {}  # of `literal`
# Errors of readers of JSON and .npz on files that are cut or of another kind.
_DAMAGE_ERRORS = (
    *(ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile),
    RecursionError,  # thousands of brackets
)
_DAMAGED = "Restore the file, or make it again with the tool that wrote it"
_LONGEST_NAME = "x" * 160  # of a path inside of a run


def expanded(path: str | os.PathLike[str], argument: str = "path") -> str:
    """Expands ~ or ~USER at the beginning of a path.

    No shell expands the value of a flag, or an argument in Python. If there is
    no user NAME, ~NAME may be the name of a file.

    Args:
      path: local or gs://, or another value in the place of a path.
      argument: name of the argument or flag.

    Raises:
      ValueError: there is neither such a user nor such a file.
    """
    path = os.fspath(path)
    whole = os.path.expanduser(path)
    exceptions.require(
        not whole.startswith("~") or os.path.lexists(whole),
        f"`{argument}` must be of a user that there is, where it begins with ~",
        path,
    )
    # pathlib drops the ./ of ./~, which would mean another folder.
    has_tilde = os.path.normpath(whole).startswith("~")
    return os.path.abspath(whole) if has_tilde else whole


def whole(path: str) -> str:
    """The absolute path of a local path; other paths do not change."""
    return os.path.abspath(path) if leftovers.is_local(path) else path


@contextlib.contextmanager
def replaced(path: epath.PathLike) -> Iterator[epath.Path]:
    """Renames a file to `path` at the end of the block that writes it.

    An existing file stays until then. The new file is synced to the disk before
    it is renamed. Left-overs of killed processes in the folder are removed
    first.

    Args:
      path: of the file, local or gs://; is not changed if the block fails.

    Yields:
      The unique path of an empty file beside `path`.

    Raises:
      OSError: the disk is full; the message names `path`.
    """
    path = epath.Path(path)
    with room_for(path), leftovers.partial_file(path) as partial:
        yield partial
        if leftovers.is_local(path):
            _sync(partial)
        partial.replace(path)
        if leftovers.is_local(path):
            _sync(path.parent)


def write_atomically(path: epath.PathLike, content: str | bytes) -> None:
    """Writes a file, local or gs://, under another name, then renames it.

    Raises:
      OSError: the disk is full; the message names the file.
    """
    data = content.encode() if isinstance(content, str) else content
    with replaced(path) as partial:
        partial.write_bytes(data)


def write_figure(path: epath.PathLike, figure: Figure, dpi: float) -> None:
    """Writes a figure, as the suffix .png or .svg says: `write_atomically`."""
    content = io.BytesIO()
    figure.savefig(content, format=epath.Path(path).suffix[1:], dpi=dpi)
    write_atomically(path, content.getvalue())


def write_json(
    path: epath.PathLike, content: object, ensure_ascii: bool = True
) -> None:
    """Writes indented JSON; see `write_atomically`."""
    text = json.dumps(content, ensure_ascii=ensure_ascii, indent=1)
    write_atomically(path, text + "\n")


def read_json(
    path: epath.Path | pathlib.Path, absent: JsonType, remedy: str = _DAMAGED
) -> JsonType:
    """The content of a JSON file; `absent` for no such file.

    Args:
      path: of the file.
      absent: a dict or a list, as the file must have; None for any content.
      remedy: of the message on a damaged file.

    Raises:
      ValueError: the file cannot be read as JSON of that type.
    """
    with readable(path, remedy):
        try:
            if not path.exists():
                return absent
            content = json.loads(path.read_text())
        except FileNotFoundError:  # removed in between
            return absent
    kind = type(content).__name__
    if absent is not None and not isinstance(content, type(absent)):
        raise exceptions.InvalidValue(
            _damage_message(path, f"{kind} in it", remedy)
        )
    return content


@contextlib.contextmanager
def readable(path: epath.PathLike, remedy: str = _DAMAGED) -> Iterator[None]:
    """Makes the error of a damaged file name it.

    Raises:
      ValueError: a reader of JSON or .npz failed in the block.
    """
    try:
        yield
    except exceptions.Error:
        raise
    except _DAMAGE_ERRORS as error:
        raise exceptions.InvalidValue(
            _damage_message(path, exceptions.one_line(error), remedy)
        ) from error


def _damage_message(path: epath.PathLike, damage: str, remedy: str) -> str:
    return (
        f"{path} must be as it was written, but is damaged: {damage}. {remedy}"
    )


def read_lines(path: epath.Path) -> Iterator[tuple[str, str]]:
    """FILE:LINE and the text of every line that is not empty.

    LF or CR LF end a line, unlike in `str.splitlines`; CR alone does in a file
    without LF, as spreadsheets on a Macintosh save it.

    Raises:
      ValueError: a line is not UTF-8.
    """
    with path.open("rb") as file:
        first = file.readline()
        has_lf = first.endswith(b"\n")
        head = [first] if has_lf else first.splitlines(keepends=True)
        lines = itertools.chain(head, file)
        for number, line in enumerate(lines, start=1):
            location = f"{path.name}:{number}"
            line = line.removesuffix(b"\n").removesuffix(b"\r")
            try:
                text = line.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                begin = line[:2] if number == 1 else b""
                kind = "UTF-16" if begin in _UTF_16 else "bytes of another kind"
                raise exceptions.InvalidValue(
                    f"{location} must be UTF-8, got {kind}: save the file as "
                    f"UTF-8 (in Excel: CSV UTF-8) ({error})"
                ) from error
            if text.strip():
                yield location, text


def check_writable(argument: str, path: epath.PathLike) -> None:
    """Checks early that files can be written into a directory.

    Args:
      argument: name of the argument or flag.
      path: of a directory, local or gs://, that may not exist yet. In the first
        existing folder of a local path, an unnamed file is created.

    Raises:
      ValueError: a part of the path is a file or too long, or the folder cannot
        be written; or a path that is not local has characters of a pattern to
        TensorFlow.
    """
    if not leftovers.is_local(path):
        _check_literal(f"`{argument}`", path)
        return
    existing, missing = pathlib.Path(path).absolute(), []
    try:
        with contextlib.suppress(FileNotFoundError):
            os.lstat(f"{path}/{_LONGEST_NAME}")
        while not os.path.lexists(existing):
            missing.append(existing.name)
            existing = existing.parent
        for name in missing:
            with contextlib.suppress(FileNotFoundError):
                os.lstat(existing / name)
        tempfile.TemporaryFile(dir=existing).close()
    except OSError as error:
        raise exceptions.InvalidValue(
            f"`{argument}` must be a folder that can be written, got {path}: "
            f"{existing}: {error.strerror}"
        ) from error


def is_regular(path: epath.PathLike) -> bool:
    """Whether a path is a regular file: no pipe, no device, no folder.

    `epath.Path.is_file` is true for pipes and devices, which may never end.
    """
    if leftovers.is_local(path):
        return os.path.isfile(path)
    return epath.Path(path).is_file()


def state(path: epath.PathLike) -> list[int]:
    """Size in bytes and time of change of a file.

    The time is in ns, of a remote file in seconds.
    """
    if not leftovers.is_local(path):
        status = epath.Path(path).stat()
        return [status.length, int(status.mtime)]
    status = os.stat(path)
    return [status.st_size, status.st_mtime_ns]


def children(directory: epath.PathLike, pattern: str = "*") -> list[epath.Path]:
    """The paths in a directory whose names match a pattern, sorted.

    Unlike in a `glob`, *, ? and brackets in the path of the directory are no
    pattern. Hidden names need a pattern that begins with a dot. [] for a
    missing directory.

    Args:
      directory: local or gs://.
      pattern: of a name, as of `fnmatch`.
    """
    directory = epath.Path(directory)
    if not directory.is_dir():
        return []
    return sorted(
        path
        for path in directory.iterdir()
        if fnmatch.fnmatchcase(path.name, pattern)
        and path.name.startswith(".") <= pattern.startswith(".")
    )


def numbered(directory: epath.PathLike) -> dict[int, epath.Path]:
    """The paths in a directory whose names are numbers, by the number."""
    return {
        int(path.name): path
        for path in children(directory)
        if path.name.isdecimal()
    }


def literal(directory: epath.PathLike) -> str:
    r"""A path of a directory without characters of patterns.

    TensorFlow's readers of checkpoints take *, ?, [ and \ for patterns.

    Returns:
      The path, or that of a link to it if it has such characters. The link
      exists until the process ends, since some variables are read late.

    Raises:
      ValueError: the path has such characters, and is not local.
    """
    path = os.fspath(directory)
    if not _PATTERN.search(path):
        return path
    _check_literal("the path of a checkpoint", path)
    path = os.path.abspath(path)
    if path not in _LINKS:
        _LINKS[path] = tempfile.TemporaryDirectory()
        os.symlink(path, f"{_LINKS[path].name}/link")
    return f"{_LINKS[path].name}/link"


def _check_literal(argument: str, path: epath.PathLike) -> None:
    """Raises ValueError for a pattern in a path that is not local."""
    exceptions.require(
        leftovers.is_local(path) or not _PATTERN.search(str(path)),
        f"{argument} must have none of * ? [ \\, which TensorFlow takes for "
        "a pattern, where it is not local",
        path,
    )


def digest(path: epath.PathLike) -> dict[str, object]:
    """The digest of a file, which need not fit in memory.

    Returns:
      `sha256`, hexadecimal digits, and `bytes`, the length.
    """
    sha256, length = hashlib.sha256(), 0
    with epath.Path(path).open("rb") as file:
        while chunk := file.read(_CHUNK):
            sha256.update(chunk)
            length += len(chunk)
    return {"sha256": sha256.hexdigest(), "bytes": length}


@contextlib.contextmanager
def make_atomically(
    path: epath.PathLike, overwrite: bool = False
) -> Iterator[epath.Path]:
    """Renames a directory to `path` at the end of the block that fills it.

    Until then its name is unique: two processes may make one directory at once.
    Its files are synced to the disk before it is renamed. Left-overs of killed
    processes beside it are removed first.

    Args:
      path: of the directory; is not changed if the block fails.
      overwrite: replace an existing directory. A killed process leaves the old
        or the new one, under this name or a hidden name beside it.

    Yields:
      An empty directory beside `path`, to be filled in the block.

    Raises:
      ValueError: `path` exists at the end, and `overwrite` is False.
      OSError: the disk is full; the message names `path`.
    """
    path = epath.Path(path)
    with room_for(path), leftovers.partial_directory(path) as partial:
        yield partial
        sync(partial)
        if overwrite:
            _replace(path, partial)
        else:
            _name(path, partial)
        if leftovers.is_local(path):
            _sync(path.parent)


def _name(path: epath.Path, complete: epath.Path) -> None:
    """Renames a complete directory; raises ValueError if the name is taken."""
    try:
        complete.rename(path)
    except OSError as error:
        if not path.exists():
            raise
        raise exceptions.InvalidValue(
            f"{path} must not exist, but does by now"
        ) from error


def _replace(path: epath.Path, complete: epath.Path) -> None:
    """Renames a complete directory to `path`, in place of another directory."""
    aside = complete.with_suffix(".old")
    try:
        if path.exists():
            path.rename(aside)
        complete.rename(path)
    finally:
        if aside.exists() and not path.exists():
            aside.rename(path)
        with contextlib.suppress(OSError):
            aside.rmtree(missing_ok=True)


@contextlib.contextmanager
def room_for(path: epath.Path) -> Iterator[None]:
    """Makes the error of a full disk name the file or directory.

    Raises:
      OSError: the disk is full.
    """
    try:
        yield
    except Exception as error:
        reason = exceptions.no_room(error)
        if reason is None:
            raise
        message = exceptions.not_written(path, reason)
        raise exceptions.NotSaved(message) from error


def allocate(path: epath.PathLike, size: int) -> None:
    """Reserves disk space for a local file of `size` bytes.

    A full disk would kill a process that writes a file mapped into memory.

    Raises:
      OSError: the disk is full.
    """
    with open(path, "ab") as file:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, max(size, 1))
            return
        while (left := size - file.tell()) > 0:
            file.write(bytes(min(left, _CHUNK)))


def sync(directory: epath.Path) -> None:
    """Syncs a local directory and all its files to the disk."""
    if not leftovers.is_local(directory):
        return
    paths = [
        os.path.join(folder, name)
        for folder, _, names in os.walk(directory)
        for name in (*names, "")
    ]
    # In parallel: a disk syncs some files in the time of one.
    with futures.ThreadPoolExecutor(_SYNC_THREADS) as pool:
        list(pool.map(_sync, paths))


def _sync(path: epath.PathLike) -> None:
    """Syncs a local file, or the names in a folder, to the disk.

    Some file systems cannot sync folders, which is no error.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if exceptions.no_room(error):
            raise
    finally:
        os.close(descriptor)
