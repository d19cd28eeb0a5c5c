"""Files and directories that are there whole, or not at all."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pathlib
import tempfile
import uuid
from collections.abc import Iterator

from etils import epath

from supcon_tf import exceptions

_CHUNK = 2**22  # bytes
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")  # how it begins


def write_atomically(path: epath.PathLike, content: str | bytes) -> None:
    """Writes a file, local or gs://, under another name, then renames it."""
    path = epath.Path(path)
    partial = path.with_name(f".{path.name}.partial")
    data = content.encode() if isinstance(content, str) else content
    partial.write_bytes(data)
    partial.replace(path)


def write_json(
    path: epath.PathLike, content: object, ensure_ascii: bool = True
) -> None:
    """Writes JSON that people can read too; see `write_atomically`."""
    text = json.dumps(content, ensure_ascii=ensure_ascii, indent=1)
    write_atomically(path, text + "\n")


def read_json(path: epath.Path | pathlib.Path, absent: object) -> object:
    """What a file of JSON holds; `absent` where there is none."""
    return json.loads(path.read_text()) if path.exists() else absent


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
      ValueError: a part of the path is a file, or nothing can be written.
    """
    if "://" in str(path):
        return
    existing = pathlib.Path(path).absolute()
    while not os.path.lexists(existing):
        existing = existing.parent
    try:
        tempfile.TemporaryFile(dir=existing).close()
    except OSError as error:
        raise exceptions.InvalidValue(
            f"`{argument}` must be a folder that can be written, got {path}: "
            f"{existing}: {error.strerror}"
        ) from error


def state(path: epath.PathLike) -> list[int]:
    """Size in bytes and time of change of a file: others if it has changed.

    The time is in ns, in seconds of a file that is not on this machine.
    """
    if "://" in str(path):
        status = epath.Path(path).stat()
        return [status.length, int(status.mtime)]
    status = os.stat(path)
    return [status.st_size, status.st_mtime_ns]


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
    at once, both fill their own.

    Args:
      path: of the directory; is not touched if the block fails.
      overwrite: take the place of a directory. A process that is killed leaves
        one of the two, under this name or a hidden one beside it.

    Yields:
      An empty directory beside `path`, to be filled in the block.

    Raises:
      ValueError: `path` exists at the end, and is not to be overwritten.
    """
    path = epath.Path(path)
    partial = path.with_name(f".{path.name}.{uuid.uuid4()}.partial")
    partial.mkdir(parents=True)
    try:
        yield partial
        if overwrite:
            _replace(path, partial)
            return
        try:
            partial.rename(path)
        except OSError as error:
            if not path.exists():
                raise
            raise exceptions.InvalidValue(
                f"{path} must not exist, but does by now"
            ) from error
    finally:
        _remove(partial)


def remove_unfinished(path: epath.PathLike) -> None:
    """Removes what `make_atomically` has left of a path where it was killed.

    The directory exists, and is not overwritten: who still fills one of that
    name can only fail.
    """
    path = epath.Path(path)
    for partial in path.parent.glob(f".{path.name}.*.partial"):
        _remove(partial)


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
        _remove(aside)


def _remove(directory: epath.Path) -> None:
    """Removes a directory, if it is there and as far as it can be."""
    with contextlib.suppress(OSError):
        directory.rmtree(missing_ok=True)
