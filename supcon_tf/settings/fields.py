"""Fields of settings, with rules for their values.

A class of settings is a frozen dataclass whose fields are declared as

    width: float = setting(1.0, above=0)
    '''Multiplier of all channels.'''

The string below a field is the help text of its flag. A field that a class has
again, without a string below, is that of its base with another default: the
end of its help text, on the default of None, is left out. A class is put
together from groups, by inheritance; the first line of a group's docstring is
the heading of its flags in `--help`.
"""

from __future__ import annotations

import ast
import csv
import dataclasses
import functools
import inspect
import io
import itertools
import math
import operator
import re
import sys
import types
import typing
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeVar

from absl import flags

from supcon_tf import exceptions
from supcon_tf.disk import files
from supcon_tf.host import trust


class _Kind(NamedTuple):
    """A type of settings: in Python, as a text and as a flag."""

    accepted: type | tuple[type, ...]  # of a value, or of a tuple's items
    read: Callable[[str], object]  # raises ValueError or KeyError
    define: Callable[..., object]  # absl's function for its flag
    is_optional: bool = False
    is_tuple: bool = False

    def accepts(self, value: object) -> bool:
        """Whether a value is of this type; a bool is no number."""
        if value is None:
            return self.is_optional
        return isinstance(value, tuple) == self.is_tuple and all(
            isinstance(item, self.accepted)
            and isinstance(item, bool) == (self.accepted is bool)
            for item in _items(value)
        )


_OF_NONE = re.compile("[.;] [Dd]efault: .*")  # the end of a help text
_BOOLS = {"true": True, "false": False}
_KINDS = {  # of T; `T | None` and `tuple[T, ...]` follow below
    bool: _Kind(bool, lambda text: _BOOLS[text.lower()], flags.DEFINE_boolean),
    int: _Kind(int, int, flags.DEFINE_integer),
    float: _Kind((float, int), float, flags.DEFINE_float),
    str: _Kind(str, str, flags.DEFINE_string),
}
for _type, _kind in tuple(_KINDS.items()):
    _KINDS[_type | None] = _kind._replace(is_optional=True)
    _KINDS[tuple[_type, ...]] = _kind._replace(
        is_tuple=True, define=flags.DEFINE_list
    )
_RELATIONS = {  # of a value to its bound, or to that of another setting
    "be above": operator.gt,
    "be at least": operator.ge,
    "be at most": operator.le,
    "be below": operator.lt,
    "be a multiple of": lambda value, other: value % other == 0,
    "divide": lambda value, other: other % value == 0,
}


def setting(
    default: object,
    *,
    choices: tuple[str, ...] | None = None,
    above: float | None = None,
    at_least: float | None = None,
    at_most: float | None = None,
    must: tuple[str, Callable[[object], bool]] | None = None,
    used_by: dict[str, tuple[str, ...]] | None = None,
    recorded: bool = True,
    resumable: bool = False,
    measured: bool = False,
    grows: bool = False,
    adaptive: bool = False,
    decided: bool = False,
    repeated: bool = False,
    common: bool = False,
    path: bool = False,
) -> dataclasses.Field:
    """A field with the rules for its value.

    Args:
      default: the value without a flag.
      choices: the allowed values, or those of a tuple's items;
        `trust.FUNCTION` stands for any function of a module.
      above: exclusive lower bound.
      at_least: inclusive lower bound.
      at_most: inclusive upper bound.
      must: another rule, as the end of its error's text, {} standing for the
        value, and whether it holds; ("be 1 or 2, got {}", lambda n: 0 < n < 3).
      used_by: names of other settings, and the values of each that use this
        setting; under other values it must have its default.
      recorded: whether the run records it in its flagfile.
      resumable: whether it may change in a resumed run.
      measured: whether the results of a run depend on it, though it may change
        while the run is resumed.
      grows: whether it may be larger in a resumed run.
      adaptive: None leaves the value to the run, which resolves it by its data
        and keeps it when it is resumed.
      decided: whether the data alone decide it: recorded, and in no --help.
      repeated: each item of a tuple of strings has a flag, and may have commas.
      common: whether the short `--help` has it.
      path: whether it is a path, or several; a ~ at its beginning is expanded.
        A field that a class declares again stays a path.
    """
    metadata = dict(locals())  # the arguments
    return dataclasses.field(default=metadata.pop("default"), metadata=metadata)


def field_of(settings_class: type, name: str) -> dataclasses.Field:
    """The field of another class, for a class that is not derived from it."""
    return settings_class.__dataclass_fields__[name]


class _Declared:
    """Completes the fields of a class before `dataclass` collects them."""

    def __init_subclass__(cls) -> None:
        inherited = {
            field.name: field.metadata
            for base in reversed(cls.__mro__)
            if dataclasses.is_dataclass(base)
            for field in dataclasses.fields(base)
        }
        help_texts = _help_texts(sys.modules[cls.__module__])
        for name, hint in inspect.get_annotations(cls, eval_str=True).items():
            if typing.get_origin(hint) is typing.ClassVar:
                continue
            field = vars(cls)[name]
            if not isinstance(field, dataclasses.Field):
                field = setting(field)
            metadata = field.metadata
            if text := help_texts.get((cls.__name__, name)):
                metadata = metadata | {"help": text}
            elif "help" not in metadata:
                metadata = inherited[name]
                if field.default is not None:
                    text = _OF_NONE.sub(".", metadata["help"])
                    metadata = metadata | {"help": text}
            metadata = metadata | {"kind": _KINDS[hint]}
            if inherited.get(name, metadata)["path"]:
                metadata = metadata | {"path": True}
            field = dataclasses.field(default=field.default, metadata=metadata)
            setattr(cls, name, field)


@functools.cache
def _help_texts(module: types.ModuleType) -> dict[tuple[str, str], str]:
    """The strings below fields in a module, by class and field, as one line."""
    tree = ast.parse(inspect.getsource(module))
    return {
        (group.name, field.target.id): " ".join(below.value.value.split())
        for group in tree.body
        if isinstance(group, ast.ClassDef)
        for field, below in itertools.pairwise(group.body)
        if isinstance(field, ast.AnnAssign) and isinstance(below, ast.Expr)
    }


@dataclasses.dataclass(frozen=True)
class Settings(_Declared):
    """Where a run is on disk."""

    run_dir: str = setting("", resumable=True, common=True, path=True)
    """Run directory: what this tool writes, and reads of earlier ones."""

    def __post_init__(self):
        for field in dataclasses.fields(self):
            check_field(field, getattr(self, field.name))
            if field.metadata["path"]:
                self._expand(field.name)
        if not self.run_dir:
            raise exceptions.InvalidValue("--run_dir must be given")
        self._check_together()

    def _expand(self, name: str) -> None:
        """Expands ~ in a path, or in several; refuses addresses of the web."""
        value = getattr(self, name)
        # A user's own data set may read them.
        is_own = trust.names_module(getattr(self, "dataset", None) or "")
        addresses = [
            path
            for path in _items(value)
            if re.match("(https?|ftp)://", path or "")
        ]
        exceptions.require(
            not addresses or (is_own and name == "data_dir"),
            f"--{name} must be of this machine, or of a bucket by gs://: "
            "download it first",
            ", ".join(addresses),
        )
        if isinstance(value, tuple):
            value = tuple(files.expanded(path, name) for path in value)
        elif value is not None:
            value = files.expanded(value, name)
        object.__setattr__(self, name, value)

    def _check_together(self) -> None:
        """Checks rules between fields: `used_by`, `_check` of every group."""
        for field in dataclasses.fields(self):
            for name, values in (field.metadata["used_by"] or {}).items():
                value = getattr(self, name, None)  # a tool may not have it
                if value is not None and trust.choice(value) not in values:
                    only = f"only {', '.join(values)} can use it"
                    where = f"with --{name}={value}: {only}"
                    self._check_left_out(where, field.name)
        for group in reversed(type(self).__mro__):
            if "_check" in vars(group):
                group._check(self)

    def _check_pair(self, name: str, relation: str, other: str) -> None:
        """Raises ValueError unless two settings, if not None, relate so."""
        values = getattr(self, name), getattr(self, other)
        if None not in values:
            exceptions.require(
                _RELATIONS[relation](*values),
                f"--{name} must {relation} --{other}",
                " and ".join(map(str, values)),
            )

    def _check_left_out(self, where: str, *names: str) -> None:
        """Raises ValueError unless the named settings have their defaults."""
        for name in names:
            value = getattr(self, name)
            if value != self.__dataclass_fields__[name].default:
                raise exceptions.InvalidValue(
                    f"--{name} must be left out {where}, got {to_text(value)}"
                )


def check_field(field: dataclasses.Field, value: object) -> None:
    """Raises ValueError for a value that breaks a rule of its field."""
    for rule in _broken_rules(field, value):
        raise exceptions.InvalidValue(f"--{field.name} must {rule}")


def _broken_rules(field: dataclasses.Field, value: object) -> Iterator[str]:
    rules = field.metadata
    if not rules["kind"].accepts(value):
        yield f"be {field.type}, got {value!r}"
    if value is None:
        return
    # TensorFlow's paths are UTF-8, and a flagfile has a line for each setting.
    plain = _is_utf8(str(value)) and not re.search("[\r\n]", str(value))
    if rules["path"] and isinstance(value, str) and not plain:
        yield f"be UTF-8 without line breaks, got {value!r}{_other_locale()}"
    for item in _items(value):
        if isinstance(item, float) and not math.isfinite(item):
            yield f"be finite, got {to_text(value)}"
        if isinstance(item, str) and not rules["path"] and not _is_utf8(item):
            yield f"be UTF-8, got {item!r}{_other_locale()}"
        if rules["choices"] and trust.choice(item) not in rules["choices"]:
            yield f"be one of {', '.join(rules['choices'])}, got {item!r}"
    for bound in ("above", "at_least", "at_most"):
        limit, relation = rules[bound], f"be {bound.replace('_', ' ')}"
        if limit is not None and not _RELATIONS[relation](value, limit):
            yield f"{relation} {limit}, got {value}"
    if rules["must"]:
        rule, holds = rules["must"]
        if not holds(value):
            yield rule.format(to_text(value))


def _other_locale() -> str:
    """The remedy for a locale of other text than UTF-8; "" if it is UTF-8."""
    encoding = sys.getfilesystemencoding()
    if encoding == "utf-8":
        return ""
    return f"; the locale is one of {encoding}: set LC_ALL=C.UTF-8"


def _is_utf8(text: str) -> bool:
    """Whether a text can be written as UTF-8; surrogates are other bytes."""
    return not re.search("[\ud800-\udfff]", text)


def _items(value: object) -> tuple[object, ...]:
    """The items of a tuple, or the value itself."""
    return value if isinstance(value, tuple) else (value,)


def to_text(value: object) -> str:
    """A value as the text after `--name=`."""
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, tuple):
        return str(value)
    line = io.StringIO()  # as absl reads it
    csv.writer(line, lineterminator="").writerow(value)
    return line.getvalue()


SettingsType = TypeVar("SettingsType", bound=Settings)
