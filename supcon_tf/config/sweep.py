"""Settings of a sweep: a base, and the settings that vary in a grid."""

from __future__ import annotations

import dataclasses
import difflib
import math
from typing import ClassVar

from supcon_tf import exceptions
from supcon_tf.config import images, running, stages, texts
from supcon_tf.settings import (
    Settings,
    check_field,
    field_of,
    removed_flags,
    setting,
    shown_fields,
    to_text,
)

LINEAR = "linear."  # before the name of a setting of stage 2
_LINK = ":"
# Settings that the sweep decides: the directory and the stages of a cell.
_SET_BY_THE_SWEEP = ("run_dir", "name")


@dataclasses.dataclass(frozen=True)
class SweepAxis:
    """A setting that varies, or several that vary together.

    Attributes:
      names: of settings of stage 1 or, after "linear.", of stage 2.
      rows: a value of each, all rows different, at least one.

    Example:
      >>> from supcon_tf import config
      >>> text = "optimizer:learning_rate=lars:0.3,rmsprop:0.01"
      >>> (axis,) = config.SweepSettings("runs/sweep", sweep=(text,)).axes
      >>> axis.rows
      (('lars', 0.3), ('rmsprop', 0.01))
    """

    names: tuple[str, ...]
    rows: tuple[tuple[object, ...], ...]

    @property
    def name(self) -> str:
        """The name of the axis in the table and the figure."""
        return _LINK.join(self.names)

    @property
    def is_repetition(self) -> bool:
        """Whether the values repeat the same training: seeds, draws."""
        return {*self.names} <= {"seed", f"{LINEAR}seed", "draw"}

    def label(self, row: tuple[object, ...]) -> object:
        """Returns the label of a row: a value, or the text of several."""
        if len(row) == 1 and not isinstance(row[0], tuple):
            return row[0]
        return _LINK.join(map(axis_text, row))


@dataclasses.dataclass(frozen=True)
class GridSettings(Settings):
    """What varies, and how the cells are run and shown.

    Rules between settings hold in each cell, not in the base: a grid of
    --epochs and --warmup_epochs may leave the defaults behind.
    """

    # Classes of the settings that an axis may name, by the prefix of the name.
    SWEPT: ClassVar[dict[str, type[Settings]]] = {}
    # Settings without which a draw draws nothing.
    DRAWN: ClassVar[tuple[str, ...]] = ()

    sweep: tuple[str, ...] = setting((), repeated=True)
    """A setting and its values, NAME=VALUE,VALUE,...; NAME is a flag of
    tools/pretrain.py or, as linear.NAME, of tools/train_linear.py; on texts, of
    tools/finetune_text.py. Given several times, all combinations are run;
    values of seed and of draw are repetitions. Settings that belong together
    vary together, joined by : (optimizer:learning_rate=lars:0.3,rmsprop:0.01).
    The items of a list are joined by + (crop_area=0.2+1,0.08+1), an optional
    value may be none."""
    evaluate_flagfile: str | None = setting(None, path=True)
    """Settings of the evaluation; default: those of tools/evaluate.py, but
    without pictures."""
    metric: str = "linear.top_1"
    """What the figure shows and the table marks the best of: the path of a
    number in evaluation.json, such as linear.ece or knn.top_1; method.NAME is
    of the classifier that a method ends with, stage 1's of ce and max_margin
    and of texts, the linear stage's of the others."""
    boxes: str | None = None
    """Setting whose values have a box each in the figure, over all other
    settings; default: a panel for each --sweep."""
    published: tuple[float, ...] = ()
    """Published numbers, in percent, beside the rows of the table, in their
    order; 0 where there is none."""
    parallel: int = setting(1, at_least=1)
    """Cells at a time; they share the memory and the devices of this
    machine."""

    def _check_together(self) -> None:
        running.check_start(self)
        names = [name for axis in self.axes for name in axis.names]
        for name in names:
            if names.count(name) > 1:
                raise exceptions.InvalidValue(
                    f"--sweep must name a setting once, got {name} twice"
                )
        self._check_draws(names)
        rows = math.prod(
            len(axis.rows) for axis in self.axes if not axis.is_repetition
        )
        if self.published and len(self.published) != rows:
            raise exceptions.InvalidValue(
                f"--published must have {rows} numbers, as the table has rows, "
                f"got {len(self.published)}"
            )
        if self.boxes and self.boxes not in names:
            raise exceptions.InvalidValue(
                f"--boxes must be a setting of --sweep, got {self.boxes}"
            )
        if "://" in self.run_dir:
            raise exceptions.InvalidValue(
                "--run_dir must be a directory of this machine, got "
                f"{self.run_dir}"
            )
        if self.strategy == "multi_worker":
            raise exceptions.InvalidValue(
                "--strategy must not be multi_worker: the cells are processes "
                "of this machine"
            )

    def _check_draws(self, names: list[str]) -> None:
        """Raises ValueError for draws that would all be the same training."""
        draws = any(
            axis.name == "draw" and len(axis.rows) > 1 for axis in self.axes
        )
        drawn = (
            name in names or getattr(self, name) not in (None, "none")
            for name in self.DRAWN
        )
        exceptions.require(
            not draws or any(drawn),
            f"--sweep=draw must come with one of --{', --'.join(self.DRAWN)}: "
            "else all draws are the same training, which --sweep=seed repeats",
            "none of them",
        )

    @property
    def axes(self) -> tuple[SweepAxis, ...]:
        """The axes of --sweep, in their order; raises ValueError."""
        return tuple(_axis(text, self.SWEPT) for text in self.sweep)


@dataclasses.dataclass(frozen=True)
class SweepSettings(GridSettings, stages.PretrainSettings):
    """Settings of tools/sweep.py: those of stage 1 are the base of a cell."""

    SWEPT = {"": stages.PretrainSettings, LINEAR: stages.LinearSettings}
    DRAWN = ("images_per_label", "train_fraction", "imbalance", "label_noise")

    linear_flagfile: str | None = setting(None, path=True)
    """Settings of stage 2; default: those of tools/train_linear.py, but without
    random views, which takes seconds."""


@dataclasses.dataclass(frozen=True)
class SweepTextSettings(GridSettings, texts.FinetuneTextSettings):
    """Settings of tools/sweep_text.py: a fine-tuning is the base of a cell."""

    SWEPT = {"": texts.FinetuneTextSettings}
    DRAWN = ("train_examples",)

    metric: str = "validation.top_1"
    """What the figure shows and the table marks the best of: the path of a
    number in evaluation.json. That of validation sentences, for to choose by
    those of the test is to learn from them."""


@dataclasses.dataclass(frozen=True)
class ReproduceSettings(Settings):
    """Settings of tools/reproduce.py."""

    table: str = setting(
        "table1",
        choices=(
            *("table1", "table2", "fig4a", "fig4b", "fig4c", "fig4d"),
            *("suppl_table1", "suppl_table4", "suppl_table5", "suppl_fig3"),
            *("long", "hardness", "family", "map", "objectives"),
        ),
        common=True,
    )
    """Table or figure of the paper; or family, the losses that came after it;
    map, the gain over cross-entropy by images and steps; objectives, all
    losses on one protocol. Its sweep is flags/tables/SCALE/TABLE.flags."""
    scale: str = setting(
        "small", choices=("small", "paper", "toy"), common=True
    )
    """small: CIFAR-10 as files in --data_dir, for a CPU; paper: ImageNet; toy:
    the sweep of small on a few digits, to see that it runs."""
    data_dir: str | None = field_of(images.DataSettings, "data_dir")
    """Folder of the images, or of the prepared TFDS data sets."""
    seeds: tuple[int, ...] = setting((0,), common=True)
    """Every cell is run with each; the table has mean and spread."""
    parallel: int = field_of(GridSettings, "parallel")

    def _check(self) -> None:
        if self.scale == "toy":
            self._check_left_out("with --scale=toy", "data_dir")


def axis_text(value: object) -> str:
    """Returns a value as --sweep writes it.

    Example:
      >>> from supcon_tf import config
      >>> [config.axis_text(value) for value in (0.1, (0.2, 1.0), None)]
      ['0.1', '0.2+1.0', 'none']
    """
    if value is None:
        return "none"
    return to_text(value).replace(",", "+")


def axis_value(field: dataclasses.Field, text: str) -> object:
    """Returns the value of a field, read from the text of `axis_text`."""
    kind = field.metadata["kind"]
    if kind.is_optional and text.lower() == "none":
        return None
    try:
        if kind.is_tuple:
            value = tuple(map(kind.read, text.split("+") if text else []))
        else:
            value = kind.read(text)
    except (ValueError, KeyError):
        raise exceptions.InvalidValue(
            f"--{field.name} must be {field.type}, got {text!r}"
        ) from None
    check_field(field, value)
    return value


def _axis(text: str, swept: dict[str, type[Settings]]) -> SweepAxis:
    """Returns the axis that the text of one --sweep describes."""
    name, equals, values = text.partition("=")
    exceptions.require(equals, "--sweep must be NAME=VALUE,VALUE,...", text)
    fields = [_field(part, swept) for part in name.split(_LINK)]
    rows = [_row(name, fields, value) for value in values.split(",")]
    axis = SweepAxis(tuple(name.split(_LINK)), tuple(rows))
    for row in rows:
        if rows.count(row) > 1:
            raise exceptions.InvalidValue(
                f"--sweep must name a value once, got {name}="
                f"{axis_text(axis.label(row))} twice"
            )
    return axis


def _row(
    name: str, fields: list[dataclasses.Field], text: str
) -> tuple[object, ...]:
    """Returns a row of an axis: a value of each field."""
    parts = text.split(_LINK) if len(fields) > 1 else [text]
    if len(parts) != len(fields):
        raise exceptions.InvalidValue(
            f"--sweep must have {len(fields)} values for {name}, joined by "
            f"{_LINK}, got {text}"
        )
    try:
        return tuple(map(axis_value, fields, parts))
    except ValueError as error:
        raise exceptions.InvalidValue(
            f"--sweep must have values of {name}: {error}"
        ) from error


def _field(name: str, swept: dict[str, type[Settings]]) -> dataclasses.Field:
    """Returns the field of a training that has this name in --sweep."""
    fields = {
        prefix + field.name: field
        for prefix, training in swept.items()
        for field in shown_fields(training)
        if field.metadata["recorded"] and field.name not in _SET_BY_THE_SWEEP
    }
    if name in fields:
        return fields[name]
    similar_names = difflib.get_close_matches(name, fields, n=1)
    hint = f"; {similar_names[0]} is one" if similar_names else ""
    if (linear_name := name.removeprefix(LINEAR)) in removed_flags.REMOVED:
        hint = f": {removed_flags.describe(linear_name)}"
    rule = "a setting of tools/finetune_text.py"
    if LINEAR in swept:
        rule = "a setting of stage 1, or linear.NAME of stage 2"
    raise exceptions.InvalidValue(f"--sweep must name {rule}, got {name}{hint}")
