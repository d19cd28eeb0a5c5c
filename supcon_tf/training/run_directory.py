"""The run directory: the unit on disk that one tool hands to the next."""

from __future__ import annotations

import json
import os

from etils import epath

from supcon_tf import config, data, exceptions, files, settings
from supcon_tf.training import checkpoints

_SHOWN_NAMES = 5  # of images, in a message


class RunDirectory:
    """Paths and records of one run, or of a stage below it.

    Holds settings.flags, classes.json, images.json where images have names,
    checkpoints/, metrics.jsonl and tensorboard/; evaluation adds
    evaluation.json, predictions.npz, representations.npz, samples.npz and
    tensorboard/projector/, the report report.html, export export/<version>/,
    conversion converted/. Each linear stage, and each transfer to other data
    with its transfer.json, is a RunDirectory below.

    Args:
      path: the directory, local or gs://; need not exist.
    """

    def __init__(self, path: str | os.PathLike[str]):
        self.path = epath.Path(path)
        self.settings_file = self.path / "settings.flags"
        self.classes_file = self.path / "classes.json"
        self.images_file = self.path / "images.json"
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
        """Raises ValueError where a run would mix with what is there.

        Or where nothing can be written.
        """
        files.check_writable("run_dir", self.path)
        if not self.path.exists() or not any(self.path.iterdir()):
            return
        if not self.settings_file.exists():
            raise exceptions.InvalidValue(
                f"{self.path} must be empty or a run directory, but holds "
                "other files"
            )
        if not overwrite:
            raise exceptions.InvalidValue(
                f"{self.path} holds a run already; go on with it by --resume, "
                "replace it by --overwrite, or choose another directory"
            )

    def create(
        self,
        chosen: settings.Settings,
        images: data.Source,
        skipped: tuple[str, ...] = (),
    ) -> None:
        """Starts a run here, in place of an earlier one.

        Args:
          chosen: its settings, resolved.
          images: that it trains on.
          skipped: files of other splits that could not be read.
        """
        if self.settings_file.exists():
            self._remove_outputs()
        self.path.mkdir(parents=True, exist_ok=True)
        self.record(chosen)
        _write_json(self.classes_file, list(images.class_names))
        if images.ids is not None:
            record = {"trained_on": images.ids}
            record["skipped"] = [*images.skipped, *skipped]
            _write_json(self.images_file, record)

    def record(self, chosen: settings.Settings) -> None:
        """Writes the settings of the run, in place of earlier ones."""
        files.write_atomically(self.settings_file, settings.to_flagfile(chosen))

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
            self.images_file,
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
            raise exceptions.InvalidValue(
                f"{self.path} must be a run directory of tools/pretrain.py, "
                "but has no settings.flags"
            )
        return self.recorded(config.PretrainSettings)

    def class_names(self) -> tuple[str, ...]:
        """Class names in the order of the labels."""
        return tuple(json.loads(self.classes_file.read_text()))

    def check_classes(self, class_names: tuple[str, ...]) -> None:
        """Raises ValueError unless the data has the classes of the run."""
        known = self.class_names()
        if known != class_names:
            changes = [f"-{n}" for n in known if n not in class_names]
            changes += [f"+{n}" for n in class_names if n not in known]
            raise exceptions.InvalidValue(
                f"the classes of the data must be those of {self.path}, got "
                f"{' '.join(changes[:10]) or 'another order'}"
            )

    def check_images(self, images: data.Source) -> None:
        """Raises ValueError unless these are the images of the run."""
        known, given = self._trained_on(), set(images.ids or ())
        if known and known != given:
            raise exceptions.InvalidValue(
                f"--resume must find the training images of {self.path}, got "
                f"{len(given - known)} others and {len(known - given)} "
                f"missing: {_listed(known ^ given)}"
            )

    def check_unseen(self, images: data.Source) -> None:
        """Raises ValueError for test images that the run was trained on.

        Args:
          images: a test split of the data folder of the run.
        """
        if images.ids is None:  # of a data set whose split is its publisher's
            return
        known = self._trained_on()
        # One that lies in a test folder by now may have been trained on
        # before there was any.
        seen = {
            name
            for name in images.ids
            if name in known or name.partition("/")[2] in known
        }
        if seen:
            raise exceptions.InvalidValue(
                f"the test images must be none that {self.path} was trained "
                f"on, got {len(seen)} of {len(images.ids)}: {_listed(seen)}"
            )
        has_folder = images.ids[0].startswith(("test/", "val/"))
        if not known and not has_folder:
            raise exceptions.InvalidValue(
                f"{self.path} must have an {self.images_file.name}: it was "
                "trained on a split that depended on all files of the folder, "
                "so that nobody knows which images it has seen; pretrain again"
            )

    def _trained_on(self) -> set[str]:
        """The names of the training images; none where they have no names."""
        if not self.images_file.exists():
            return set()
        return set(json.loads(self.images_file.read_text())["trained_on"])

    def recorded(
        self, settings_class: type[settings.SettingsType]
    ) -> settings.SettingsType:
        """The settings of the run, or of the stage, that is here."""
        return settings.from_flagfile(settings_class, self.settings_file)

    def check_same(self, chosen: settings.Settings) -> None:
        """Raises ValueError unless the run here has these settings.

        Those that do not change its result may differ, and some may grow; see
        `resumable` and `grows` of `settings.setting`.
        """
        changes = settings.changes(self.recorded(type(chosen)), chosen)
        if changes:
            raise exceptions.InvalidValue(
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
            raise exceptions.InvalidValue(
                f"{self.path} must hold a checkpoint, but has none: its "
                "training has not come that far"
            )
        return str(checkpoints.path_of(self.checkpoints, steps[-1]))


def _write_json(path: epath.Path, content: object) -> None:
    """Writes a file that people can read too."""
    text = json.dumps(content, ensure_ascii=False, indent=1)
    files.write_atomically(path, text + "\n")


def _listed(names: set[str]) -> str:
    """Some names, for a message."""
    shown = ", ".join(sorted(names)[:_SHOWN_NAMES])
    return shown + (", ..." if len(names) > _SHOWN_NAMES else "")
