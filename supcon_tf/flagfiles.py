"""The lines of flagfiles: those that a user writes, and those of runs.

A flagfile of a user may be anything that absl reads. What a run has recorded is
as `settings.to_flagfile` wrote it: it says what was trained, and nothing else.
"""

from __future__ import annotations

import itertools
import os
import pathlib
from collections.abc import Iterator, Sequence

from etils import epath

from supcon_tf import exceptions

# The first and the last line of a file that is recorded: one without the last
# was cut.
END = "# end"
HEAD = f"# Settings of supcon_tf; the last line of the file is {END}"
# Flags that read other files, or settings from other flags.
_INCLUDES = (
    *("flagfile", "undefok"),
    *("sweep", "linear_flagfile", "evaluate_flagfile"),
)


def read(path: epath.PathLike) -> dict[str, str]:
    """The flags of a file of a user, by FILE:LINE; comments are left out.

    Raises:
      ValueError: a line is no flag; the message names file and line.
    """
    return _read(path, recorded=False)


def read_recorded(path: epath.PathLike) -> dict[str, str]:
    """The flags of a file of a run, by FILE:LINE; comments are left out.

    Raises:
      ValueError: the file was cut, is empty or no text, a line is no flag, or
        includes another file; the message names file and line.
    """
    flags_there = _read(path, recorded=True)
    for place, line in flags_there.items():
        exceptions.require(
            line.startswith("--"), f"{place} must begin with --", repr(line)
        )
        name = line.removeprefix("--").partition("=")[0]
        exceptions.require(
            name not in _INCLUDES,
            f"{place} must be a setting, as no file of a run includes another",
            repr(line),
        )
    exceptions.require(
        bool(flags_there), f"{path} must hold settings, but is damaged", "none"
    )
    return flags_there


def _read(path: epath.PathLike, recorded: bool) -> dict[str, str]:
    """The lines of a flagfile that are no comments, by FILE:LINE."""
    try:
        text = epath.Path(path).read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise exceptions.InvalidValue(
            f"{path} must be UTF-8, got other bytes: {error}"
        ) from error
    # Not splitlines, to which more than an LF ends a line.
    *lines, rest = text.replace("\r\n", "\n").split("\n")
    # Earlier versions wrote no last line to know the end by.
    has_end = HEAD in lines[:1] or (recorded and rest)
    if has_end and END not in (*lines, rest):
        raise exceptions.InvalidValue(
            f"{path} must end with the line {END}, but is cut in line "
            f"{len(lines) + bool(rest)}; take it from a copy of the run"
        )
    found = {}
    for number, line in enumerate([*lines, rest], start=1):
        if not line.strip() or line.lstrip().startswith(("#", "//")):
            continue
        place = f"{path}:{number}"
        exceptions.require(
            line.lstrip().startswith("-") and line.strip("- "),
            f"{place} must be a flag, --NAME=VALUE",
            repr(line),
        )
        found[place] = line
    return found


def named_by(arguments: Sequence[str]) -> Iterator[str]:
    """The flagfiles that arguments name, and those that these name."""
    seen, left = set(), [*values("flagfile", arguments)]
    while left:
        path = os.path.expanduser(left.pop())
        if path not in seen and os.path.isfile(path):
            seen.add(path)
            yield path
            content = pathlib.Path(path).read_text("utf-8", "replace")
            left += values("flagfile", content.splitlines())


def values(flag: str, arguments: Sequence[str]) -> Iterator[str]:
    """The values of a flag, of one or two dashes, after = or a space."""
    for argument, following in itertools.pairwise([*arguments, ""]):
        name, equals, value = argument.strip().partition("=")
        if name in (f"-{flag}", f"--{flag}"):
            yield value if equals else following
