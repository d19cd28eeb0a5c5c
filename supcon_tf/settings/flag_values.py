"""Settings from flags and flagfiles, and as flags."""

from __future__ import annotations

import dataclasses
import functools

from absl import flags
from etils import epath

from supcon_tf import exceptions
from supcon_tf.disk import files, flagfiles
from supcon_tf.host import trust
from supcon_tf.settings import removed_flags
from supcon_tf.settings.fields import Settings, SettingsType, to_text

# Flags defined here belong to the tool that runs, and show in its --help.
flags.disclaim_key_flags()


class _ChoiceParser(flags.EnumParser):
    """Takes a function of a module too if it is among the choices."""

    def parse(self, argument: str) -> str:
        """The value; raises ValueError for one that is no choice."""
        super().parse(trust.choice(argument))
        return argument


def define_flags(
    settings_class: type[Settings], values: flags.FlagValues = flags.FLAGS
) -> None:
    """Defines one absl flag per field, with its default and help text.

    Removed flags too, as what flagfiles name: see `removed_flags`.
    """
    for field in dataclasses.fields(settings_class):
        kind, default = field.metadata["kind"], field.default
        choices, define = field.metadata["choices"], kind.define
        if kind.is_tuple:
            default = [str(item) for item in default]
            if field.metadata["repeated"]:
                define = flags.DEFINE_multi_string
        elif choices:
            define = functools.partial(flags.DEFINE, _ChoiceParser(choices))
        help_text = field.metadata["help"]
        define(field.name, default, help=help_text, flag_values=values)
    removed_flags.define(values, settings_class.__name__)


def from_flags(
    settings_class: type[SettingsType],
    values: flags.FlagValues = flags.FLAGS,
    **overrides: object,
) -> SettingsType:
    """Builds the settings from parsed flags and `overrides`.

    Raises:
      ValueError: a value breaks its rule.
    """
    arguments = {}
    for field in dataclasses.fields(settings_class):
        value, kind = values[field.name].value, field.metadata["kind"]
        if kind.is_tuple:
            try:
                value = tuple(map(kind.read, value))
            except ValueError:
                raise exceptions.InvalidValue(
                    f"--{field.name} must be numbers separated by commas, "
                    f"got {','.join(value)}"
                ) from None
        arguments[field.name] = value
    return settings_class(**arguments | overrides)


def to_flagfile(settings: Settings) -> str:
    """The settings as a text for `--flagfile`, a flag per line."""
    lines = [flagfiles.HEAD, *to_flags(settings), flagfiles.END]
    return "\n".join(lines) + "\n"


def to_flags(settings: Settings) -> list[str]:
    """The settings as flags of a command; those that are not recorded apart."""
    return [
        f"--{field.name}={to_text(part)}"
        for field in dataclasses.fields(settings)
        if (value := getattr(settings, field.name)) is not None
        and field.metadata["recorded"]
        for part in (value if field.metadata["repeated"] else (value,))
    ]


def from_flagfile(
    settings_class: type[SettingsType],
    path: epath.PathLike,
    *extra: str,
    recorded: bool = False,
) -> SettingsType:
    """Reads settings from a flagfile; `extra` flags overrule it.

    Args:
      settings_class: a dataclass of settings.
      path: of the file, local or gs://.
      *extra: flags, as on a command line.
      recorded: whether it is the file of a run, as `to_flagfile` writes it: see
        `flagfiles.read_recorded`. Other files may include more by --flagfile.

    Raises:
      ValueError: a line is no flag, a flag does not exist or its value breaks
        its rule; the message names file and line.
      FileNotFoundError: there is no such file.
    """
    path = files.expanded(path)
    if not epath.Path(path).is_file():
        raise exceptions.NotFound(f"no settings file {path}")
    read = flagfiles.read_recorded if recorded else flagfiles.read
    values = _parse(settings_class, path, read(path), extra)
    return from_flags(settings_class, values)


def _parse(
    settings_class: type[Settings],
    path: epath.PathLike,
    lines: dict[str, str],
    extra: tuple[str, ...],
) -> flags.FlagValues:
    """The values of flags; raises ValueError that names file and line."""

    def parse_flags(*arguments: str) -> flags.FlagValues:
        values = flags.FlagValues()
        define_flags(settings_class, values)
        values(["settings", *arguments])
        return values

    # absl strips blanks before a flag in a --flagfile, but cannot read gs://.
    flag_lines = {location: line.lstrip() for location, line in lines.items()}
    try:
        return parse_flags(*flag_lines.values(), *extra)
    except flags.Error as error:
        reason = error
    for location, line in flag_lines.items():
        try:
            parse_flags(line)
        except flags.Error as error:
            raise exceptions.InvalidValue(f"{location}: {error}") from error
    raise exceptions.InvalidValue(f"{path}: {reason}") from reason
