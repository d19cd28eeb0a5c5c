"""What is on disk of a cell: settings, log and state."""

from __future__ import annotations

import dataclasses
import pathlib

from supcon_tf import config, exceptions, files, settings

# How lines of a cell's log begin: a part of it, and its last words.
HEADING = "=== "
STAGE_1 = "pretraining"  # the heading of a part that cells may share
ERROR = "error: "
_TOOLS = {
    config.PretrainSettings: "pretrain",
    config.FinetuneTextSettings: "finetune_text",
    config.LinearSettings: "linear",
    config.EvaluateSettings: "evaluate",
}


def tool(own: settings.Settings) -> str:
    """What a part of a cell is called on disk and in sweep.json."""
    return _TOOLS[type(own)]


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
        for own in trained:
            changes = self._changes(own)
            if changes:
                raise exceptions.InvalidValue(
                    f"--run_dir must hold cells of the same settings, got "
                    f"{', '.join(changes)} for {self.path.name}; choose "
                    "another directory, or replace all with --overwrite"
                )

    def write_settings(self, *parts: settings.Settings) -> None:
        """Writes what the cell's process reads."""
        self.path.mkdir(parents=True, exist_ok=True)
        for own in parts:
            files.write_atomically(
                self._flagfile(type(own)), settings.to_flagfile(own)
            )

    def _changes(self, own: settings.Settings) -> list[str]:
        """What differs from the settings that are there, if any are."""
        if not self.has(type(own)):
            return []
        return settings.changes(self.read_settings(type(own)), own)

    def state(self) -> State:
        """How far the cell was when that was last written."""
        with files.readable(self._state_file):
            return State(**files.read_json(self._state_file, {}))

    def write_state(self, state: State) -> None:
        """Writes how far the cell is."""
        files.write_json(self._state_file, dataclasses.asdict(state))
