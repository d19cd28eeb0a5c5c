"""From the settings of a sweep to those of its cells, all of them checked."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import pathlib
import re

from supcon_tf import config, settings

_LONGEST = 40  # characters of a value in a name
_LONGEST_NAME = 200  # file systems take 255


@dataclasses.dataclass(frozen=True)
class Cell:
    """One combination of values, and what is run for it.

    Attributes:
      name: "name=value,name=value", unique, fit for a file system.
      values: of each axis, by its name.
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
        raise ValueError("--sweep must be given, NAME=VALUE,VALUE,...")
    linear, evaluation = _linear_base(chosen), _evaluation_base(chosen)
    cells = []
    for values in itertools.product(*(axis.values for axis in axes)):
        chosen_values = dict(zip(axes, values, strict=True))
        name = _file_name(chosen_values)
        try:
            cells.append(_cell(name, chosen, chosen_values, linear, evaluation))
        except ValueError as error:
            raise ValueError(f"cell {name}: {error}") from error
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
    name: str,
    chosen: config.SweepSettings,
    values: dict[config.SweepAxis, object],
    linear: config.LinearSettings,
    evaluation: config.EvaluateSettings,
) -> Cell:
    """The settings of one combination; raises ValueError."""
    of_stage_1 = {a: v for a, v in values.items() if not a.is_linear}
    of_stage_2 = {a: v for a, v in values.items() if a.is_linear}
    base = {
        field.name: getattr(chosen, field.name)
        for field in dataclasses.fields(config.PretrainSettings)
    }
    directory = _file_name(of_stage_1) or "base"
    base["run_dir"] = str(pathlib.Path(chosen.run_dir) / "runs" / directory)
    base |= {"overwrite": False, "resume": True}
    base |= {axis.setting: value for axis, value in of_stage_1.items()}
    stage = _stage_name(linear.name, of_stage_2)
    return Cell(
        name=name,
        values={axis.name: value for axis, value in values.items()},
        pretraining=config.PretrainSettings(**base),
        linear=dataclasses.replace(
            linear,
            run_dir=base["run_dir"],
            name=stage,
            resume=True,
            **{axis.setting: value for axis, value in of_stage_2.items()},
        ),
        evaluation=dataclasses.replace(
            evaluation, run_dir=base["run_dir"], linear_stage=stage
        ),
    )


def _file_name(values: dict[config.SweepAxis, object]) -> str:
    """Axes and values as the name of a directory."""
    parts = [
        f"{axis.name}={_plain(config.axis_text(value), 'A-Za-z0-9._+-')}"
        for axis, value in values.items()
    ]
    name = ",".join(parts)
    if len(name) <= _LONGEST_NAME:
        return name
    return f"{name[: _LONGEST_NAME - 9]}-{_digest(name)}"


def _stage_name(base: str, values: dict[config.SweepAxis, object]) -> str:
    """The same of stage 2, whose name has fewer characters to choose from."""
    parts = [base]
    for axis, value in values.items():
        text = config.axis_text(value).replace(".", "_")
        parts.append(f"{axis.setting}-{_plain(text, 'A-Za-z0-9_-')}")
    name = "-".join(parts)
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
            raise ValueError(
                f"--sweep must name cells apart, got {other.name} and "
                f"{cell.name}, which would both write {'/'.join(place)}"
            )
