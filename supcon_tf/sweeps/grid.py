"""The cells of a sweep, and their description in sweep.json."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import itertools
import math
import os
import pathlib
import re
from collections.abc import Mapping
from typing import NamedTuple

from supcon_tf import config, exceptions, run_files, settings
from supcon_tf.disk import files, image_names
from supcon_tf.host import trust
from supcon_tf.settings import removed_flags
from supcon_tf.text import files as text_files

_LONGEST_VALUE = 40  # characters of a value in a name
_LONGEST_NAME = 200  # file systems take 255
# Functions of users that a cell does not have.
_UNNAMED = {"architecture": None, "dataset": None}


class Tool(NamedTuple):
    """A command that cells run."""

    name: str
    key: str  # of its settings in sweep.json
    title: str  # in logs, in sweep.json and in the table


STAGE_1 = "pretraining"  # the title of a part that cells may share
TOOLS = {
    config.PretrainSettings: Tool("pretrain", "pretrain", STAGE_1),
    config.FinetuneTextSettings: Tool(
        "finetune_text", "finetune_text", "fine-tuning"
    ),
    config.LinearSettings: Tool("train_linear", "linear", "linear stage"),
    config.EvaluateSettings: Tool("evaluate", "evaluate", "evaluation"),
}


@dataclasses.dataclass(frozen=True)
class State:
    """The state of a cell.

    Attributes:
      status: pending, running, finished or failed.
      seconds: in processes of this cell, all attempts together.
      part: of a failed cell, the title of the command that failed.
      error: of a failed cell, the last line of its log, or a signal.
    """

    status: str = "pending"
    seconds: float = 0.0
    part: str | None = None
    error: str | None = None


@dataclasses.dataclass(frozen=True)
class Cell:
    """One combination of values, with the settings of its commands.

    Attributes:
      name: "name=value,name=value", unique, fit for a file system.
      directory: logs/NAME of the sweep: log, state, and the settings that its
        trainings were asked for with.
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
      ('temperature=0.1', 'runs/grid/cells/temperature=0.1', 0.1)
    """

    name: str
    directory: pathlib.Path
    values: dict[str, object]
    training: config.PretrainSettings | config.FinetuneTextSettings
    linear: config.LinearSettings | None
    evaluation: config.EvaluateSettings

    @property
    def run_dir(self) -> str:
        """The run directory of stage 1, and so of all parts."""
        return self.training.run_dir

    @property
    def linear_stage(self) -> str:
        """The name of stage 2; "" on texts."""
        return self.linear.name if self.linear else ""

    @property
    def log(self) -> pathlib.Path:
        """The file that the commands print into, one after another."""
        return self.directory / "log.txt"

    @property
    def trainings(self) -> tuple[settings.Settings, ...]:
        """The settings of the trainings: stage 1, and stage 2 on images."""
        stage_2 = () if self.linear is None else (self.linear,)
        return self.training, *stage_2

    def state(self) -> State:
        """Returns the state of the cell; one that has results is finished."""
        state_file = self.directory / "state.json"
        with files.readable(state_file):
            state = State(**files.read_json(state_file, {}))
        if self.results():
            return State("finished", state.seconds)
        if state.status == "finished":  # to be evaluated again
            return State("pending", state.seconds)
        return state

    def write_state(self, state: State) -> None:
        """Writes the state of the cell."""
        values = dataclasses.asdict(state)
        files.write_json(self.directory / "state.json", values)

    def check_same(self) -> None:
        """Raises ValueError where the cell was begun with other settings.

        Also where a file or the image folder of a finished cell has other
        content by now: the table would have the cell beside cells of other
        examples. The run of another cell is resumed, and checks its data.
        """
        is_finished = bool(self.results())
        for part in self.trainings:
            path = self._flagfile(part)
            if not path.exists():
                continue
            recorded = settings.from_flagfile(type(part), path, recorded=True)
            changes = settings.changes(recorded, part, is_finished)
            remedy = ""
            if part is self.linear:
                remedy = (
                    f"--sweep={config.LINEAR}NAME=VALUE keeps the pretraining, "
                )
            exceptions.require(
                not changes,
                "--run_dir must hold cells of the same settings",
                f"{', '.join(changes)} for {self.name}; {remedy}choose another "
                "directory, or replace all with --overwrite",
            )
        digests = files.read_json(self._digests_file, {}) if is_finished else {}
        for flag, digest in self._digests().items():
            exceptions.require(
                digests.get(flag, digest) == digest,
                "--run_dir must hold cells of the same files",
                f"{flag}, which has changed since {self.name} was finished; "
                "restore what was there, choose another directory, or replace "
                "all with --overwrite",
            )

    def record(self) -> None:
        """Writes what later sweeps compare: settings, and digests of files."""
        self.directory.mkdir(parents=True, exist_ok=True)
        for part in self.trainings:
            text = settings.to_flagfile(part)
            files.write_atomically(self._flagfile(part), text)
        files.write_json(self._digests_file, self._digests())

    def _digests(self) -> dict[str, object]:
        """Digests of the local data that the trainings read, by their flag."""
        digests = {
            f"--{field.name}={path}": _digest(path, *files.state(path))
            for part in self.trainings
            for field in dataclasses.fields(part)
            if field.metadata["path"]
            and isinstance(path := getattr(part, field.name), str)
            and os.path.isfile(path)
        }
        if getattr(self.training, "dataset", None) == "folder":
            folder = self.training.data_dir
            digests[f"--data_dir={folder}"] = _digest_of_names(folder)
        return digests

    @property
    def _digests_file(self) -> pathlib.Path:
        return self.directory / "files.json"

    def _flagfile(self, part: settings.Settings) -> pathlib.Path:
        return self.directory / f"{TOOLS[type(part)].key}.flags"

    def results(self) -> dict[str, object]:
        """Returns the evaluation of the cell, which lies in its run.

        It is {} before an evaluation, or after one with other settings or of
        another test file.
        """
        run = run_files.RunDirectory(self.run_dir)
        results = run.evaluation_owner(self.linear_stage).evaluation()
        recorded = removed_flags.without(results.get("settings", {}))
        test_file = getattr(self.training, "test_file", None)  # of texts
        measured = results.get("dataset")
        is_other_file = test_file is not None and measured not in (
            None,
            text_files.name_of(test_file),
        )
        is_other = recorded != settings.to_texts(self.evaluation)
        return {} if is_other or is_other_file else results

    def metrics(self) -> dict[str, float]:
        """Returns the finite numbers of the results, by their path.

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


@functools.lru_cache
def _digest(path: str, *state: int) -> dict[str, object]:
    """The digest of a file in this state; cells have the same files."""
    return files.digest(path)


@functools.lru_cache
def _digest_of_names(folder: str) -> str:
    """The digest of names and sizes of the images in a folder, read once."""
    folder = files.expanded(folder)
    if not os.path.isdir(folder):  # the training says so
        return ""
    images, _ = image_names.list_tree(folder)
    digest = hashlib.sha256()
    for image in images:
        name = os.path.relpath(image, folder)
        size = os.path.getsize(image) if os.path.exists(image) else -1
        digest.update(os.fsencode(f"{name}\0{size}\0"))
    return digest.hexdigest()


def list_cells(sweep: config.GridSettings) -> list[Cell]:
    """Returns every cell of a sweep; the last axis varies fastest.

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
    linear = None
    if isinstance(sweep, config.SweepSettings):
        # Without random views stage 2 takes seconds.
        changes = {"crop_area": (), "horizontal_flip": False}
        linear = _from_flagfile(
            sweep, "linear_flagfile", config.LinearSettings, changes
        )
    changes = {"sample_images": 0, "plotted_images": 0}
    evaluation = _from_flagfile(
        sweep, "evaluate_flagfile", config.EvaluateSettings, changes
    )
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


def _from_flagfile(
    sweep: config.GridSettings,
    flag: str,
    settings_class: type[settings.SettingsType],
    changes: Mapping[str, object],
) -> settings.SettingsType:
    """Returns the settings of a later part that do not vary.

    Args:
      sweep: the settings of the sweep.
      flag: the flag of the sweep that names their flagfile.
      settings_class: the class of the settings.
      changes: the values that replace defaults where there is no flagfile.

    Raises:
      ValueError: the flagfile says where data have moved, or it names code and
        lies in a run.
    """
    path, run_dir = getattr(sweep, flag), f"--run_dir={sweep.run_dir}"
    if path is None:
        return settings_class(sweep.run_dir, **changes)
    part_settings = settings.from_flagfile(settings_class, path, run_dir)
    named_code = vars(part_settings) | _UNNAMED  # which the sweep names
    trust.check_command(named_code, [f"--flagfile={path}"])
    for name in ("data_dir", "train_file", "test_file"):
        value = getattr(part_settings, name, None)
        rule = f"--{flag} must be without --{name}, which is that of the sweep"
        exceptions.require(value is None, rule, value)
    return part_settings


def describe(
    sweep: config.GridSettings, cells: list[Cell]
) -> dict[str, object]:
    """Returns the content of sweep.json, which table and figure read.

    Returns:
      `metric`, `boxes` and `published`, as in the settings; `axes`, a list of
      `name`, `values` and `is_repetition`;
      `cells`, a list of `name`, `values` by axis, `status`, `seconds`, `part`,
      `error`, `metrics` by path, the paths `log`, `run_dir` and
      `linear_stage`, and `settings` of the tools. Lists that vary are texts.
    """
    return {
        "metric": sweep.metric,
        "boxes": sweep.boxes,
        "published": list(sweep.published),
        "axes": [
            {
                "name": axis.name,
                "values": [axis.label(row) for row in axis.rows],
                "is_repetition": axis.is_repetition,
            }
            for axis in sweep.axes
        ],
        "cells": [
            {
                "name": cell.name,
                "values": cell.values,
                **dataclasses.asdict(cell.state()),
                "metrics": cell.metrics(),
                "log": str(cell.log),
                "run_dir": cell.run_dir,
                "linear_stage": cell.linear_stage,
                "settings": {
                    TOOLS[type(part)].key: dataclasses.asdict(part)
                    for part in (*cell.trainings, cell.evaluation)
                },
            }
            for cell in cells
        ],
    }


def _flatten(tree: dict[str, object], prefix: str = "") -> dict[str, float]:
    """Returns the finite numbers in nested dicts, not lists, by dotted path."""
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
    """Returns the cell of one combination; raises ValueError."""
    stage_1_values, stage_2_values = {}, {}
    for setting, value in values.items():
        if setting.startswith(config.LINEAR):
            stage_2_values[setting.removeprefix(config.LINEAR)] = value
        else:
            stage_1_values[setting] = value
    name, root = _file_name(values), pathlib.Path(sweep.run_dir)
    run_dir = str(root / "cells" / (_file_name(stage_1_values) or "base"))
    settings_class = sweep.SWEPT[""]
    base = settings.shared_fields(sweep, settings_class)
    base |= {"run_dir": run_dir, "overwrite": False, "resume": True}
    training = settings_class(**base | stage_1_values)
    # The sweep names the modules that the runs of its cells may import.
    run_settings = (
        {"run_dir": run_dir} | _UNNAMED | trust.repeated(vars(training))
    )
    if linear is not None:
        # The name of a stage has fewer characters to choose from.
        parts, allowed = [linear.name], "A-Za-z0-9_-"
        for setting, value in stage_2_values.items():
            text = config.axis_text(value).replace(".", "_")
            parts.append(f"{setting}-{_plain_text(text, allowed)}")
        stage_name = _plain_text("-".join(parts), allowed, _LONGEST_NAME)
        changes = {"name": stage_name, "resume": True}
        linear = dataclasses.replace(
            linear, **stage_2_values | changes | run_settings
        )
        evaluation = dataclasses.replace(evaluation, linear_stage=linear.name)
    return Cell(
        name=name,
        directory=root / "logs" / name,
        values=labels,
        training=training,
        linear=linear,
        evaluation=dataclasses.replace(evaluation, **run_settings),
    )


def _file_name(values: dict[str, object]) -> str:
    """Returns settings and values as the name of a directory."""
    allowed = "A-Za-z0-9._+-"
    parts = (
        f"{name}={_plain_text(config.axis_text(value), allowed)}"
        for name, value in values.items()
    )
    return _plain_text(",".join(parts), f"=,{allowed}", _LONGEST_NAME)


def _plain_text(text: str, allowed: str, length: int = _LONGEST_VALUE) -> str:
    """Returns a text for the name of a file; a digest tells odd ones apart."""
    plain = re.sub(f"[^{allowed}]", "-", text)[:length]
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    return plain if plain == text else f"{plain}-{digest}"
