"""A run directory: all names in it, and what is read and written there."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import os
import shlex
from collections.abc import Iterator, Sequence

import numpy as np
from etils import epath

from supcon_tf import exceptions, settings
from supcon_tf.disk import (
    files,
    flagfiles,
    leftovers,
    locks,
    origins,
    rows,
)
from supcon_tf.host import trust
from supcon_tf.run_files import checkpoints, outputs
from supcon_tf.run_files.contents import ANEW, read_metrics, write_arrays
from supcon_tf.run_files.moved import moved_data
from supcon_tf.run_files.trained_on import TrainedOn
from supcon_tf.settings import removed_flags

EXPORT_RECORD = "assets.extra/metadata.json"  # below export/<version>
GALLERY_RECORD = "gallery.json"  # below galleries/<name>/<version>
ENCODED_LABELS = "labels.npy"  # below encoded/<split>
ENCODED_RECORD = "made_of.json"


class RunDirectory:
    """Paths and records of one run, or of a stage below it.

    Export adds export/<version>/, conversion converted/. Each linear stage, and
    each transfer to other data with its transfer.json, is a RunDirectory below.
    The files of an evaluation, and report.html, belong to the linear stage that
    was measured, or to a run without linear stages. The path is local or gs://,
    and need not exist.

    Example:
      >>> from supcon_tf import training
      >>> run = training.RunDirectory("runs/mine")
      >>> run.class_names(), [epoch["epoch"] for epoch in run.metrics()]
      (('bright', 'dark', 'mid'), [1, 2])
      >>> run.stage("linear").exists()
      True
    """

    def __init__(self, path: str | os.PathLike[str]):
        self.path = epath.Path(files.expanded(path))
        if not self.path.name.strip("."):  # ".", whose parent is "." too, or ..
            self.path = epath.Path(files.whole(os.fspath(self.path)))
        self.settings_file = self.path / flagfiles.RECORD
        self.classes_file = self.path / "classes.json"
        self.images_file = self.path / "images.json"
        self.checkpoints = self.path / "checkpoints"
        self.metrics_file = self.path / "metrics.jsonl"
        self.tensorboard = self.path / "tensorboard"
        self.evaluation_file = self.path / "evaluation.json"
        self.predictions_file = self.path / "predictions.npz"
        self.representations_file = self.path / "representations.npz"
        self.samples_file = self.path / "samples.npz"
        self.encoded = self.path / "encoded"
        self.issues_file = self.path / "label_issues.npz"
        self.issues_list = self.path / "label_issues.csv"
        self.projector = self.tensorboard / "projector"
        self.report_file = self.path / "report.html"
        self.transfer_file = self.path / "transfer.json"
        self.trainings = self.path / "trainings"
        self.tuned = self.path / "tuned"
        self.finetuning_file = self.path / "finetune.json"
        self.best = self.path / "best"
        self.language_model = self.path / "language_model"
        self.export = self.path / "export"
        self.converted = self.path / "converted"
        self.galleries = self.path / "galleries"

    @property
    def unfinished_file(self) -> epath.Path:
        """The mark of a run that is being created."""
        return self.path / ".unfinished"

    def stage(self, name: str) -> RunDirectory:
        """The sub-directory of a linear stage, or of a transfer."""
        return RunDirectory(self.path / name)

    def stages(self) -> list[str]:
        """The names of the linear stages and transfers of the run."""
        folders = files.children(self.path)
        return [f.name for f in folders if RunDirectory(f).exists()]

    def linear_stages(self) -> list[str]:
        """The names of the linear stages of the run, "linear" first."""
        names = [n for n in self.stages() if self.stage(n).is_linear_stage()]
        return sorted(names, key=lambda name: name != "linear")

    def is_linear_stage(self) -> bool:
        """Whether this is a stage of tools/train_linear.py below its run."""
        flags = self.flags()  # a transfer has a method too
        return "name" in flags and "method" not in flags and self.run().exists()

    def run(self) -> RunDirectory:
        """The run of a stage."""
        return RunDirectory(self.path.parent)

    def evaluation_owner(self, linear_stage: str = "linear") -> RunDirectory:
        """The directory of a new evaluation: the linear stage it measures.

        A run without this linear stage has its evaluation itself.
        """
        stage = self.stage(linear_stage)
        return stage if stage.is_linear_stage() else self

    def evaluated(self, linear_stage: str = "linear") -> RunDirectory:
        """The directory of the existing evaluation of a linear stage.

        It is `evaluation_owner`, or the run if an earlier version wrote it.
        """
        owner = self.evaluation_owner(linear_stage)
        is_older = (
            not owner.evaluation_file.exists()
            and self.measured_stage() == linear_stage
        )
        return self if is_older else owner

    def measured_stage(self) -> str:
        """The linear stage that the evaluation here measured; "" for none."""
        checkpoint = self.evaluation().get("linear_checkpoint", "")
        *_, stage, _, _ = ("", "", "", *epath.Path(checkpoint).parts)
        return stage

    def exists(self) -> bool:
        """Whether the directory is a run, or a stage."""
        return self.settings_file.exists()

    def is_of_texts(self) -> bool:
        """Whether tools/finetune_text.py made the run."""
        return "train_file" in self.flags()

    @property
    def tool(self) -> str:
        """The name of the tool that made the run."""
        if self.is_of_texts():
            return "finetune_text"
        # A transfer, which is a stage, has a method.
        flags = self.flags()
        is_tuned = "validation_fraction" in flags and "method" not in flags
        return "finetune" if is_tuned else "pretrain"

    def commands(self, linear_stage: str = "", end: str = "") -> list[str]:
        """The command lines that train, evaluate and export the run.

        Args:
          linear_stage: name of the linear stage, "" for none.
          end: appended to the name of the run directory.
        """
        flags = {"run_dir": f"{self.path}{end}"}
        recorded = self.flags()
        moved = moved_data(recorded, self.path)
        functions = dict(trust.functions(recorded))
        train_flags = flags | functions | moved
        lines = [command(self.tool, flagfile=self.settings_file, **train_flags)]
        flags |= trust.repeated(recorded)
        if linear_stage:
            stage = self.stage(linear_stage)
            stage_flags = flags | dict(trust.functions(stage.flags()))
            file = stage.settings_file
            lines.append(command("train_linear", flagfile=file, **stage_flags))
            if linear_stage != "linear":
                flags["linear_stage"] = linear_stage
        return [
            *lines,
            command("evaluate", **flags),
            command("export", **flags),
        ]

    def recorded(
        self, settings_class: type[settings.SettingsType]
    ) -> settings.SettingsType:
        """The recorded settings of the run, or of the stage."""
        return settings.from_flagfile(
            settings_class, self.settings_file, recorded=True
        )

    def flags(self) -> dict[str, str]:
        """The recorded settings as texts, by flag; {} for no run.

        Other versions may have recorded other flags. Removed flags with their
        fixed values are left out.
        """
        if not self.exists():
            return {}
        values: dict[str, list[str]] = {}
        for line in flagfiles.read_recorded(self.settings_file).values():
            flag, _, value = line.removeprefix("--").partition("=")
            values.setdefault(flag, []).append(value)
        texts = {flag: "; ".join(texts) for flag, texts in values.items()}
        return removed_flags.without(texts)

    def class_names(self) -> tuple[str, ...]:
        """Class names in the order of the labels; empty before a run.

        They are distinct: see `rows.distinct`.

        Raises:
          ValueError: names or order differ from those of the checkpoint.
        """
        names = files.read_json(self.classes_file, [])
        trained = self.made_of().get("classes")
        exceptions.require(
            trained in (None, origins.digest_names(names)),
            f"{self.classes_file} must have the classes of the checkpoint, in "
            "the order of its labels",
            "other names or another order: restore the file as the training "
            "wrote it",
        )
        return rows.distinct(names)

    def made_of(self) -> dict[str, object]:
        """The `origins.recorded` of the newest checkpoint; {} before it."""
        newest = checkpoints.newest(self.checkpoints)
        return {} if newest is None else origins.recorded(newest)

    @property
    def trained_on(self) -> TrainedOn:
        """The names of the training examples, and checks by them."""
        return TrainedOn(self)

    def is_younger_than(self, other: RunDirectory) -> bool:
        """Whether this was begun after the other's newest checkpoint was saved.

        Compares times of files, and the times in the names of TensorBoard's
        files, which every copy keeps. False where these are missing.
        """
        newest = epath.Path(other.latest_checkpoint())
        _, saved = files.state(newest / origins.PROGRESS)
        _, begun = files.state(self.classes_file)
        last_start = max(1, other._last_start())
        return begun >= saved and self._last_start() >= last_start

    def _last_start(self) -> int:
        """The time of the last start of a training, seconds; 0 if unknown."""
        events = files.children(self.tensorboard / "train", "events.*")
        times = (path.name.split(".")[3:4] for path in events)
        return max((int(t) for (t,) in times if t.isdecimal()), default=0)

    def metrics(self) -> list[dict[str, float | None]]:
        """The epochs of metrics.jsonl: see `read_metrics`."""
        return read_metrics(self.metrics_file)

    def evaluation(self) -> dict[str, object]:
        """evaluation.json, by classifier; {} for no such file."""
        return files.read_json(self.evaluation_file, {}, ANEW)

    def finetuning(self) -> dict[str, object]:
        """finetune.json; {} for no such file."""
        return files.read_json(self.finetuning_file, {})

    def exports(self) -> list[int]:
        """The versions below export/, rising."""
        return sorted(files.numbered(self.export))

    def export_record(self) -> dict[str, object]:
        """metadata.json of the newest export; {} for no export."""
        newest = str(max(self.exports(), default=0))
        return files.read_json(self.export / newest / EXPORT_RECORD, {})

    def newest_identity(self) -> origins.Identity | None:
        """The identity of the checkpoint that the run has by now."""
        folder = self.best if self.best.exists() else self.checkpoints
        newest = checkpoints.newest(folder)
        return None if newest is None else origins.identity(newest)

    def gallery_identity(self, name: str) -> dict[str, str] | None:
        """The digest of a gallery's record, which has those of its rows.

        None for no gallery of this name.
        """
        versions = gallery_versions(self.galleries / name)
        if not versions:
            return None
        digest = files.digest(versions[max(versions)] / GALLERY_RECORD)
        return {"name": name, "sha256": digest["sha256"]}

    def outdated_export(self) -> str:
        """A sentence on a newest export of earlier checkpoints; "" for none."""
        record = self.export_record()
        owners = {"encoder": self}
        if record.get("classifier") == "linear":
            export_settings = record.get("settings", {}).get("export", {})
            stage_name = export_settings.get("linear_stage", "linear")
            owners["classifier"] = self.stage(stage_name)
        for part, owner in owners.items():
            exported = record.get("checkpoints", {}).get(part, {})
            newest = owner.newest_identity()
            if newest is None or "sha256" not in exported:
                continue
            origin = {
                "checkpoint": exported["name"],
                "sha256": exported["sha256"],
            }
            if origin != newest:
                return (
                    f"Its newest export is of the {part} "
                    f"{origins.describe(origin, newest)}, not of "
                    f"{origins.describe(newest, origin)}, which {owner.path} "
                    "has by now"
                )
        return ""

    def outdated_gallery(self) -> str:
        """A sentence on the gallery of the newest export, if it has changed.

        "" for no change, or no gallery.
        """
        exported = self.export_record().get("gallery") or {}
        newest = exported and self.gallery_identity(exported["name"])
        if newest and newest != exported:
            path = self.galleries / exported["name"]
            return f"Its newest export has {path} as it was before a change"
        return ""

    def example_counts(self, split: str) -> tuple[int | None, list[int]]:
        """Examples of "train" or "test", and of each class.

        None and [] if unknown: an evaluation writes them into encoded/. Before
        it, only the number of training images with names is known.
        """
        folder = self.encoded / split
        made_of = files.read_json(folder / ENCODED_RECORD, {})
        if not made_of:
            count = len(self.trained_on.names()) if split == "train" else 0
            return count or None, []
        if made_of["most"] is not None:  # labels of a part of the split
            return made_of["examples"], []
        file = folder / ENCODED_LABELS
        with files.readable(file, ANEW):
            labels = np.load(io.BytesIO(file.read_bytes()))
        if labels.ndim == 1:
            counts = np.bincount(labels, minlength=len(self.class_names()))
        else:  # of several labels
            counts = labels.sum(axis=0)
        return made_of["examples"], counts.tolist()

    def latest_checkpoint(self) -> str:
        """Path of the newest checkpoint.

        Raises:
          ValueError: there is no checkpoint.
        """
        newest = checkpoints.newest(self.checkpoints)
        if newest is None:
            raise exceptions.InvalidValue(
                f"{self.path} must hold a checkpoint, but has none: its "
                "training has not come that far"
            )
        return str(newest)

    def best_checkpoint(self) -> str:
        """Path of the checkpoint of the best epoch; raises ValueError."""
        newest = checkpoints.newest(self.best)
        exceptions.require(
            newest is not None, f"{self.best} must hold a checkpoint", "none"
        )
        return str(newest)

    def check_free(self, overwrite: bool, can_resume: bool = True) -> None:
        """Raises ValueError where a run would mix with other files.

        Also where the directory cannot be written. `can_resume` says whether
        the tool has --resume.
        """
        files.check_writable("run_dir", self.path)
        for folder in (self.checkpoints, self.tensorboard):
            if os.path.islink(folder):  # to a larger disk
                files.check_writable("run_dir", os.path.realpath(folder))
                exceptions.require(
                    folder.is_dir(),
                    f"{folder} must be a link to a folder that is there",
                    os.readlink(folder),
                )
        if self.exists() or self.unfinished_file.exists():
            if self.exists() and not overwrite:
                going_on = "go on with it by --resume, " * can_resume
                raise exceptions.InvalidValue(
                    f"{self.path} holds a run already; {going_on}replace it by "
                    "--overwrite, or choose another directory"
                )
            outputs.check(self)
        elif self.path.exists():
            folders = self.checkpoints, self.tensorboard
            names = {path.name for path in self.path.iterdir()}
            names -= {path.name for path in folders if os.path.islink(path)}
            if not all(map(locks.is_lock, names)):
                raise exceptions.InvalidValue(
                    f"{self.path} must be empty or a run directory, but holds "
                    "other files"
                )

    def create(
        self,
        run_settings: settings.Settings,
        class_names: Sequence[str],
        trained_on: Sequence[str] | None = None,
        skipped: Sequence[str] = (),
        digests: np.ndarray | None = None,
    ) -> None:
        """Starts a run here, in place of an earlier one.

        A process that is killed meanwhile leaves neither run, and the mark
        `unfinished_file`, by which the next process may remove what is left.

        `run_settings` are its resolved settings, `trained_on` the names of its
        training images, None for images without names, `skipped` the files that
        could not be read, and `digests` hashes of the bytes of the training
        images, None where these were not read.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        if self.exists() or self.unfinished_file.exists():
            outputs.check(self)
            self.unfinished_file.write_text("")
            self.settings_file.unlink(missing_ok=True)  # no run from here on
            outputs.remove(self)
        self.unfinished_file.write_text("")
        names = list(class_names)
        files.write_json(self.classes_file, names, ensure_ascii=False)
        if trained_on is not None:
            self.trained_on.write(trained_on, skipped, digests)
        self.record(run_settings)  # a run from here on
        self.unfinished_file.unlink()

    def record(self, run_settings: settings.Settings) -> None:
        """Writes the settings of the run, in place of earlier ones.

        They have the whole path of the run, by which later tools see that the
        data have moved together with it.
        """
        run_settings = dataclasses.replace(
            run_settings, run_dir=files.whole(run_settings.run_dir)
        )
        files.write_atomically(
            self.settings_file, settings.to_flagfile(run_settings)
        )

    def write_predictions(
        self,
        probabilities: np.ndarray,
        labels: np.ndarray,
        ids: Sequence[str] | None,
        class_names: Sequence[str],
        classes: np.ndarray | None = None,
    ) -> None:
        """Writes predictions.npz.

        Args:
          probabilities: [images, classes] float, or [draws, images, classes].
          labels: [images] integers.
          ids: names of the images; None for their positions.
          class_names: in the order of the labels.
          classes: class ids of the probabilities, the most probable first, if
            the probabilities are of some classes alone.
        """
        write_arrays(
            self.predictions_file,
            ids=np.array(ids or range(len(labels))),
            labels=labels,
            probabilities=probabilities,
            class_names=np.array(class_names),
            **({} if classes is None else {"classes": classes}),
        )

    @contextlib.contextmanager
    def replaced_evaluation(self) -> Iterator[RunDirectory]:
        """Replaces the files of an evaluation at the end of a block.

        Yields:
          A hidden directory for the new files. They are moved here at the end
          of the block, evaluation.json last; if the block fails, the earlier
          files stay.
        """
        whole = self.path / "evaluation"
        with (
            files.room_for(self.evaluation_file),
            leftovers.partial_directory(whole) as partial,
        ):
            new = RunDirectory(partial)
            yield new
            self.remove_evaluation()
            if new.projector.exists():
                self.tensorboard.mkdir(parents=True, exist_ok=True)
                new.projector.rename(self.projector)
            for file in reversed(new._evaluation_files()):
                if file.exists():
                    file.replace(self.path / file.name)

    def remove_evaluation(self) -> None:
        """Removes the files of an evaluation, if there are any."""
        self.projector.rmtree(missing_ok=True)
        for file in (*self._evaluation_files(), self.report_file):
            file.unlink(missing_ok=True)

    def _evaluation_files(self) -> list[epath.Path]:
        """The files of an evaluation, evaluation.json first."""
        return [
            self.evaluation_file,
            self.predictions_file,
            self.samples_file,
            self.representations_file,
            self.issues_file,
            self.issues_list,
        ]

    def check_classes(self, class_names: tuple[str, ...]) -> None:
        """Raises ValueError unless the data has the classes of the run."""
        names = self.class_names()
        if names != class_names:
            changes = [f"-{n}" for n in names if n not in class_names]
            changes += [f"+{n}" for n in class_names if n not in names]
            raise exceptions.InvalidValue(
                f"the classes of the data must be those of {self.path}, got "
                f"{' '.join(changes[:10]) or 'another order'}"
            )

    def check_same(
        self,
        run_settings: settings.Settings,
        recorded: settings.Settings,
        is_finished: bool = False,
    ) -> None:
        """Raises ValueError unless the recorded settings equal these.

        Settings that do not change the result may differ, and some may grow;
        see `settings.changes`, also for a run that is finished.
        """
        moved = moved_data(vars(recorded), run_settings.run_dir)
        recorded = dataclasses.replace(recorded, **moved)
        differences = settings.changes(recorded, run_settings, is_finished)
        if differences:
            raise exceptions.InvalidValue(
                f"--resume must come with the settings of {self.path}, got "
                f"{', '.join(differences)}; --flagfile={self.settings_file} "
                "repeats them"
            )


SWEEP_FOLDERS = ("cells", "logs")
# Folders of a run, and of a sweep around runs: no stage may have their names.
_FOLDERS = {
    path.name
    for path in vars(RunDirectory("run")).values()
    if path.parent.name == "run" and not path.suffix
}
TAKEN_NAMES = tuple(sorted({*SWEEP_FOLDERS, *_FOLDERS}))


def gallery_versions(path: epath.PathLike) -> dict[int, epath.Path]:
    """The versions of a gallery by their numbers; {} for no gallery."""
    return {
        number: version
        for number, version in files.numbered(path).items()
        if (version / GALLERY_RECORD).exists()
    }


def command(tool: str, **flags: object) -> str:
    """The command line of a tool with these flags."""
    flag_texts = (f"--{k}={shlex.quote(str(v))}" for k, v in flags.items())
    return f"python tools/{tool}.py {' '.join(flag_texts)}"
