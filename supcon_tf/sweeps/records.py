"""What is on disk of a cell, and what sweep.json says of all."""

from __future__ import annotations

import dataclasses
import json
import math
import pathlib

from supcon_tf import config, exceptions, files, settings
from supcon_tf.sweeps import grid

# How lines of a cell's log begin: a part of it, and its last words.
HEADING = "=== "
ERROR = "error: "


@dataclasses.dataclass(frozen=True)
class State:
    """How far a cell is.

    Attributes:
      status: pending, running, finished or failed.
      seconds: in processes of this cell, all attempts together.
      part: of a failed cell, what it was in: a heading of its log.
      error: of a failed cell, its last words.
    """

    status: str = "pending"
    seconds: float = 0.0
    part: str | None = None
    error: str | None = None


class CellDirectory:
    """cells/NAME of a sweep: settings, log, state and result of a cell.

    The settings are flagfiles of the three tools; the models are elsewhere,
    in the run directories that the settings name.

    Args:
      path: the directory; need not exist.
    """

    def __init__(self, path: pathlib.Path):
        self.path = path
        self.log = path / "log.txt"
        self.evaluation_file = path / "evaluation.json"
        self._state_file = path / "state.json"
        self._settings = {
            config.PretrainSettings: path / "pretrain.flags",
            config.LinearSettings: path / "linear.flags",
            config.EvaluateSettings: path / "evaluate.flags",
        }

    def read_settings(
        self, settings_class: type[settings.SettingsType], *extra: str
    ) -> settings.SettingsType:
        """The settings of one tool; `extra` flags overrule them."""
        path = self._settings[settings_class]
        return settings.from_flagfile(settings_class, path, *extra)

    def check_same(self, cell: grid.Cell) -> None:
        """Raises ValueError where an earlier cell was trained otherwise."""
        for chosen in (cell.pretraining, cell.linear):
            if not self._settings[type(chosen)].exists():
                continue
            before = self.read_settings(type(chosen))
            changes = settings.changes(before, chosen)
            if changes:
                raise exceptions.InvalidValue(
                    f"--run_dir must hold cells of the same settings, got "
                    f"{', '.join(changes)} for {cell.name}; choose another "
                    "directory, or replace all with --overwrite"
                )

    def write_settings(self, cell: grid.Cell) -> None:
        """Writes what the cell's process reads; drops an outdated result."""
        self.path.mkdir(parents=True, exist_ok=True)
        if self.evaluation_file.exists():
            before = self.read_settings(config.EvaluateSettings)
            if settings.changes(before, cell.evaluation):
                self.evaluation_file.unlink()
        for chosen in (cell.pretraining, cell.linear, cell.evaluation):
            files.write_atomically(
                self._settings[type(chosen)], settings.to_flagfile(chosen)
            )

    def state(self) -> State:
        """How far the cell is; one that has a result is finished."""
        known = State()
        if self._state_file.exists():
            known = State(**json.loads(self._state_file.read_text()))
        if self.evaluation_file.exists():
            return State("finished", known.seconds)
        if known.status == "finished":  # to be evaluated again
            return State("pending", known.seconds)
        return known

    def write_state(self, state: State) -> None:
        """Writes how far the cell is."""
        text = json.dumps(dataclasses.asdict(state), indent=1)
        files.write_atomically(self._state_file, text + "\n")

    def metrics(self) -> dict[str, float]:
        """The finite numbers of the result, by their path; none before it."""
        if not self.evaluation_file.exists():
            return {}
        return flatten(json.loads(self.evaluation_file.read_text()))


def cell_directory(
    chosen: config.SweepSettings, cell: grid.Cell
) -> CellDirectory:
    """Where a sweep keeps what it knows of a cell."""
    return CellDirectory(pathlib.Path(chosen.run_dir) / "cells" / cell.name)


def describe(
    chosen: config.SweepSettings, cells: list[grid.Cell]
) -> dict[str, object]:
    """What sweep.json holds; read by the table and the figure.

    Args:
      chosen: the settings of the sweep.
      cells: all its cells.

    Returns:
      `metric`; `axes`, a list of `name`, `values` and `is_repetition`;
      `cells`, a list of `name`, `values` by axis, `status`, `seconds`, `part`,
      `error`, `metrics` by path, the paths `log`, `run_dir` and
      `linear_stage`, and `settings` of the three tools. Lists that vary are
      texts.
    """
    return {
        "metric": chosen.metric,
        "axes": [
            {
                "name": axis.name,
                "values": [_json_value(axis.label(row)) for row in axis.rows],
                "is_repetition": axis.is_repetition,
            }
            for axis in chosen.axes
        ],
        "cells": [_describe_cell(chosen, cell) for cell in cells],
    }


def flatten(tree: dict[str, object], prefix: str = "") -> dict[str, float]:
    """The finite numbers in nested dicts, by dotted path; lists are not."""
    found = {}
    for name, value in tree.items():
        if isinstance(value, dict):
            found |= flatten(value, f"{prefix}{name}.")
        elif isinstance(value, int | float) and math.isfinite(value):
            found[prefix + name] = value
    return found


def _describe_cell(
    chosen: config.SweepSettings, cell: grid.Cell
) -> dict[str, object]:
    """One cell of sweep.json."""
    directory = cell_directory(chosen, cell)
    return {
        "name": cell.name,
        "values": {n: _json_value(v) for n, v in cell.values.items()},
        **dataclasses.asdict(directory.state()),
        "metrics": directory.metrics(),
        "log": str(directory.log),
        "run_dir": cell.pretraining.run_dir,
        "linear_stage": cell.linear.name,
        "settings": {
            "pretrain": dataclasses.asdict(cell.pretraining),
            "linear": dataclasses.asdict(cell.linear),
            "evaluate": dataclasses.asdict(cell.evaluation),
        },
    }


def _json_value(value: object) -> object:
    """A value as JSON has it: a tuple becomes its text."""
    return config.axis_text(value) if isinstance(value, tuple) else value
