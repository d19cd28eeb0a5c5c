"""The lines of flagfiles: of users, and of runs.

A user may write any flagfile that absl reads. The flagfile of a run is as
`settings.to_flagfile` wrote it: the settings of the training alone.
"""

from __future__ import annotations

import itertools
import os
import pathlib
from collections.abc import Iterator, Sequence

from etils import epath

from supcon_tf import exceptions

# A folder with this file is a run directory, or a stage of one.
RECORD = "settings.flags"
# The first and the last line of a run's file: without the last, it was cut.
END = "# end"
HEAD = f"# Settings of supcon_tf; the last line of the file is {END}"
# Flags that include other lines or other settings, or ignore errors.
_INCLUDES = (
    *("flagfile", "undefok"),
    *("sweep", "linear_flagfile", "evaluate_flagfile"),
)


def read(path: epath.PathLike) -> dict[str, str]:
    """The flags of a user's file, by FILE:LINE, without comments.

    Raises:
      ValueError: a line is no flag; the message names file and line.
    """
    return _flag_lines(path, recorded=False)


def read_recorded(path: epath.PathLike) -> dict[str, str]:
    """The flags of a run's file, by FILE:LINE, without comments.

    Raises:
      ValueError: the file was cut, is empty or no text, a line is no flag, or
        includes another file; the message names file and line.
    """
    lines = _flag_lines(path, recorded=True)
    for location, line in lines.items():
        exceptions.require(
            line.startswith("--"), f"{location} must begin with --", repr(line)
        )
        name = line.removeprefix("--").partition("=")[0]
        exceptions.require(
            name not in _INCLUDES,
            f"{location} must be a setting, as no file of a run includes "
            "another",
            repr(line),
        )
    exceptions.require(
        bool(lines), f"{path} must hold settings, but is damaged", "none"
    )
    return lines


def _flag_lines(path: epath.PathLike, recorded: bool) -> dict[str, str]:
    """The lines of a flagfile by FILE:LINE, without comments."""
    try:
        text = epath.Path(path).read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise exceptions.InvalidValue(
            f"{path} must be UTF-8, got other bytes: {error}"
        ) from error
    # Not splitlines, which splits at other characters too.
    *lines, last = text.replace("\r\n", "\n").split("\n")
    # Earlier versions did not write END.
    has_end = HEAD in lines[:1] or (recorded and last)
    if has_end and END not in (*lines, last):
        raise exceptions.InvalidValue(
            f"{path} must end with the line {END}, but is cut in line "
            f"{len(lines) + bool(last)}; take it from a copy of the run"
        )
    flag_lines = {}
    for number, line in enumerate([*lines, last], start=1):
        if not line.strip() or line.lstrip().startswith(("#", "//")):
            continue
        location = f"{path}:{number}"
        exceptions.require(
            line.lstrip().startswith("-") and line.strip("- "),
            f"{location} must be a flag, --NAME=VALUE",
            repr(line),
        )
        flag_lines[location] = line
    return flag_lines


def named_by(arguments: Sequence[str]) -> Iterator[str]:
    """The flagfiles of arguments, and the flagfiles that they include."""
    visited, pending = set(), [*values("flagfile", arguments)]
    while pending:
        path = os.path.expanduser(pending.pop())
        if path not in visited and os.path.isfile(path):
            visited.add(path)
            yield path
            content = pathlib.Path(path).read_text("utf-8", "replace")
            pending += values("flagfile", content.splitlines())


def values(flag: str, arguments: Sequence[str]) -> Iterator[str]:
    """The values of a flag, of one or two dashes, after = or a space."""
    for argument, following in itertools.pairwise([*arguments, ""]):
        name, equals, value = argument.strip().partition("=")
        if name in (f"-{flag}", f"--{flag}"):
            yield value if equals else following
