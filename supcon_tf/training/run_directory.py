"""The run directory: the unit on disk that one tool hands to the next."""

from __future__ import annotations

import json
import os

from etils import epath

from supcon_tf import config, files, settings
from supcon_tf.training import checkpoints


class RunDirectory:
    """Paths and records of one run, or of a stage below it.

    Holds settings.flags, classes.json, checkpoints/, metrics.jsonl and
    tensorboard/; evaluation adds evaluation.json, predictions.npz,
    representations.npz, samples.npz and tensorboard/projector/, the report
    report.html, export export/<version>/, conversion converted/. Each linear
    stage, and each transfer to other data with its transfer.json, is a
    RunDirectory below.

    Args:
      path: the directory, local or gs://; need not exist.
    """

    def __init__(self, path: str | os.PathLike[str]):
        self.path = epath.Path(path)
        self.settings_file = self.path / "settings.flags"
        self.classes_file = self.path / "classes.json"
        self.checkpoints = self.path / "checkpoints"
        self.metrics_file = self.path / "metrics.jsonl"
        self.tensorboard = self.path / "tensorboard"
        self.evaluation_file = self.path / "evaluation.json"
        self.predictions_file = self.path / "predictions.npz"
        self.representations_file = self.path / "representations.npz"
        self.samples_file = self.path / "samples.npz"
        self.projector = self.tensorboard / "projector"
        self.report_file = self.path / "report.html"
        self.transfer_file = self.path / "transfer.json"
        self.export = self.path / "export"
        self.converted = self.path / "converted"

    def stage(self, name: str) -> RunDirectory:
        """The sub-directory of a linear stage, or of a transfer."""
        return RunDirectory(self.path / name)

    def check_free(self, overwrite: bool) -> None:
        """Raises ValueError where a run would mix with what is there."""
        if not self.path.exists() or not any(self.path.iterdir()):
            return
        if not self.settings_file.exists():
            raise ValueError(
                f"{self.path} must be empty or a run directory, but holds "
                "other files"
            )
        if not overwrite:
            raise ValueError(
                f"{self.path} holds a run already; choose another directory, "
                "or replace it with --overwrite"
            )

    def create(
        self, chosen: settings.Settings, class_names: tuple[str, ...]
    ) -> None:
        """Starts a run here, in place of an earlier one."""
        if self.settings_file.exists():
            self._remove_outputs()
        self.path.mkdir(parents=True, exist_ok=True)
        files.write_atomically(self.settings_file, settings.to_flagfile(chosen))
        names = json.dumps(list(class_names), ensure_ascii=False, indent=1)
        files.write_atomically(self.classes_file, names + "\n")

    def _remove_outputs(self) -> None:
        """Deletes what tools wrote here, and the stages below."""
        for directory in (
            self.checkpoints,
            self.tensorboard,
            self.export,
            self.converted,
        ):
            directory.rmtree(missing_ok=True)
        for file in self.path.glob("*/settings.flags"):
            file.parent.rmtree()
        for file in (
            self.metrics_file,
            self.evaluation_file,
            self.predictions_file,
            self.representations_file,
            self.samples_file,
            self.report_file,
            self.transfer_file,
            self.classes_file,
            self.settings_file,
        ):
            file.unlink(missing_ok=True)

    def pretrain_settings(self) -> config.PretrainSettings:
        """The settings that the run was pretrained with.

        Raises:
          ValueError: there is no run here.
        """
        if not self.settings_file.exists():
            raise ValueError(
                f"{self.path} must be a run directory of tools/pretrain.py, "
                "but has no settings.flags"
            )
        return settings.from_flagfile(
            config.PretrainSettings, self.settings_file
        )

    def class_names(self) -> tuple[str, ...]:
        """Class names in the order of the labels."""
        return tuple(json.loads(self.classes_file.read_text()))

    def check_classes(self, class_names: tuple[str, ...]) -> None:
        """Raises ValueError unless the data has the classes of the run."""
        known = self.class_names()
        if known != class_names:
            changes = [f"-{n}" for n in known if n not in class_names]
            changes += [f"+{n}" for n in class_names if n not in known]
            raise ValueError(
                f"the classes of the data must be those of {self.path}, got "
                f"{' '.join(changes[:10]) or 'another order'}"
            )

    def check_same(self, chosen: settings.Settings) -> None:
        """Raises ValueError unless the run here has these settings.

        Those that do not change its result may differ; see `resumable` of
        `settings.setting`.
        """
        before = settings.from_flagfile(type(chosen), self.settings_file)
        changes = settings.changes(before, chosen)
        if changes:
            raise ValueError(
                f"--resume must come with the settings of {self.path}, got "
                f"{', '.join(changes)}; --flagfile={self.settings_file} "
                "repeats them"
            )

    def latest_checkpoint(self) -> str:
        """Path of the newest checkpoint.

        Raises:
          ValueError: there is none.
        """
        steps = checkpoints.steps_in(self.checkpoints)
        if not steps:
            raise ValueError(
                f"{self.path} must hold a checkpoint, but has none: its "
                "training has not come that far"
            )
        return str(checkpoints.path_of(self.checkpoints, steps[-1]))
