"""The mechanism of settings: fields with rules, flags, flagfiles.

Importing this module does not import TensorFlow, so that `--help` and a wrong
flag answer at once. The settings themselves are in config/.
"""

from __future__ import annotations

import dataclasses
from typing import TypeVar

from absl import flags
from etils import epath

from supcon_tf import exceptions

# Flags defined here belong to the tool that runs, and show in its --help.
flags.disclaim_key_flags()

_KINDS = {  # annotation -> accepted types
    "bool": bool,
    "int": int,
    "int | None": (int, type(None)),
    "float": (float, int),
    "float | None": (float, int, type(None)),
    "str": str,
    "str | None": (str, type(None)),
    "tuple[int, ...]": tuple,
    "tuple[float, ...]": tuple,
    "tuple[str, ...]": tuple,
}
_FROM_TEXT = {  # a single value
    "bool": lambda text: {"true": True, "false": False}[text.lower()],
    "int": int,
    "float": float,
    "str": str,
}


def setting(
    default: object,
    help: str,
    *,
    choices: tuple[str, ...] | None = None,
    above: float | None = None,
    at_least: float | None = None,
    at_most: float | None = None,
    recorded: bool = True,
    resumable: bool = False,
    grows: bool = False,
    adaptive: bool = False,
    repeated: bool = False,
    common: bool = False,
) -> dataclasses.Field:
    """A field with its flag's help text and the rule for its value.

    Args:
      default: the value where nothing is given.
      help: text of `--help`.
      choices: the values that exist, of a tuple those of its items.
      above: exclusive lower bound.
      at_least: inclusive lower bound.
      at_most: inclusive upper bound.
      recorded: part of the run, so part of its flagfile.
      resumable: may change where a run is resumed.
      grows: may be larger where a run is resumed.
      adaptive: None leaves the value to the run, which resolves it by its data
        and keeps it where it is resumed.
      repeated: each item of a tuple of strings has a flag of its own, and may
        hold commas.
      common: one that people set, so in the short `--help`.
    """
    rules = {"above": above, "at_least": at_least, "at_most": at_most}
    return dataclasses.field(
        default=default,
        metadata={
            "help": help,
            "choices": choices,
            "rules": {k: v for k, v in rules.items() if v is not None},
            "recorded": recorded,
            "resumable": resumable,
            "grows": grows,
            "adaptive": adaptive,
            "repeated": repeated,
            "common": common,
        },
    )


def with_default(base: type, name: str, default: object) -> dataclasses.Field:
    """The field of a base class with another default."""
    field = base.__dataclass_fields__[name]
    return dataclasses.field(default=default, metadata=field.metadata)


@dataclasses.dataclass(frozen=True)
class Settings:
    """Where a run is on disk."""

    run_dir: str = setting(
        "",
        "Run directory: what this tool writes, and reads of earlier ones.",
        resumable=True,
        common=True,
    )

    def __post_init__(self):
        for field in dataclasses.fields(self):
            _check_field(field, getattr(self, field.name))
        if not self.run_dir:
            raise exceptions.InvalidValue("--run_dir must be given")
        self._check()

    def _check(self) -> None:
        """Checks rules between fields; raises ValueError."""


def _check_field(field: dataclasses.Field, value: object) -> None:
    """Raises ValueError unless the value has the field's type and range."""
    accepted = _KINDS[field.type]
    is_bool = isinstance(value, bool)
    if not isinstance(value, accepted) or is_bool != (accepted is bool):
        raise exceptions.InvalidValue(
            f"--{field.name} must be {field.type}, got {value!r}"
        )
    choices, rules = field.metadata["choices"], field.metadata["rules"]
    items = value if isinstance(value, tuple) else (value,)
    unknown = [item for item in items if choices and item not in choices]
    if unknown:
        raise exceptions.InvalidValue(
            f"--{field.name} must be one of {', '.join(choices)}, got "
            f"{unknown[0]!r}"
        )
    holds = {
        "above": lambda limit: value > limit,
        "at_least": lambda limit: value >= limit,
        "at_most": lambda limit: value <= limit,
    }
    for rule, limit in rules.items():
        if value is not None and not holds[rule](limit):
            raise exceptions.InvalidValue(
                f"--{field.name} must be {rule.replace('_', ' ')} {limit}, "
                f"got {value}"
            )


def check_used(
    settings: Settings, used_by: dict[str, tuple[str, tuple[str, ...]]]
) -> None:
    """Raises ValueError for a setting that the chosen others leave unused.

    Args:
      settings: to be checked.
      used_by: name of a setting to (name of another, its values under which
        the first is used); elsewhere the first must have its default.
    """
    for field in dataclasses.fields(settings):
        name, users = used_by.get(field.name, ("", ()))
        value = getattr(settings, field.name)
        if not name or value == field.default:
            continue
        chosen = getattr(settings, name)
        if chosen not in users:
            raise exceptions.InvalidValue(
                f"--{field.name} must be left out with --{name}={chosen}: "
                f"only {', '.join(users)} can use it, got {to_text(value)}"
            )


SettingsType = TypeVar("SettingsType", bound=Settings)


def define_flags(
    settings_class: type[Settings], values: flags.FlagValues = flags.FLAGS
) -> None:
    """Defines one absl flag per field, with its default and help text."""
    define = {
        "bool": flags.DEFINE_boolean,
        "int": flags.DEFINE_integer,
        "int | None": flags.DEFINE_integer,
        "float": flags.DEFINE_float,
        "float | None": flags.DEFINE_float,
        "str": flags.DEFINE_string,
        "str | None": flags.DEFINE_string,
        "tuple[int, ...]": flags.DEFINE_list,
        "tuple[float, ...]": flags.DEFINE_list,
        "tuple[str, ...]": flags.DEFINE_list,
    }
    for field in dataclasses.fields(settings_class):
        default, choices = field.default, field.metadata["choices"]
        help_text = field.metadata["help"]
        if field.metadata["repeated"]:
            flags.DEFINE_multi_string(
                field.name, list(default), help_text, flag_values=values
            )
            continue
        if choices and not isinstance(default, tuple):
            flags.DEFINE_enum(
                field.name, default, choices, help_text, flag_values=values
            )
            continue
        if isinstance(default, tuple):
            default = [str(item) for item in default]
        define[field.type](field.name, default, help_text, flag_values=values)


def from_flags(
    settings_class: type[SettingsType],
    values: flags.FlagValues = flags.FLAGS,
    **given: object,
) -> SettingsType:
    """Builds the settings from parsed flags, but for those that are given.

    Raises:
      ValueError: a value breaks its rule.
    """
    arguments = {}
    for field in dataclasses.fields(settings_class):
        value = values[field.name].value
        if field.type == "tuple[str, ...]":
            value = tuple(value)
        elif field.type.startswith("tuple"):
            number = int if "int" in field.type else float
            try:
                value = tuple(number(item) for item in value)
            except ValueError:
                raise exceptions.InvalidValue(
                    f"--{field.name} must be numbers separated by commas, "
                    f"got {','.join(value)}"
                ) from None
        arguments[field.name] = value
    return settings_class(**arguments | given)


def to_flagfile(settings: Settings) -> str:
    """The settings as a text for `--flagfile`, a flag per line."""
    lines = []
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        if value is None or not field.metadata["recorded"]:
            continue
        parts = value if field.metadata["repeated"] else (value,)
        lines.extend(f"--{field.name}={to_text(part)}" for part in parts)
    return "\n".join(lines) + "\n"


def from_flagfile(
    settings_class: type[SettingsType], path: epath.PathLike, *extra: str
) -> SettingsType:
    """Reads settings from a flagfile; `extra` flags overrule it.

    Raises:
      ValueError: a flag does not exist or its value breaks its rule.
      FileNotFoundError: there is no such file.
    """
    values = flags.FlagValues()
    flags.DEFINE_string("flagfile", "", "", flag_values=values)
    define_flags(settings_class, values)
    if not epath.Path(path).is_file():
        raise exceptions.NotFound(f"no settings file {path}")
    # Not --flagfile, which cannot read gs:// paths.
    lines = epath.Path(path).read_text().splitlines()
    given = [line for line in lines if line and not line.startswith("#")]
    try:
        values(["settings", *given, *extra])
    except flags.Error as error:
        raise exceptions.InvalidValue(f"{path}: {error}") from error
    return from_flags(settings_class, values)


def to_text(value: object) -> str:
    """A value as it stands after `--name=`."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ",".join(str(item) for item in value)
    return str(value)


def from_text(
    field: dataclasses.Field, text: str, separator: str = ","
) -> object:
    """The value of a field from the text that `to_text` makes of it.

    Args:
      field: of a settings class.
      text: also "none", where that is a value of the field.
      separator: what stands between the items of a tuple.

    Raises:
      ValueError: the text is no value of the field's type, or breaks its rule.
    """
    kind, _, optional = field.type.partition(" | ")
    if optional and text.lower() == "none":
        return None
    try:
        if kind.startswith("tuple"):
            item = _FROM_TEXT[kind.removeprefix("tuple[").split(",")[0]]
            items = text.split(separator) if text else []
            value = tuple(map(item, items))
        else:
            value = _FROM_TEXT[kind](text)
    except (ValueError, KeyError):
        raise exceptions.InvalidValue(
            f"--{field.name} must be {field.type}, got {text!r}"
        ) from None
    _check_field(field, value)
    return value


def changes(before: Settings, after: Settings) -> list[str]:
    """Differences that make another run, each as "--flag=now (was before)".

    What only one command means, or may differ where a run goes on, is left
    out: `recorded`, `resumable` and `grows` of `setting`.
    """
    found = []
    for field in dataclasses.fields(after):
        old, new = getattr(before, field.name), getattr(after, field.name)
        rules = field.metadata
        if new == old or rules["resumable"] or not rules["recorded"]:
            continue
        if not (rules["grows"] and new > old):
            found.append(f"--{field.name}={to_text(new)} (was {to_text(old)})")
    return found


def adopt(chosen: SettingsType, before: Settings) -> SettingsType:
    """The settings, with what they leave to the run as an earlier one had it.

    Args:
      chosen: of a command that goes on with a run.
      before: that the run has recorded.
    """
    return dataclasses.replace(
        chosen,
        **{
            field.name: getattr(before, field.name)
            for field in dataclasses.fields(chosen)
            if field.metadata["adaptive"]
            and getattr(chosen, field.name) is None
        },
    )
