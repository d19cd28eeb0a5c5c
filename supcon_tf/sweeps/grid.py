"""The cells of a sweep, and what sweep.json says of them."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import math
import pathlib
import re

from supcon_tf import (
    config,
    exceptions,
    removed_flags,
    run_files,
    settings,
    trust,
)
from supcon_tf.sweeps import records

_LONGEST = 40  # characters of a value in a name
_LONGEST_NAME = 200  # file systems take 255


@dataclasses.dataclass(frozen=True)
class Cell:
    """One combination of values, and what is run for it.

    Attributes:
      name: "name=value,name=value", unique, fit for a file system.
      directory: cells/NAME of the sweep.
      values: labels of the combination in the table, by the name of the axis.
      training: settings of stage 1, or of the fine-tuning on texts; cells that
        differ in stage 2 alone share its run_dir.
      linear: settings of stage 2; None on texts.
      evaluation: settings of the evaluation.

    Example:
      >>> from supcon_tf import config, sweeps
      >>> grid = "temperature=0.1,1"
      >>> sweep = config.SweepSettings("runs/grid", sweep=(grid,))
      >>> cell = sweeps.list_cells(sweep)[0]
      >>> cell.name, cell.run_dir, cell.training.temperature
      ('temperature=0.1', 'runs/grid/runs/temperature=0.1', 0.1)
    """

    name: str
    directory: records.CellDirectory
    values: dict[str, object]
    training: config.PretrainSettings | config.FinetuneTextSettings
    linear: config.LinearSettings | None
    evaluation: config.EvaluateSettings

    @property
    def run_dir(self) -> str:
        """The run directory of stage 1, and so of all parts."""
        return self.training.run_dir

    @property
    def trainings(self) -> tuple[settings.Settings, ...]:
        """The settings of the trainings: stage 1, and stage 2 on images."""
        return (self.training, self.linear)[: 1 + bool(self.linear)]

    def results(self) -> dict[str, object]:
        """The evaluation of the cell, which lies in its run.

        {} where there is none yet, or one that was made by other settings.
        """
        run = run_files.RunDirectory(self.run_dir)
        results = run.evaluation_owner(self.linear_stage).evaluation()
        recorded = removed_flags.without(results.get("settings", {}))
        is_current = recorded == settings.to_texts(self.evaluation)
        return results if is_current else {}

    def state(self) -> records.State:
        """How far the cell is; one that has results is finished."""
        state = self.directory.state()
        if self.results():
            return records.State("finished", state.seconds)
        if state.status == "finished":  # to be evaluated again
            return records.State("pending", state.seconds)
        return state

    def metrics(self) -> dict[str, float]:
        """The finite numbers of the results, by their path; none before them.

        The numbers of the classifier that the method ends with have a second
        path, "method.".
        """
        numbers = _flatten(self.results())
        stage_2 = self.linear and self.training.has_projections
        prefix = "linear." if stage_2 else "pretrained."
        return numbers | {
            f"method.{path.removeprefix(prefix)}": number
            for path, number in numbers.items()
            if path.startswith(prefix)
        }

    @property
    def linear_stage(self) -> str:
        """The name of stage 2; "" on texts."""
        return self.linear.name if self.linear else ""


def list_cells(sweep: config.GridSettings) -> list[Cell]:
    """Every cell of a sweep, the last axis varying fastest.

    Example:
      >>> from supcon_tf import config, sweeps
      >>> grid = "objective=supcon,ce", "seed=0,1"
      >>> sweep = config.SweepSettings("runs/grid", sweep=grid)
      >>> cells = sweeps.list_cells(sweep)
      >>> len(cells), cells[1].name
      (4, 'objective=supcon,seed=1')

    Raises:
      ValueError: nothing varies, a flagfile is wrong, or the settings of a
        cell break a rule; the cell is named.
      FileNotFoundError: there is no such flagfile.
    """
    axes = sweep.axes
    if not axes:
        raise exceptions.InvalidValue(
            "--sweep must be given, NAME=VALUE,VALUE,..."
        )
    linear = _stage_2(sweep)
    evaluation = config.EvaluateSettings(
        sweep.run_dir, sample_images=0, plotted_images=0
    )
    if sweep.evaluate_flagfile is not None:
        evaluation = settings.from_flagfile(
            config.EvaluateSettings,
            sweep.evaluate_flagfile,
            f"--run_dir={sweep.run_dir}",
        )
    _check_data("linear_flagfile", linear)
    _check_data("evaluate_flagfile", evaluation)
    cells, names = [], {}  # names by what a cell writes
    for rows in itertools.product(*(axis.rows for axis in axes)):
        values, labels = {}, {}
        for axis, row in zip(axes, rows, strict=True):
            values |= zip(axis.names, row, strict=True)
            labels[axis.name] = axis.label(row)
        try:
            cell = _cell(sweep, values, labels, linear, evaluation)
        except ValueError as error:
            raise exceptions.InvalidValue(
                f"cell {_file_name(values)}: {error}"
            ) from error
        output = cell.run_dir, cell.linear_stage
        if output in names:
            raise exceptions.InvalidValue(
                f"--sweep must name cells apart, got {names[output]} and "
                f"{cell.name}, which would both write {'/'.join(output)}"
            )
        names[output] = cell.name
        cells.append(cell)
    return cells


def _check_data(flag: str, tool_settings: settings.Settings | None) -> None:
    """Raises ValueError for a flagfile that says where data have moved."""
    for name in ("data_dir", "train_file", "test_file"):
        path = getattr(tool_settings, name, None)
        exceptions.require(
            path is None,
            f"--{flag} must be without --{name}, which is that of the sweep",
            path,
        )


def _stage_2(sweep: config.GridSettings) -> config.LinearSettings | None:
    """The settings of stage 2 that do not vary; None on texts."""
    if isinstance(sweep, config.SweepTextSettings):
        return None
    if sweep.linear_flagfile is not None:
        return settings.from_flagfile(
            config.LinearSettings,
            sweep.linear_flagfile,
            f"--run_dir={sweep.run_dir}",
        )
    # Without random views stage 2 takes seconds.
    return config.LinearSettings(
        sweep.run_dir, crop_area=(), horizontal_flip=False
    )


def describe(
    sweep: config.GridSettings, cells: list[Cell]
) -> dict[str, object]:
    """What sweep.json holds; read by the table and the figure.

    Returns:
      `metric`, `boxes` and `published`, as in the settings; `axes`, a list of
      `name`, `values` and `is_repetition`;
      `cells`, a list of `name`, `values` by axis, `status`, `seconds`, `part`,
      `error`, `metrics` by path, the paths `log`, `run_dir` and
      `linear_stage`, and `settings` of the tools. Lists that vary are texts.
    """

    def json_value(value: object) -> object:
        return config.axis_text(value) if isinstance(value, tuple) else value

    return {
        "metric": sweep.metric,
        "boxes": sweep.boxes,
        "published": list(sweep.published),
        "axes": [
            {
                "name": axis.name,
                "values": [json_value(axis.label(row)) for row in axis.rows],
                "is_repetition": axis.is_repetition,
            }
            for axis in sweep.axes
        ],
        "cells": [
            {
                "name": cell.name,
                "values": {n: json_value(v) for n, v in cell.values.items()},
                **dataclasses.asdict(cell.state()),
                "metrics": cell.metrics(),
                "log": str(cell.directory.log),
                "run_dir": cell.run_dir,
                "linear_stage": cell.linear_stage,
                "settings": {
                    records.tool(part): dataclasses.asdict(part)
                    for part in (*cell.trainings, cell.evaluation)
                },
            }
            for cell in cells
        ],
    }


def _flatten(tree: dict[str, object], prefix: str = "") -> dict[str, float]:
    """The finite numbers in nested dicts, by dotted path; lists are not."""
    numbers = {}
    for name, value in tree.items():
        if isinstance(value, dict):
            numbers |= _flatten(value, f"{prefix}{name}.")
        elif isinstance(value, int | float) and math.isfinite(value):
            numbers[prefix + name] = value
    return numbers


def _cell(
    sweep: config.GridSettings,
    values: dict[str, object],
    labels: dict[str, object],
    linear: config.LinearSettings | None,
    evaluation: config.EvaluateSettings,
) -> Cell:
    """The settings of one combination; raises ValueError."""
    stage_1_values, stage_2_values = {}, {}
    for setting, value in values.items():
        if setting.startswith(config.LINEAR):
            stage_2_values[setting.removeprefix(config.LINEAR)] = value
        else:
            stage_1_values[setting] = value
    name, root = _file_name(values), pathlib.Path(sweep.run_dir)
    run_dir = str(root / "runs" / (_file_name(stage_1_values) or "base"))
    settings_class = sweep.SWEPT[""]
    base = {
        field.name: getattr(sweep, field.name)
        for field in dataclasses.fields(settings_class)
    }
    base |= {"run_dir": run_dir, "overwrite": False, "resume": True}
    training = settings_class(**base | stage_1_values)
    # The sweep names the module of its runs, for all that its cells do.
    architecture = getattr(training, "architecture", "")
    module = architecture if trust.names_module(architecture) else None
    evaluation = dataclasses.replace(evaluation, architecture=module)
    if linear is not None:
        # The name of a stage has fewer characters to choose from.
        parts = [linear.name]
        for setting, value in stage_2_values.items():
            text = config.axis_text(value).replace(".", "_")
            parts.append(f"{setting}-{_plain_text(text, 'A-Za-z0-9_-')}")
        stage_name = _short_name("-".join(parts))
        changes = {"name": stage_name, "resume": True, **stage_2_values}
        changes |= {"run_dir": run_dir, "architecture": module}
        linear = dataclasses.replace(linear, **changes)
        evaluation = dataclasses.replace(evaluation, linear_stage=linear.name)
    return Cell(
        name=name,
        directory=records.CellDirectory(root / "cells" / name),
        values=labels,
        training=training,
        linear=linear,
        evaluation=dataclasses.replace(evaluation, run_dir=run_dir),
    )


def _file_name(values: dict[str, object]) -> str:
    """Settings and values as the name of a directory."""
    parts = (
        f"{name}={_plain_text(config.axis_text(value), 'A-Za-z0-9._+-')}"
        for name, value in values.items()
    )
    return _short_name(",".join(parts))


def _plain_text(text: str, allowed: str) -> str:
    """A text as part of a file name; a digest tells odd ones apart."""
    plain = re.sub(f"[^{allowed}]", "-", text)[:_LONGEST]
    return plain if plain == text else f"{plain}-{_digest(text)}"


def _short_name(name: str) -> str:
    """A name that file systems take."""
    if len(name) <= _LONGEST_NAME:
        return name
    return f"{name[: _LONGEST_NAME - 9]}-{_digest(name)}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]
