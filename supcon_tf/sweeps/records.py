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
STAGE_1 = "pretraining"  # the heading of a part that cells may share
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
        for own in (cell.pretraining, cell.linear):
            changes = self._changes(own)
            if changes:
                raise exceptions.InvalidValue(
                    f"--run_dir must hold cells of the same settings, got "
                    f"{', '.join(changes)} for {cell.name}; choose another "
                    "directory, or replace all with --overwrite"
                )

    def write_settings(self, cell: grid.Cell) -> None:
        """Writes what the cell's process reads; drops an outdated result."""
        self.path.mkdir(parents=True, exist_ok=True)
        if self.evaluation_file.exists() and self._changes(cell.evaluation):
            self.evaluation_file.unlink()
        for own in (cell.pretraining, cell.linear, cell.evaluation):
            files.write_atomically(
                self._settings[type(own)], settings.to_flagfile(own)
            )

    def _changes(self, own: settings.Settings) -> list[str]:
        """What differs from the settings that are there, if any are."""
        if not self._settings[type(own)].exists():
            return []
        return settings.changes(self.read_settings(type(own)), own)

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


def describe(
    sweep: config.SweepSettings, cells: list[grid.Cell]
) -> dict[str, object]:
    """What sweep.json holds; read by the table and the figure.

    Args:
      sweep: its settings.
      cells: all its cells.

    Returns:
      `metric`; `axes`, a list of `name`, `values` and `is_repetition`;
      `cells`, a list of `name`, `values` by axis, `status`, `seconds`, `part`,
      `error`, `metrics` by path, the paths `log`, `run_dir` and
      `linear_stage`, and `settings` of the three tools. Lists that vary are
      texts.
    """

    def as_json(value: object) -> object:
        return config.axis_text(value) if isinstance(value, tuple) else value

    described = []
    for cell in cells:
        directory = CellDirectory(cell.directory)
        described.append(
            {
                "name": cell.name,
                "values": {n: as_json(v) for n, v in cell.values.items()},
                **dataclasses.asdict(directory.state()),
                "metrics": directory.metrics(),
                "log": str(directory.log),
                "run_dir": cell.run_dir,
                "linear_stage": cell.linear.name,
                "settings": {
                    "pretrain": dataclasses.asdict(cell.pretraining),
                    "linear": dataclasses.asdict(cell.linear),
                    "evaluate": dataclasses.asdict(cell.evaluation),
                },
            }
        )
    axes = [
        {
            "name": axis.name,
            "values": [as_json(axis.label(row)) for row in axis.rows],
            "is_repetition": axis.is_repetition,
        }
        for axis in sweep.axes
    ]
    return {"metric": sweep.metric, "axes": axes, "cells": described}


def flatten(tree: dict[str, object], prefix: str = "") -> dict[str, float]:
    """The finite numbers in nested dicts, by dotted path; lists are not."""
    numbers = {}
    for name, value in tree.items():
        if isinstance(value, dict):
            numbers |= flatten(value, f"{prefix}{name}.")
        elif isinstance(value, int | float) and math.isfinite(value):
            numbers[prefix + name] = value
    return numbers
