"""The command line of a tool: its flags, its help, and its errors in one line.

TensorFlow is not imported, so that `--help` and a wrong flag answer at once.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import shutil
import signal
import sys
import textwrap
from collections.abc import Callable, Iterator

from absl import app, flags, logging

from supcon_tf import exceptions, settings

_HELP = {"--help", "-help", "-h", "--helpfull", "--helpshort"}
_INDENT = 26  # columns of the help before its text


def run(
    main: Callable[[settings.SettingsType], object],
    settings_class: type[settings.SettingsType],
    positional: str | None = None,
) -> None:
    """Runs a tool: flags to settings, one clear line for a wrong input.

    Args:
      main: takes the settings.
      settings_class: a dataclass of settings.
      positional: the tuple of strings that arguments without a flag make up;
        None for a tool that takes none.
    """

    def absl_main(argv: list[str]) -> None:
        given = {positional: tuple(argv[1:])} if len(argv) > 1 else {}
        with _errors_in_one_line(settings_class):
            if None in given:
                raise exceptions.InvalidValue(
                    f"arguments must be flags, got {' '.join(argv[1:])}"
                )
            main(settings.from_flags(settings_class, **given))

    if _HELP & set(sys.argv[1:]):
        about = sys.modules["__main__"].__doc__
        print(_help(settings_class, about, "--helpfull" in sys.argv))
        return
    # Before TensorFlow is imported: its C++ log is noise in every run, and what
    # matters in it comes as a Python exception too.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    logging.set_verbosity(logging.WARNING)
    settings.define_flags(settings_class)
    app.run(absl_main)


@contextlib.contextmanager
def _errors_in_one_line(
    settings_class: type[settings.Settings],
) -> Iterator[None]:
    """Exits with a line for what the user can mend; a defect stays as it is."""
    try:
        yield
    except exceptions.Error as error:
        sys.exit(f"error: {_with_flags(str(error), settings_class)}")
    except FileNotFoundError:  # as likely a defect of ours
        raise
    except OSError as error:
        flag = _flag_of_path(error.filename, settings_class)
        if flag is None:
            raise
        sys.exit(
            f"error: --{flag} must be a path that can be read and written, "
            f"got {error.filename}: {error.strerror}"
        )
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(128 + signal.SIGINT)


def _with_flags(text: str, settings_class: type[settings.Settings]) -> str:
    """A message of the library, its arguments named as the user gave them."""
    names = settings_class.__dataclass_fields__
    return re.sub(
        r"`(\w+)`",
        lambda found: f"--{found[1]}" if found[1] in names else found[0],
        text,
    )


def _flag_of_path(
    path: object, settings_class: type[settings.Settings]
) -> str | None:
    """The flag whose value a path is, or lies below; None for no flag's."""
    if not isinstance(path, str | os.PathLike):
        return None
    for field in dataclasses.fields(settings_class):
        value = flags.FLAGS[field.name].value
        if isinstance(value, str) and value:
            above = os.path.join(os.path.abspath(value), "")
            if os.path.join(os.path.abspath(path), "").startswith(above):
                return field.name
    return None


def _help(
    settings_class: type[settings.Settings], about: str, full: bool
) -> str:
    """Flags by subject: the class that has them; the common ones, or all."""
    fields = dataclasses.fields(settings_class)
    own = settings_class.__annotations__
    groups: dict[type, list[dataclasses.Field]] = {}
    for field in fields:
        if full or field.metadata["common"] or field.name in own:
            base = next(
                base
                for base in reversed(settings_class.__mro__)
                if field.name in getattr(base, "__annotations__", {})
            )
            groups.setdefault(base, []).append(field)
    lines = [about.strip()]
    # The run first, then the tool's own and the groups in their order.
    order = (settings.Settings, *settings_class.__mro__)
    for base in sorted(groups, key=order.index):
        lines += ["", base.__doc__.partition("\n")[0].rstrip(".") + ":"]
        lines += map(_help_of, groups[base])
    shown = sum(map(len, groups.values()))
    lines += ["", "--flagfile=FILE reads flags from a file, one per line."]
    if shown < len(fields):
        lines.append(f"--helpfull shows all {len(fields)} flags.")
    return "\n".join(lines)


def _help_of(field: dataclasses.Field) -> str:
    """A flag, its help, choices and default."""
    is_bool = field.type == "bool"
    name = f"  --[no]{field.name}" if is_bool else f"  --{field.name}"
    text = field.metadata["help"]
    if field.metadata["choices"]:
        text += f" One of {', '.join(field.metadata['choices'])}."
    if field.default not in (None, "", ()):
        text += f" [{settings.to_text(field.default)}]"
    width = min(shutil.get_terminal_size().columns, 100)
    indent = " " * _INDENT
    filled = textwrap.fill(
        text, width, initial_indent=indent, subsequent_indent=indent
    )
    if len(name) < _INDENT - 1:
        return name + filled[len(name) :]
    return f"{name}\n{filled}"
