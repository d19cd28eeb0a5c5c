"""What a user can mend: errors whose message names the value and the rule.

Every check of this package raises one of these, each of them also the built-in
exception that fits. A tool prints the message alone. Any other exception is a
defect, and keeps its traceback.
"""

from __future__ import annotations

import errno
import importlib
import importlib.metadata
import os
import re
import types
from collections.abc import Iterable, Sequence

# What TensorFlow puts before the text of an error.
_PREFIX = re.compile(r"^(\{\{.*?\}\}|\(\d+\) \w+:|assertion failed:)\s*")
_MAX_REASON = 300  # characters
# The sentence around it has as many, and a path besides.
_MAX_LINE = 200
# A full disk, a user's share of one, a limit on the size of files.
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Error(Exception):
    """The base of all of them."""

    # AutoGraph builds an exception of traced code anew, with the place added
    # to its message, if its constructor is this one; else its type is lost.
    __init__ = Exception.__init__


class InvalidValue(Error, ValueError):
    """A setting, an argument, a file or a directory breaks a rule."""


class FileLost(InvalidValue):
    """A file of the data can no longer be read, of those that could."""


class WrongKeras(Error, TypeError):
    """An object of Keras 3 in a model of Keras 2, or the other way round."""


class NotFound(Error, FileNotFoundError):
    """A file or folder that was named is not there."""


class NotSaved(Error, OSError):
    """A file could not be written."""


class MissingPackage(Error, ImportError):
    """A package is needed and not installed, or does not import."""


class Failed(Error, RuntimeError):
    """Something outside of this package did not do its part."""


class Diverged(Error, FloatingPointError):
    """A loss or a weight is no longer finite."""


def one_line(error: Exception) -> str:
    """Kind and message, without the source lines that AutoGraph quotes.

    Keras lists all layers of a model in one line, which is cut.
    """
    line = _told(error)
    return line if len(line) <= _MAX_LINE else f"{line[: _MAX_LINE - 4]} ..."


def _told(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    if lines[0] == "in user code:":
        return lines[-1]
    told = next((line for line in lines if "OOM" in line), lines[0])
    return f"{type(error).__name__}: {told}"


def reason(text: str) -> str:
    """The line of an error of TensorFlow that says what is wrong.

    It stands before the first name of a node, `[[{{node ...}}]]`, and behind
    what TensorFlow says of Python's stack.
    """
    lines = text.partition("[[{{")[0].strip().splitlines() or [text]
    line = lines[-1 if "[[{{" in text else 0].strip()
    while (shorter := _PREFIX.sub("", line)) != line:
        line = shorter
    if line.startswith("[") and line.endswith("]"):  # of an assertion
        line = line[1:-1]
    return line[:_MAX_REASON]


def no_room(error: BaseException) -> str | None:
    """What the system says of a disk that is full; None for other errors.

    TensorFlow's errors have it in their text alone.
    """
    said = {os.strerror(number): number for number in _NO_ROOM}
    if isinstance(error, OSError) and error.errno in said.values():
        return os.strerror(error.errno)
    is_of_tensorflow = type(error).__module__.startswith("tensorflow.")
    if isinstance(error, NotSaved) or is_of_tensorflow:
        return next((text for text in said if text in str(error)), None)
    return None


def require(holds: bool, rule: str, value: object) -> None:
    """Raises ValueError "<rule>, got <value>" unless a value keeps its rule.

    The rule is in words, such as "`width` must be positive".
    """
    if not holds:
        raise InvalidValue(f"{rule}, got {value}")


def require_one_of(known: Iterable[str], name: str, value: str) -> None:
    """Raises ValueError unless an argument, `name`, has a known value."""
    rule = f"`{name}` must be one of {', '.join(known)}"
    require(value in known, rule, repr(value))


def listed(names: Sequence[str], most: int = 5) -> str:
    """The first names of some, for a message."""
    return ", ".join([*names[:most], *["..."] * (len(names) > most)])


def import_extra(
    extra: str, *modules: str, remedy: str = ""
) -> list[types.ModuleType]:
    """Imports modules of packages that an extra brings.

    The command that the message has keeps the TensorFlow that is installed.

    Raises:
      ImportError: one does not import; the message names the extra.
    """
    try:
        return [importlib.import_module(module) for module in modules]
    except ImportError as error:
        raise MissingPackage(
            f"this must have the extra `{extra}`: pip install "
            f"'supcon_tf[{extra}]'{_kept()}{remedy}, got: {error}"
        ) from error


def _kept() -> str:
    """What makes pip keep the TensorFlow that is installed, if one is."""
    try:
        return f" tensorflow=={importlib.metadata.version('tensorflow')}"
    except importlib.metadata.PackageNotFoundError:
        return ""  # or tensorflow-cpu and the like, which have other names
