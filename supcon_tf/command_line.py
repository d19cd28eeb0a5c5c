"""The command line of a tool: its flags, its help, and its errors in one line.

TensorFlow is not imported, so that `--help` and a wrong flag answer at once.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import re
import shutil
import signal
import sys
import textwrap
from collections.abc import Callable

from absl import app, flags, logging

from supcon_tf import exceptions, flagfiles, settings, trust

_HELP = {"--help", "-help", "-h", "--helpfull", "--helpshort"}
_INDENT = 26  # columns of the help before its text


def run(
    main: Callable[[settings.SettingsType], object],
    settings_class: type[settings.SettingsType],
    positional: str | None = None,
    about: str | None = None,
) -> None:
    """Runs a tool: flags to settings, one clear line for a wrong input.

    Args:
      main: takes the settings.
      settings_class: a dataclass of settings.
      positional: the tuple of strings that arguments without a flag make up;
        None for a tool that takes none.
      about: the head of the help; None is the docstring of the program.
    """

    def absl_main(argv: list[str]) -> None:
        given = {positional: tuple(argv[1:])} if len(argv) > 1 else {}
        try:
            if None in given:
                raise exceptions.InvalidValue(
                    f"arguments must be flags, got {' '.join(argv[1:])}"
                )
            own = settings.from_flags(settings_class, **given)
            trust.check_command(getattr(own, "architecture", ""), sys.argv)
            main(own)
        except Exception as error:
            line = _line_for(error, settings_class)
            if line is None:  # a defect
                raise
            sys.exit(f"error: {line}")
        except KeyboardInterrupt:
            print("interrupted", file=sys.stderr)
            sys.exit(128 + signal.SIGINT)

    _keep_output()
    if _HELP & set(sys.argv[1:]):
        head = about or sys.modules["__main__"].__doc__
        print(_help(settings_class, head, "--helpfull" in sys.argv))
        return
    # Before TensorFlow is imported: its C++ log is noise in every run, and what
    # matters in it comes as a Python exception too.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    logging.set_verbosity(logging.WARNING)
    settings.define_flags(settings_class)
    try:
        for path in trust.recorded_flagfiles(sys.argv):
            flagfiles.read_recorded(path)
    except exceptions.Error as error:
        sys.exit(f"error: {error}")
    app.run(absl_main)


def _keep_output() -> None:
    """Makes text that cannot be shown no reason to fail."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed, as by some schedulers
            setattr(sys, name, open(os.devnull, "w"))
        # A class called `été` on a terminal that knows ASCII alone.
        with contextlib.suppress(OSError):  # of a stream of another kind
            getattr(sys, name).reconfigure(errors="backslashreplace")
    # Figures become files. In the process of a notebook's `!supcon` it names a
    # backend that this Python may not have.
    os.environ["MPLBACKEND"] = "agg"


def run_without_flags(main: Callable[[], object], about: str) -> None:
    """Runs a tool that takes nothing, or shows `about`, its help."""
    if _HELP & set(sys.argv[1:]):
        print(about.strip())
    elif len(sys.argv) > 1:
        sys.exit(f"error: there are no flags, got {' '.join(sys.argv[1:])}")
    else:
        main()


def _line_for(
    error: Exception, settings_class: type[settings.Settings]
) -> str | None:
    """What a user can mend, in words of flags; None where nobody can."""
    names = settings_class.__dataclass_fields__
    if isinstance(error, exceptions.Error):
        # A message of the library, its arguments named as the user gave them.
        return re.sub(f"`({'|'.join(names)})`", r"--\1", str(error))
    path = getattr(error, "filename", None)
    is_path = isinstance(path, str | os.PathLike)
    if full := exceptions.no_room(error):
        # TensorFlow has the path in its text alone.
        named = re.search(rf"(\S+); {full}", str(error))
        path = path if is_path else named and named[1]
        there = f"{path} could not be written: " if path else ""
        return f"{there}{full}. Free some space, and run the same command again"
    if not isinstance(error, OSError):
        return None
    if isinstance(error, FileNotFoundError) or not is_path:
        return None  # a file that is missing is as likely a defect of ours
    path = pathlib.Path(os.path.abspath(error.filename))
    for name in names:
        value = flags.FLAGS[name].value
        if not isinstance(value, str) or not value:
            continue
        if path.is_relative_to(os.path.abspath(value)):
            return (
                f"--{name} must be a path that can be read and written, got "
                f"{error.filename}: {error.strerror}"
            )
    return None


def _help(
    settings_class: type[settings.Settings], about: str, full: bool
) -> str:
    """Flags by subject: the class that has them; the common ones, or all."""
    fields = settings.shown_fields(settings_class)
    groups = settings_class.__mro__
    group_of = {  # the last, which is the first that had it
        name: group
        for group in groups
        for name in getattr(group, "__annotations__", ())
    }
    own = settings_class.__annotations__
    shown = [x for x in fields if full or x.metadata["common"] or x.name in own]
    lines = [about.strip()]
    # The run first, then the tool's own and the groups in their order.
    for group in dict.fromkeys((settings.Settings, *groups)):
        helps = [_help_of(x) for x in shown if group_of[x.name] is group]
        if helps:
            heading = group.__doc__.partition("\n")[0].rstrip(".")
            lines += ["", f"{heading}:", *helps]
    lines += ["", "--flagfile=FILE reads flags from a file, one per line."]
    if len(shown) < len(fields):
        lines.append(f"--helpfull shows all {len(fields)} flags.")
    return "\n".join(lines)


def _help_of(field: dataclasses.Field) -> str:
    """A flag, its help, choices and default."""
    no = "[no]" if isinstance(field.default, bool) else ""
    name = f"  --{no}{field.name}"
    text = field.metadata["help"]
    if field.metadata["choices"]:
        text += f" One of {', '.join(field.metadata['choices'])}."
    if field.default not in (None, "", ()):
        text += f" [{settings.to_text(field.default)}]"
    columns = min(shutil.get_terminal_size().columns, 100) - _INDENT
    filled = textwrap.fill(text, max(columns, 1))
    filled = textwrap.indent(filled, " " * _INDENT)
    if len(name) < _INDENT - 1:
        return name + filled[len(name) :]
    return f"{name}\n{filled}"
