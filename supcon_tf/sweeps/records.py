"""The files of a cell: settings, log and state."""

from __future__ import annotations

import dataclasses
import pathlib

from supcon_tf import config, exceptions, files, settings

# How a line of a cell's log begins: the heading of a part, the last line.
HEADING = "=== "
STAGE_1 = "pretraining"  # the heading of a part that cells may share
ERROR = "error: "
_TOOLS = {
    config.PretrainSettings: "pretrain",
    config.FinetuneTextSettings: "finetune_text",
    config.LinearSettings: "linear",
    config.EvaluateSettings: "evaluate",
}


def tool(tool_settings: settings.Settings) -> str:
    """The name of a tool, by its settings, on disk and in sweep.json."""
    return _TOOLS[type(tool_settings)]


@dataclasses.dataclass(frozen=True)
class State:
    """How far a cell is.

    Attributes:
      status: pending, running, finished or failed.
      seconds: in processes of this cell, all attempts together.
      part: of a failed cell, the last heading of its log.
      error: of a failed cell, the last line of its log, or a signal.
    """

    status: str = "pending"
    seconds: float = 0.0
    part: str | None = None
    error: str | None = None


class CellDirectory:
    """cells/NAME of a sweep, which need not exist.

    The settings are flagfiles of the tools; models and evaluations are
    elsewhere, in the run directories that the settings name.
    """

    def __init__(self, path: pathlib.Path):
        self.path = path
        self.log = path / "log.txt"
        self._state_file = path / "state.json"

    def read_settings(
        self, settings_class: type[settings.SettingsType], *extra: str
    ) -> settings.SettingsType:
        """The settings of one tool; `extra` flags overrule them."""
        path = self._flagfile(settings_class)
        return settings.from_flagfile(
            settings_class, path, *extra, recorded=True
        )

    def has(self, settings_class: type[settings.Settings]) -> bool:
        """Whether the cell has a part of one tool."""
        return self._flagfile(settings_class).exists()

    def _flagfile(
        self, settings_class: type[settings.Settings]
    ) -> pathlib.Path:
        return self.path / f"{_TOOLS[settings_class]}.flags"

    def check_same(self, *trained: settings.Settings) -> None:
        """Raises ValueError where an earlier cell was trained otherwise."""
        for training in trained:
            changes = self._changes(training)
            if changes:
                raise exceptions.InvalidValue(
                    f"--run_dir must hold cells of the same settings, got "
                    f"{', '.join(changes)} for {self.path.name}; choose "
                    "another directory, or replace all with --overwrite"
                )

    def write_settings(self, *parts: settings.Settings) -> None:
        """Writes the flagfiles that the cell's process reads."""
        self.path.mkdir(parents=True, exist_ok=True)
        for part in parts:
            files.write_atomically(
                self._flagfile(type(part)), settings.to_flagfile(part)
            )

    def _changes(self, part: settings.Settings) -> list[str]:
        """How settings differ from the flagfile of an earlier cell, if any."""
        if not self.has(type(part)):
            return []
        return settings.changes(self.read_settings(type(part)), part)

    def state(self) -> State:
        """The state of the cell that was written last."""
        with files.readable(self._state_file):
            return State(**files.read_json(self._state_file, {}))

    def write_state(self, state: State) -> None:
        """Writes how far the cell is."""
        files.write_json(self._state_file, dataclasses.asdict(state))
