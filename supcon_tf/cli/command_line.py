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
from collections.abc import Callable, Iterator

from absl import app, flags, logging

from supcon_tf import exceptions, settings
from supcon_tf.disk import flagfiles
from supcon_tf.host import streams, trust

_HELP = {"--help", "-help", "-h", "--helpfull", "--helpshort"}
_INDENT = 26  # columns of the help before its text


@contextlib.contextmanager
def any_output() -> Iterator[None]:
    """A context in which output takes any text, and may lose its reader."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed, as by some schedulers
            setattr(sys, name, open(os.devnull, "w"))
        # A class called `été` on a terminal of ASCII.
        with contextlib.suppress(OSError):  # not every stream allows it
            getattr(sys, name).reconfigure(errors="backslashreplace")
    # Figures become files. A notebook's `!supcon` inherits the name of a
    # backend that this Python may not have.
    os.environ["MPLBACKEND"] = "agg"
    with streams.lasting_output():
        try:
            yield
        finally:
            # Python reports a full disk when it flushes at exit.
            with contextlib.suppress(OSError):
                sys.stdout.flush()


@any_output()
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
      positional: the setting, a tuple of strings, of arguments without a flag;
        None for a tool that takes no such arguments.
      about: the head of the help; None is the docstring of the program.
    """

    def absl_main(argv: list[str]) -> None:
        arguments = {positional: tuple(argv[1:])} if len(argv) > 1 else {}
        try:
            if None in arguments:
                raise exceptions.InvalidValue(
                    f"arguments must be flags, got {' '.join(argv[1:])}"
                )
            tool_settings = settings.from_flags(settings_class, **arguments)
            trust.check_command(vars(tool_settings), sys.argv)
            main(tool_settings)
        except Exception as error:
            line = _line_for(error, settings_class)
            if line is None:  # a defect
                raise
            sys.exit(f"error: {line}")
        except KeyboardInterrupt:
            print("interrupted", file=sys.stderr)
            sys.exit(128 + signal.SIGINT)

    if _HELP & set(sys.argv[1:]):
        head = about or sys.modules["__main__"].__doc__
        print(_help(settings_class, head, "--helpfull" in sys.argv))
        return
    # Before TensorFlow is imported: its C++ log is noise in every run, and its
    # errors are Python exceptions too.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    logging.set_verbosity(logging.WARNING)
    settings.define_flags(settings_class)
    try:
        for path in trust.recorded_flagfiles(sys.argv):
            flagfiles.read_recorded(path)
    except exceptions.Error as error:
        sys.exit(f"error: {error}")
    app.run(absl_main)


@any_output()
def run_without_flags(main: Callable[[], object], about: str) -> None:
    """Runs a tool without flags, or prints `about`, its help."""
    if _HELP & set(sys.argv[1:]):
        print(about.strip())
    elif len(sys.argv) > 1:
        sys.exit(f"error: there are no flags, got {' '.join(sys.argv[1:])}")
    else:
        main()


def _line_for(
    error: Exception, settings_class: type[settings.Settings]
) -> str | None:
    """The line of an error that a user can mend; None for other errors."""
    names = settings_class.__dataclass_fields__
    if isinstance(error, exceptions.Error):
        # Arguments of the library become the flags of the tool.
        return re.sub(f"`({'|'.join(names)})`", r"--\1", str(error))
    path = getattr(error, "filename", None)
    is_path = isinstance(path, str | os.PathLike)
    if reason := exceptions.no_room(error):
        # TensorFlow's errors have the path in their text alone.
        match = re.search(rf"(\S+); {reason}", str(error))
        path = path if is_path else match and match[1]
        return exceptions.not_written(path, reason)
    if not isinstance(error, OSError):
        return None
    if isinstance(error, FileNotFoundError) or not is_path:
        return None  # a missing file may be a defect of this package
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
    """The help: flags by the class that has them, the common ones or all."""
    fields = settings.shown_fields(settings_class)
    groups = settings_class.__mro__
    group_of = {  # the last group wins: the base that had the field first
        name: group
        for group in groups
        for name in getattr(group, "__annotations__", ())
    }
    tool_fields = settings_class.__annotations__
    help_fields = [
        field
        for field in fields
        if full or field.metadata["common"] or field.name in tool_fields
    ]
    lines = [about.strip()]
    # First the group of the run, then the tool's own, then the other groups.
    for group in dict.fromkeys((settings.Settings, *groups)):
        helps = [
            _flag_help(field)
            for field in help_fields
            if group_of[field.name] is group
        ]
        if helps:
            heading = group.__doc__.partition("\n")[0].rstrip(".")
            lines += ["", f"{heading}:", *helps]
    lines += ["", "--flagfile=FILE reads flags from a file, one per line."]
    if len(help_fields) < len(fields):
        lines.append(f"--helpfull shows all {len(fields)} flags.")
    return "\n".join(lines)


def _flag_help(field: dataclasses.Field) -> str:
    """A flag, its help, choices and default."""
    prefix = "[no]" if isinstance(field.default, bool) else ""
    name = f"  --{prefix}{field.name}"
    text = field.metadata["help"]
    if field.metadata["choices"]:
        text += f" One of {', '.join(field.metadata['choices'])}."
    if field.default not in (None, "", ()):
        text += f" [{settings.to_text(field.default)}]"
    columns = min(shutil.get_terminal_size().columns, 100) - _INDENT
    wrapped = textwrap.fill(text, max(columns, 1))
    wrapped = textwrap.indent(wrapped, " " * _INDENT)
    if len(name) < _INDENT - 1:
        return name + wrapped[len(name) :]
    return f"{name}\n{wrapped}"
