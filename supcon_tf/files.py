"""Files and directories that are there whole, or not at all."""

from __future__ import annotations

import contextlib
import fnmatch
import hashlib
import io
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

from supcon_tf import exceptions, leftovers

if TYPE_CHECKING:
    from matplotlib.figure import Figure

JsonType = TypeVar("JsonType")

_CHUNK = 2**22  # bytes
_SYNCED_AT_ONCE = 8  # files
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")  # how it begins
# What TensorFlow takes for a pattern in the path of a checkpoint.
_PATTERN = re.compile(r"[*?\[\\]")
_LINKS: dict[str, tempfile.TemporaryDirectory] = {}  # of `literal`
# What JSON must be that stands for an empty value of Python.
_KINDS = {dict: dict, list: list, tuple: list}
# What readers of JSON and .npz raise of files that are cut or of another kind.
_OF_DAMAGE = (ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile)
_DAMAGED = "Restore the file, or make it again with the tool that wrote it"
_LONGEST_BELOW = "x" * 160  # of a file in a run, by its path from there


def expanded(path: str | os.PathLike[str], argument: str = "path") -> str:
    """A path that begins with ~ or ~USER from the root on.

    Where a path is the value of a flag, or an argument in Python, no shell has
    done that. A file that is itself called ~NAME is that file, if no user is.

    Args:
      path: local or gs://, or what else stands in the place of a path.
      argument: name of the argument or flag that it comes from.

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
    is_named_so = os.path.normpath(whole).startswith("~")
    return os.path.abspath(whole) if is_named_so else whole


def whole(path: str) -> str:
    """A local path from the root on; any other as it is."""
    return path if "://" in path else os.path.abspath(path)


@contextlib.contextmanager
def replaced(path: epath.PathLike) -> Iterator[epath.Path]:
    """Gives a file that a block writes its own name at the end of the block.

    Until then what was there stays. The file is on the disk, not only in the
    memory of the system, before it gets its name. What killed processes have
    left in the folder is removed first.

    Args:
      path: of the file, local or gs://; is not touched if the block fails.

    Yields:
      A path beside it, which no other process has, of an empty file.

    Raises:
      OSError: there is no room; the message names `path`.
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
      OSError: there is no room; the message names the file.
    """
    data = content.encode() if isinstance(content, str) else content
    with replaced(path) as partial:
        partial.write_bytes(data)


def write_figure(path: epath.PathLike, drawn: Figure, dpi: float) -> None:
    """Writes a figure, as the suffix .png or .svg says: `write_atomically`."""
    content = io.BytesIO()
    drawn.savefig(content, format=epath.Path(path).suffix[1:], dpi=dpi)
    write_atomically(path, content.getvalue())


def write_json(
    path: epath.PathLike, content: object, ensure_ascii: bool = True
) -> None:
    """Writes JSON that people can read too; see `write_atomically`."""
    text = json.dumps(content, ensure_ascii=ensure_ascii, indent=1)
    write_atomically(path, text + "\n")


def read_json(
    path: epath.Path | pathlib.Path, absent: JsonType, remedy: str = ""
) -> JsonType:
    """What a file of JSON holds; `absent` where there is none.

    Args:
      path: of the file.
      absent: a dict or another value, of the type that the file must have.
      remedy: what to do where it is damaged.

    Raises:
      ValueError: it cannot be read as JSON of that type.
    """
    with readable(path, remedy or _DAMAGED):
        try:
            if not path.exists():
                return absent
            content = json.loads(path.read_text())
        except FileNotFoundError:  # removed in between
            return absent
    kind = type(content).__name__
    if absent is not None and not isinstance(content, _KINDS[type(absent)]):
        raise exceptions.InvalidValue(_told(path, f"{kind} in it", remedy))
    return content


@contextlib.contextmanager
def readable(path: epath.PathLike, remedy: str = "") -> Iterator[None]:
    """Says which file it is that a block finds to be damaged.

    Raises:
      ValueError: the block raised what readers of JSON and .npz raise.
    """
    try:
        yield
    except exceptions.Error:
        raise
    except _OF_DAMAGE as error:
        raise exceptions.InvalidValue(
            _told(path, exceptions.one_line(error), remedy)
        ) from error


def _told(path: epath.PathLike, damage: str, remedy: str) -> str:
    return (
        f"{path} must be as it was written, but is damaged: {damage}. "
        f"{remedy or _DAMAGED}"
    )


def read_lines(path: epath.Path) -> Iterator[tuple[str, str]]:
    """FILE:LINE and the text of every line that is not empty.

    Only LF and CR LF end a line, not all that `str.splitlines` knows.

    Raises:
      ValueError: a line is not UTF-8.
    """
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            place = f"{path.name}:{number}"
            end = b"\r\n" if line.endswith(b"\r\n") else b"\n"
            line = line.removesuffix(end)
            try:
                text = line.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                begin = line[:2] if number == 1 else b""
                kind = "UTF-16" if begin in _UTF_16 else "bytes of another kind"
                raise exceptions.InvalidValue(
                    f"{place} must be UTF-8, got {kind}: save the file as "
                    f"UTF-8 (in Excel: CSV UTF-8) ({error})"
                ) from error
            if text.strip():
                yield place, text


def check_writable(argument: str, path: epath.PathLike) -> None:
    """Checks, before there is anything to lose, that files can be written.

    Args:
      argument: name of the argument or flag that the path comes from.
      path: of a directory, local or gs://, that may not exist yet; a local one
        is tried, with a file without a name where the first folder is missing.

    Raises:
      ValueError: a part of the path is a file or too long, or nothing can be
        written; or a path that is not local has what TensorFlow takes for a
        pattern.
    """
    if "://" in str(path):
        _check_literal(f"`{argument}`", path)
        return
    existing, missing = pathlib.Path(path).absolute(), []
    try:
        with contextlib.suppress(FileNotFoundError):
            os.lstat(f"{path}/{_LONGEST_BELOW}")
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
    """Whether a file is there that ends: no pipe, no device, no folder.

    To `epath.Path.is_file` these are files, which may be read without end.
    """
    is_local = "://" not in str(path)
    return os.path.isfile(path) if is_local else epath.Path(path).is_file()


def state(path: epath.PathLike) -> list[int]:
    """Size in bytes and time of change of a file: others if it has changed.

    The time is in ns, in seconds of a file that is not on this machine.
    """
    if "://" in str(path):
        status = epath.Path(path).stat()
        return [status.length, int(status.mtime)]
    status = os.stat(path)
    return [status.st_size, status.st_mtime_ns]


def children(directory: epath.PathLike, pattern: str = "*") -> list[epath.Path]:
    """What is in a directory, by a pattern of its name, sorted.

    The path of the directory is taken as it is, while in a `glob` *, ? and
    brackets of it would be part of the pattern. Hidden names need a pattern
    that begins with a dot. Of a directory that is not there nothing is in it.

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


def literal(directory: epath.PathLike) -> str:
    r"""A path of a directory that TensorFlow's readers take as it is.

    What reads checkpoints takes *, ?, [ and \ in a path for a pattern.

    Returns:
      The path itself; of one that has them that of a link, which is there
      until the process ends, since some variables are read when they are made.

    Raises:
      ValueError: the path has them, and is not local.
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
        "://" not in str(path) or not _PATTERN.search(str(path)),
        f"{argument} must have none of * ? [ \\, which TensorFlow takes for "
        "a pattern, where it is not local",
        path,
    )


def digest(path: epath.PathLike) -> dict[str, object]:
    """What tells whether a file is the same, which need not fit in memory.

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
    """Fills a directory under another name, and gives it its own at the end.

    The other name is the only one of its kind: of two that make one directory
    at once, both fill their own. Its files are on the disk before it gets its
    name. What killed processes have left beside it is removed first.

    Args:
      path: of the directory; is not touched if the block fails.
      overwrite: take the place of a directory. A process that is killed leaves
        one of the two, under this name or a hidden one beside it.

    Yields:
      An empty directory beside `path`, to be filled in the block.

    Raises:
      ValueError: `path` exists at the end, and is not to be overwritten.
      OSError: there is no room; the message names `path`.
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
    """Gives a complete directory its name; raises ValueError where it is."""
    try:
        complete.rename(path)
    except OSError as error:
        if not path.exists():
            raise
        raise exceptions.InvalidValue(
            f"{path} must not exist, but does by now"
        ) from error


def _replace(path: epath.Path, complete: epath.Path) -> None:
    """Gives a complete directory the name of another, kept until it has it."""
    aside = complete.with_suffix(".old")
    try:
        if path.exists():
            path.rename(aside)
        complete.rename(path)
    finally:
        if aside.exists() and not path.exists():
            aside.rename(path)
        leftovers.remove_directory(aside)


@contextlib.contextmanager
def room_for(path: epath.Path) -> Iterator[None]:
    """Says of a full disk which file or directory it was that did not fit.

    Raises:
      OSError: a block raised that there is no room.
    """
    try:
        yield
    except Exception as error:
        reason = exceptions.no_room(error)
        if reason is None:
            raise
        raise exceptions.NotSaved(
            f"{path} could not be written: {reason}. Free some space, and run "
            "the same command again"
        ) from error


def allocate(path: epath.PathLike, size: int) -> None:
    """Takes the room on the disk that a local file of so many bytes needs.

    A file that is mapped into memory, and for which there is no room when it is
    written, would end the process.

    Raises:
      OSError: there is no room.
    """
    with open(path, "ab") as file:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, max(size, 1))
            return
        while (left := size - file.tell()) > 0:
            file.write(bytes(min(left, _CHUNK)))


def sync(directory: epath.Path) -> None:
    """Sees to it that a local directory is on the disk, with all its files."""
    if not leftovers.is_local(directory):
        return
    paths = [
        os.path.join(folder, name)
        for folder, _, names in os.walk(directory)
        for name in (*names, "")
    ]
    # At once, since a disk takes as long for one as for some.
    with futures.ThreadPoolExecutor(_SYNCED_AT_ONCE) as pool:
        list(pool.map(_sync, paths))


def _sync(path: epath.PathLike) -> None:
    """Sees to it that a local file, or the names in a folder, is on the disk.

    As far as the file system can: some know nothing of folders.
    """
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    except OSError as error:
        if exceptions.no_room(error):
            raise
    finally:
        os.close(number)
