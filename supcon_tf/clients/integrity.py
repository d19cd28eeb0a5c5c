"""Whether an export is as it was written, by its own list of its files."""

from __future__ import annotations

import json

from etils import epath

from supcon_tf import exceptions, files

_RECORD = "assets.extra/metadata.json"


def check_files(directory: epath.PathLike) -> None:
    """Checks that the files of an export are as they were written.

    Args:
      directory: export/<version> of a run directory, or a copy of it. A
        SavedModel without assets.extra/metadata.json has nothing to check.

    Raises:
      ValueError: a file is missing or differs; the message names the first.
    """
    directory = epath.Path(directory)
    if not (directory / _RECORD).exists():
        return
    for name, digest in _recorded(directory).items():
        file = directory / name
        if not file.exists():
            raise _damage(directory, f"{name} is missing")
        if files.digest(file) != digest:
            raise _damage(directory, f"{name} differs")


def _recorded(directory: epath.Path) -> dict[str, dict[str, object]]:
    """SHA-256 and bytes of the files, by relative path."""
    try:
        return dict(json.loads((directory / _RECORD).read_bytes())["files"])
    except (ValueError, TypeError, KeyError):
        raise _damage(directory, f"{_RECORD} lists no files") from None


def _damage(directory: epath.Path, what: str) -> ValueError:
    """An error that names the export and its damage."""
    return exceptions.InvalidValue(
        f"{directory} must be as it was exported, but {what}"
    )
