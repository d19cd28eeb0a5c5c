"""Errors that a user can mend: the message names the value and the rule.

Every check of this package raises one of these classes, which are built-in
exceptions too. A tool prints the message alone. Any other exception is a
defect, and keeps its traceback.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import importlib.metadata
import os
import re
import types
from collections.abc import Iterable, Iterator, Sequence

# TensorFlow's prefixes of the text of an error.
_PREFIX = re.compile(r"^(\{\{.*?\}\}|\(\d+\) \w+:)\s*")
_ASSERTION = "assertion failed: ["
_MAX_REASON = 300  # characters
_MAX_LINE = 200  # of a reason inside of a sentence
# A full disk, a user's share of one, a limit on the size of files.
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Error(Exception):
    """The base of these errors."""

    # AutoGraph adds the source line to the message of an exception in traced
    # code, and keeps its type only if the constructor is this one.
    __init__ = Exception.__init__


class InvalidValue(Error, ValueError):
    """A setting, an argument, a file or a directory breaks a rule."""


class FileLost(InvalidValue):
    """A file of the data that was read before can no longer be read."""


class WrongKeras(Error, TypeError):
    """An object of Keras 3 in a model of Keras 2, or the other way round."""


class NotFound(Error, FileNotFoundError):
    """A file or folder does not exist."""


class NotSaved(Error, OSError):
    """A file could not be written."""


class MissingPackage(Error, ImportError):
    """A package is needed and not installed, or does not import."""


class Failed(Error, RuntimeError):
    """A server, a library or a process outside of this package failed."""


class Diverged(Error, FloatingPointError):
    """A loss or a weight is no longer finite."""


def one_line(error: Exception) -> str:
    """Kind and message, without the source lines that AutoGraph quotes.

    Keras lists all layers of a model in one line, which is cut.
    """
    line = _message(error)
    return line if len(line) <= _MAX_LINE else f"{line[: _MAX_LINE - 4]} ..."


def _message(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    if lines[0] == "in user code:":
        return lines[-1]
    line = next((line for line in lines if "OOM" in line), lines[0])
    return f"{type(error).__name__}: {line}"


def reason(text: str) -> str:
    """The line of a TensorFlow error that names the cause.

    The line stands before the first name of a node, `[[{{node ...}}]]`, and
    behind the trace of Python's stack.
    """
    lines = text.partition("[[{{")[0].strip().splitlines() or [text]
    line = lines[-1 if "[[{{" in text else 0].strip()
    while (shorter := _PREFIX.sub("", line)) != line:
        line = shorter
    if line.startswith(_ASSERTION):  # its data, each in brackets
        line = line[len(_ASSERTION) :].removesuffix("]").replace("] [", " ")
    return line[:_MAX_REASON]


def no_room(error: BaseException) -> str | None:
    """The system's message on a full disk; None for other errors.

    TensorFlow's errors have it in their text alone.
    """
    texts = {os.strerror(number): number for number in _NO_ROOM}
    if isinstance(error, OSError) and error.errno in texts.values():
        return os.strerror(error.errno)
    is_of_tensorflow = type(error).__module__.startswith("tensorflow.")
    if isinstance(error, NotSaved) or is_of_tensorflow:
        return next((text for text in texts if text in str(error)), None)
    return None


def not_written(path: object, reason: str) -> str:
    """The line on a full disk, by `no_room`; `path` is None if not known."""
    subject = f"{path} could not be written: " if path else ""
    return f"{subject}{reason}. Free some space, and run the same command again"


def require(holds: bool, rule: str, value: object) -> None:
    """Raises ValueError "<rule>, got <value>" unless `holds`.

    The rule is in words, such as "`width` must be positive".
    """
    if not holds:
        raise InvalidValue(f"{rule}, got {value}")


def require_one_of(choices: Iterable[str], name: str, value: str) -> None:
    """Raises ValueError unless an argument, `name`, is one of `choices`."""
    rule = f"`{name}` must be one of {', '.join(choices)}"
    require(value in choices, rule, repr(value))


@contextlib.contextmanager
def argument(name: str, called: str) -> Iterator[None]:
    """Errors of a block about an argument, `called`, are about `name`.

    A function that reads --data_dir reads other flags too.
    """
    try:
        yield
    except InvalidValue as error:
        message = str(error).replace(f"`{called}`", f"`{name}`")
        raise type(error)(message) from error


def listed(names: Sequence[str], limit: int = 5) -> str:
    """The first names and "...", for a message."""
    return ", ".join([*names[:limit], *["..."] * (len(names) > limit)])


def import_extra(
    extra: str, *modules: str, remedy: str = ""
) -> list[types.ModuleType]:
    """Imports modules of packages of an extra.

    The pip command in the message keeps the installed TensorFlow.

    Raises:
      ImportError: a module does not import; the message names the extra.
    """
    try:
        return [importlib.import_module(module) for module in modules]
    except ImportError as error:
        raise MissingPackage(
            f"this must have the extra `{extra}`: pip install "
            f"'supcon_tf[{extra}]'{_tensorflow_pin()}{remedy}, got: {error}"
        ) from error


def _tensorflow_pin() -> str:
    """The argument by which pip keeps the installed TensorFlow, or ""."""
    try:
        return f" tensorflow=={importlib.metadata.version('tensorflow')}"
    except importlib.metadata.PackageNotFoundError:
        return ""  # or tensorflow-cpu and the like, which have other names
