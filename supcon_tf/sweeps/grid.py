"""From the settings of a sweep to those of its cells, all of them checked."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import pathlib
import re

from supcon_tf import config, exceptions, settings

_LONGEST = 40  # characters of a value in a name
_LONGEST_NAME = 200  # file systems take 255


@dataclasses.dataclass(frozen=True)
class Cell:
    """One combination of values, and what is run for it.

    Attributes:
      name: "name=value,name=value", unique, fit for a file system.
      values: what stands for it in the table, by the name of the axis.
      pretraining: settings of stage 1; cells that differ in stage 2 alone
        share its run_dir.
      linear: settings of stage 2.
      evaluation: settings of the evaluation.
    """

    name: str
    values: dict[str, object]
    pretraining: config.PretrainSettings
    linear: config.LinearSettings
    evaluation: config.EvaluateSettings


def list_cells(chosen: config.SweepSettings) -> list[Cell]:
    """Every cell of a sweep, the last axis varying fastest.

    Raises:
      ValueError: nothing varies, a flagfile is wrong, or the settings of a
        cell break a rule; the cell is named.
      FileNotFoundError: there is no such flagfile.
    """
    axes = chosen.axes
    if not axes:
        raise exceptions.InvalidValue(
            "--sweep must be given, NAME=VALUE,VALUE,..."
        )
    linear, evaluation = _linear_base(chosen), _evaluation_base(chosen)
    cells = []
    for rows in itertools.product(*(axis.rows for axis in axes)):
        combination = list(zip(axes, rows, strict=True))
        values = {
            name: value
            for axis, row in combination
            for name, value in zip(axis.names, row, strict=True)
        }
        labels = {axis.name: axis.label(row) for axis, row in combination}
        try:
            cells.append(_cell(chosen, values, labels, linear, evaluation))
        except ValueError as error:
            raise exceptions.InvalidValue(
                f"cell {_file_name(values)}: {error}"
            ) from error
    _check_apart(cells)
    return cells


def _linear_base(chosen: config.SweepSettings) -> config.LinearSettings:
    """Stage 2 without what its axes change."""
    if chosen.linear_flagfile is None:
        return config.LinearSettings(
            chosen.run_dir, crop_area=(), horizontal_flip=False
        )
    return settings.from_flagfile(
        config.LinearSettings,
        chosen.linear_flagfile,
        f"--run_dir={chosen.run_dir}",
    )


def _evaluation_base(chosen: config.SweepSettings) -> config.EvaluateSettings:
    """The evaluation of all cells."""
    if chosen.evaluate_flagfile is None:
        return config.EvaluateSettings(
            chosen.run_dir, sample_images=0, plotted_images=0
        )
    return settings.from_flagfile(
        config.EvaluateSettings,
        chosen.evaluate_flagfile,
        f"--run_dir={chosen.run_dir}",
    )


def _cell(
    chosen: config.SweepSettings,
    values: dict[str, object],
    labels: dict[str, object],
    linear: config.LinearSettings,
    evaluation: config.EvaluateSettings,
) -> Cell:
    """The settings of one combination; raises ValueError."""
    of_stage_1, of_stage_2 = {}, {}
    for name, value in values.items():
        if name.startswith(config.LINEAR):
            of_stage_2[name.removeprefix(config.LINEAR)] = value
        else:
            of_stage_1[name] = value
    directory = _file_name(of_stage_1) or "base"
    run_dir = str(pathlib.Path(chosen.run_dir) / "runs" / directory)
    base = {
        field.name: getattr(chosen, field.name)
        for field in dataclasses.fields(config.PretrainSettings)
    }
    base |= {"run_dir": run_dir, "overwrite": False, "resume": True}
    stage = _stage_name(linear.name, of_stage_2)
    return Cell(
        name=_file_name(values),
        values=labels,
        pretraining=config.PretrainSettings(**base | of_stage_1),
        linear=dataclasses.replace(
            linear, run_dir=run_dir, name=stage, resume=True, **of_stage_2
        ),
        evaluation=dataclasses.replace(
            evaluation, run_dir=run_dir, linear_stage=stage
        ),
    )


def _file_name(values: dict[str, object]) -> str:
    """Settings and values as the name of a directory."""
    parts = [
        f"{name}={_plain(config.axis_text(value), 'A-Za-z0-9._+-')}"
        for name, value in values.items()
    ]
    return _short(",".join(parts))


def _stage_name(base: str, values: dict[str, object]) -> str:
    """The same of stage 2, whose name has fewer characters to choose from."""
    parts = [base]
    for name, value in values.items():
        text = config.axis_text(value).replace(".", "_")
        parts.append(f"{name}-{_plain(text, 'A-Za-z0-9_-')}")
    return _short("-".join(parts))


def _short(name: str) -> str:
    """A name that file systems take."""
    if len(name) <= _LONGEST_NAME:
        return name
    return f"{name[: _LONGEST_NAME - 9]}-{_digest(name)}"


def _plain(text: str, allowed: str) -> str:
    """A text as part of a file name; a digest tells odd ones apart."""
    plain = re.sub(f"[^{allowed}]", "-", text)[:_LONGEST]
    return plain if plain == text else f"{plain}-{_digest(text)}"


def _digest(text: str) -> str:
    """Eight characters that stand for a text."""
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def _check_apart(cells: list[Cell]) -> None:
    """Raises ValueError for two cells of one place."""
    places = {}
    for cell in cells:
        place = (cell.pretraining.run_dir, cell.linear.name)
        other = places.setdefault(place, cell)
        if other is not cell:
            raise exceptions.InvalidValue(
                f"--sweep must name cells apart, got {other.name} and "
                f"{cell.name}, which would both write {'/'.join(place)}"
            )
