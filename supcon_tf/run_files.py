"""A run directory: every name in it, and how each file is read and written.

Without TensorFlow: who reports on runs needs none.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from etils import epath

from supcon_tf import (
    exceptions,
    files,
    flagfiles,
    leftovers,
    locks,
    origins,
    outputs,
    removed_flags,
    rows,
    settings,
    trust,
)

EXPORT_RECORD = "assets.extra/metadata.json"  # below export/<version>
ENCODED_LABELS = "labels.npy"  # below encoded/<split>
ENCODED_RECORD = "made_of.json"
_EVALUATE = "tools/evaluate.py makes it anew"
_CHECKPOINT = "step-"  # before the step, eight digits or more
_SHOWN_NAMES = 5  # of images, in a message
# Settings that name data, which later tools read again.
_DATA = (
    *("data_dir", "hierarchy"),
    *("train_file", "validation_file", "test_file"),
)


class RunDirectory:
    """Paths and records of one run, or of a stage below it.

    Export adds export/<version>/, conversion converted/. Each linear stage, and
    each transfer to other data with its transfer.json, is a RunDirectory below.
    What an evaluation writes, and the report report.html, belongs to the linear
    stage that was measured, and without one to the run. The path is local or
    gs://, and need not exist.

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

    @property
    def unfinished_file(self) -> epath.Path:
        """The mark of a run that is being created."""
        return self.path / ".unfinished"

    def stage(self, name: str) -> RunDirectory:
        """The sub-directory of a linear stage, or of a transfer."""
        return RunDirectory(self.path / name)

    def stages(self) -> list[str]:
        """The names of the linear stages and transfers that are there."""
        folders = files.children(self.path)
        return [x.name for x in folders if RunDirectory(x).exists()]

    def linear_stages(self) -> list[str]:
        """The names of the linear stages that are there, "linear" first."""
        names = [x for x in self.stages() if self.stage(x).is_linear_stage()]
        return sorted(names, key=lambda name: name != "linear")

    def is_linear_stage(self) -> bool:
        """Whether this is a stage of tools/train_linear.py below its run."""
        flags = self.flags()  # a transfer has a method too
        return "name" in flags and "method" not in flags and self.run().exists()

    def run(self) -> RunDirectory:
        """The run that a stage is of."""
        return RunDirectory(self.path.parent)

    def evaluation_owner(self, linear_stage: str = "linear") -> RunDirectory:
        """Where an evaluation of the run goes: into the stage that it measures.

        Or into the run itself where it has no such linear stage.
        """
        stage = self.stage(linear_stage)
        return stage if stage.is_linear_stage() else self

    def evaluated(self, linear_stage: str = "linear") -> RunDirectory:
        """Where the evaluation of a linear stage is: at its owner.

        Or in the run, where earlier versions wrote it.
        """
        owner = self.evaluation_owner(linear_stage)
        is_older = (
            not owner.evaluation_file.exists()
            and self.measured_stage() == linear_stage
        )
        return self if is_older else owner

    def measured_stage(self) -> str:
        """The linear stage that the evaluation here is of; "" for none."""
        checkpoint = self.evaluation().get("linear_checkpoint", "")
        *_, stage, _, _ = ("", "", "", *epath.Path(checkpoint).parts)
        return stage

    def exists(self) -> bool:
        """Whether there is a run, or a stage."""
        return self.settings_file.exists()

    def is_of_texts(self) -> bool:
        """Whether the run here is one of tools/finetune_text.py."""
        return "train_file" in self.flags()

    @property
    def tool(self) -> str:
        """The name of the tool that made the run here."""
        if self.is_of_texts():
            return "finetune_text"
        # A transfer, which is a stage, has a method.
        flags = self.flags()
        is_tuned = "validation_fraction" in flags and "method" not in flags
        return "finetune" if is_tuned else "pretrain"

    def commands(self, linear_stage: str = "", end: str = "") -> list[str]:
        """The command lines that make, measure and export the run.

        Args:
          linear_stage: name of the linear stage that is meant, "" for none.
          end: of the name of the directory that they fill.
        """
        there = {"run_dir": f"{self.path}{end}"}
        recorded = self.flags()
        moved = moved_data(recorded, self.path)
        architecture = recorded.get("architecture", "")
        if trust.names_module(architecture):  # every command repeats it
            there["architecture"] = architecture
        lines = [
            command(self.tool, flagfile=self.settings_file, **there, **moved)
        ]
        if linear_stage:
            stage = self.stage(linear_stage).settings_file
            lines.append(command("train_linear", flagfile=stage, **there))
            if linear_stage != "linear":
                there["linear_stage"] = linear_stage
        return [
            *lines,
            command("evaluate", **there),
            command("export", **there),
        ]

    def recorded(
        self, settings_class: type[settings.SettingsType]
    ) -> settings.SettingsType:
        """The settings of the run, or of the stage, that is here."""
        return settings.from_flagfile(
            settings_class, self.settings_file, recorded=True
        )

    def flags(self) -> dict[str, str]:
        """The recorded settings as they stand there, by flag; {} without any.

        Those of other versions too, whose flags may be others; without those
        that are gone and have the value that they always have now.
        """
        if not self.exists():
            return {}
        values: dict[str, list[str]] = {}
        for line in flagfiles.read_recorded(self.settings_file).values():
            flag, _, value = line.removeprefix("--").partition("=")
            values.setdefault(flag, []).append(value)
        texts = {flag: "; ".join(given) for flag, given in values.items()}
        return removed_flags.without(texts)

    def class_names(self) -> tuple[str, ...]:
        """Class names in the order of the labels; none before a run.

        Each is there once: see `rows.distinct`.

        Raises:
          ValueError: they are not those, in the order, of the checkpoint.
        """
        names = files.read_json(self.classes_file, ())
        trained = self.made_of().get("classes")
        exceptions.require(
            trained in (None, origins.of_names(names)),
            f"{self.classes_file} must have the classes of the checkpoint, in "
            "the order of its labels",
            "other names or another order: restore the file as the training "
            "wrote it",
        )
        return rows.distinct(names)

    def made_of(self) -> dict[str, object]:
        """What the newest checkpoint was made of: see `origins.recorded`.

        Nothing before there is one.
        """
        steps = steps_in(self.checkpoints)
        if not steps:
            return {}
        return origins.recorded(path_of(self.checkpoints, steps[-1]))

    def is_younger_than(self, other: RunDirectory) -> bool:
        """Whether this was begun after the other's newest checkpoint was saved.

        By times of files, and by those in the names of TensorBoard's files,
        which every copy keeps. Where these are missing nobody knows.
        """
        newest = epath.Path(other.latest_checkpoint())
        saved = files.state(newest / origins.PROGRESS)[1]
        return files.state(self.classes_file)[
            1
        ] >= saved and self._last_start() >= max(1, other._last_start())

    def _last_start(self) -> int:
        """When a training here began last, seconds; 0 unknown."""
        events = files.children(self.tensorboard / "train", "events.*")
        times = (path.name.split(".")[3:4] for path in events)
        return max((int(x) for (x,) in times if x.isdecimal()), default=0)

    def metrics(self) -> list[dict[str, float | None]]:
        """The epochs of metrics.jsonl: see `read_metrics`."""
        return read_metrics(self.metrics_file)

    def evaluation(self) -> dict[str, object]:
        """What evaluation.json holds, by classifier; {} before it is there."""
        return files.read_json(self.evaluation_file, {}, _EVALUATE)

    def finetuning(self) -> dict[str, object]:
        """What finetune.json holds; {} before it is there."""
        return files.read_json(self.finetuning_file, {})

    def exports(self) -> list[int]:
        """The versions below export/, rising."""
        names = (path.name for path in files.children(self.export))
        return sorted(int(name) for name in names if name.isdecimal())

    def export_record(self) -> dict[str, object]:
        """metadata.json of the newest export; {} before there is any."""
        newest = str(max(self.exports(), default=0))
        return files.read_json(self.export / newest / EXPORT_RECORD, {})

    def example_counts(self, split: str) -> tuple[int | None, list[int]]:
        """Examples of "train" or "test", and of each class; None, [] unknown.

        An evaluation has left them in encoded/. Before that, only the number
        of training images that have names is known.
        """
        folder = self.encoded / split
        made_of = files.read_json(folder / ENCODED_RECORD, {})
        if not made_of:
            known = len(self._trained_on()) if split == "train" else 0
            return known or None, []
        if made_of["most"] is not None:  # labels are of these alone
            return made_of["examples"], []
        file = folder / ENCODED_LABELS
        with files.readable(file, _EVALUATE):
            labels = np.load(io.BytesIO(file.read_bytes()))
        if labels.ndim == 1:
            counts = np.bincount(labels, minlength=len(self.class_names()))
        else:  # of several labels
            counts = labels.sum(axis=0)
        return made_of["examples"], counts.tolist()

    def latest_checkpoint(self) -> str:
        """Path of the newest checkpoint.

        Raises:
          ValueError: there is none.
        """
        steps = steps_in(self.checkpoints)
        if not steps:
            raise exceptions.InvalidValue(
                f"{self.path} must hold a checkpoint, but has none: its "
                "training has not come that far"
            )
        return str(path_of(self.checkpoints, steps[-1]))

    def best_checkpoint(self) -> str:
        """Path of the checkpoint of the best epoch; raises ValueError."""
        steps = steps_in(self.best)
        exceptions.require(
            bool(steps), f"{self.best} must hold a checkpoint", "none"
        )
        return str(path_of(self.best, steps[-1]))

    def check_free(self, overwrite: bool) -> None:
        """Raises ValueError where a run would mix with what is there.

        Or where nothing can be written.
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
        if not (self.exists() or self.unfinished_file.exists()):
            self._check_empty()
            return
        if self.exists() and not overwrite:
            raise exceptions.InvalidValue(
                f"{self.path} holds a run already; go on with it by --resume, "
                "replace it by --overwrite, or choose another directory"
            )
        outputs.check(self)

    def _check_empty(self) -> None:
        """Raises ValueError where others have put something here."""
        if not self.path.exists():
            return
        names = {
            x.name for x in self.path.iterdir() if not locks.is_lock(x.name)
        }
        links = {
            x.name
            for x in (self.checkpoints, self.tensorboard)
            if os.path.islink(x)
        }
        if names - links:
            raise exceptions.InvalidValue(
                f"{self.path} must be empty or a run directory, but holds "
                "other files"
            )

    def create(
        self,
        own: settings.Settings,
        class_names: Sequence[str],
        trained_on: Sequence[str] | None = None,
        skipped: Sequence[str] = (),
    ) -> None:
        """Starts a run here, in place of an earlier one.

        A process that is killed meanwhile leaves none of the two, and a mark by
        which the next one knows that what is left is nobody's.

        `own` are its resolved settings, `trained_on` the names of its training
        images, None where they have none, and `skipped` the files that could
        not be read.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        if self.exists() or self.unfinished_file.exists():
            outputs.check(self)
            self.unfinished_file.write_text("")
            self.settings_file.unlink(missing_ok=True)  # no run from here on
            outputs.remove(self)
        self.unfinished_file.write_text("")
        self._write_data(class_names, trained_on, skipped)
        self.record(own)  # a run from here on
        self.unfinished_file.unlink()

    def complete(
        self,
        class_names: Sequence[str],
        trained_on: Sequence[str] | None,
        skipped: Sequence[str],
    ) -> None:
        """Writes what a run lacks that was killed as it began.

        Of an earlier version, and before its first checkpoint: later, nobody
        knows what it was trained on.
        """
        has_images = trained_on is None or self.images_file.exists()
        is_whole = has_images and self.classes_file.exists()
        if not is_whole and not steps_in(self.checkpoints):
            self._write_data(class_names, trained_on, skipped)

    def _write_data(
        self,
        class_names: Sequence[str],
        trained_on: Sequence[str] | None,
        skipped: Sequence[str],
    ) -> None:
        names = list(class_names)
        files.write_json(self.classes_file, names, ensure_ascii=False)
        if trained_on is not None:
            record = {"trained_on": list(trained_on), "skipped": list(skipped)}
            files.write_json(self.images_file, record, ensure_ascii=False)

    def record(self, own: settings.Settings) -> None:
        """Writes the settings of the run, in place of earlier ones.

        With where the run is, to tell later what has moved with it.
        """
        own = dataclasses.replace(own, run_dir=files.whole(own.run_dir))
        files.write_atomically(self.settings_file, settings.to_flagfile(own))

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
          ids: names of the images; None for their places.
          class_names: in the order of the labels.
          classes: class ids of the probabilities, the most probable first,
            where these are not of all classes.
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
        """Takes what an evaluation writes, in place of an earlier one.

        Yields:
          A hidden directory for the files of the evaluation. They come here at
          the end of the block, evaluation.json last; if it fails, the earlier
          ones stay.
        """
        whole = self.path / "evaluation"
        with (
            files.room_for(self.evaluation_file),
            leftovers.partial_directory(whole) as partial,
        ):
            made = RunDirectory(partial)
            yield made
            self.remove_evaluation()
            if made.projector.exists():
                self.tensorboard.mkdir(parents=True, exist_ok=True)
                made.projector.rename(self.projector)
            for file in reversed(made._evaluation_files()):
                if file.exists():
                    file.replace(self.path / file.name)

    def remove_evaluation(self) -> None:
        """Removes what an evaluation has written here, if one has."""
        self.projector.rmtree(missing_ok=True)
        for file in (*self._evaluation_files(), self.report_file):
            file.unlink(missing_ok=True)

    def _evaluation_files(self) -> list[epath.Path]:
        """Those of an evaluation, by the first of which it is there."""
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
        known = self.class_names()
        if known != class_names:
            changes = [f"-{n}" for n in known if n not in class_names]
            changes += [f"+{n}" for n in class_names if n not in known]
            raise exceptions.InvalidValue(
                f"the classes of the data must be those of {self.path}, got "
                f"{' '.join(changes[:10]) or 'another order'}"
            )

    def check_images(self, ids: Sequence[str] | None) -> None:
        """Raises ValueError unless the run was trained on these images."""
        known, given = self._trained_on(), set(ids or ())
        if known and known != given:
            raise exceptions.InvalidValue(
                f"--resume must find the training images of {self.path}, got "
                f"{len(given - known)} others and {len(known - given)} "
                f"missing: {_listed(known ^ given)}"
            )

    def check_trained_on(self, ids: Sequence[str]) -> None:
        """Raises ValueError where data lack images that it was trained on.

        They are other data then, under the name or in the place of the run's.
        """
        known = self._trained_on()
        # They may lie in a train folder by now.
        missing = known - set(ids) - {x.partition("/")[2] for x in ids}
        if missing:
            raise exceptions.InvalidValue(
                f"the data must have the training images of {self.path}, got "
                f"none of {len(missing)} of {len(known)}: {_listed(missing)}"
            )

    def check_unseen(self, ids: Sequence[str] | None) -> None:
        """Raises ValueError for test images that the run was trained on.

        `ids` are of its data folder; None where the split is the publisher's.
        """
        if ids is None:
            return
        known = self._trained_on()
        # One that lies in a test folder by now may have been trained on
        # before there was any.
        seen = {x for x in ids if {x, x.partition("/")[2]} & known}
        if seen:
            raise exceptions.InvalidValue(
                f"the test images must be none that {self.path} was trained "
                f"on, got {len(seen)} of {len(ids)}: {_listed(seen)}"
            )
        has_folder = ids[0].startswith(("test/", "val/"))
        if not known and not has_folder:
            raise exceptions.InvalidValue(
                f"{self.path} must have an {self.images_file.name}: it was "
                "trained on a split that depended on all files of the folder, "
                "so that nobody knows which images it has seen; pretrain again"
            )

    def _trained_on(self) -> set[str]:
        """The names of the training images; none where they have no names."""
        record = files.read_json(self.images_file, {})
        return set(record.get("trained_on", ()))

    def check_same(
        self, own: settings.Settings, recorded: settings.Settings
    ) -> None:
        """Raises ValueError unless the run here, as recorded, has these.

        Those that do not change its result may differ, and some may grow; see
        `resumable` and `grows` of `settings.setting`.
        """
        moved = moved_data(vars(recorded), own.run_dir)
        other = settings.changes(dataclasses.replace(recorded, **moved), own)
        if other:
            raise exceptions.InvalidValue(
                f"--resume must come with the settings of {self.path}, got "
                f"{', '.join(other)}; --flagfile={self.settings_file} "
                "repeats them"
            )


SWEEP_FOLDERS = ("cells", "runs")
# What no stage may be called: the folders of a run, and of a sweep around runs.
_OF_RUN = (x for x in vars(RunDirectory("run")).values() if not x.suffix)
TAKEN_NAMES = tuple(
    sorted(
        {*SWEEP_FOLDERS, *(x.name for x in _OF_RUN if x.parent.name == "run")}
    )
)


def command(tool: str, **flags: object) -> str:
    """The command line of a tool with these flags."""
    given = (f"--{k}={shlex.quote(str(v))}" for k, v in flags.items())
    return f"python tools/{tool}.py {' '.join(given)}"


def moved_data(
    recorded: Mapping[str, object], run_dir: epath.PathLike
) -> dict[str, str]:
    """Paths of the data of a run, where they have moved together with it.

    That is where nothing is at a recorded local path, and something is at the
    same place as seen from the run.

    Args:
      recorded: settings by name, among them the run_dir of that time.
      run_dir: where the run is by now.

    Returns:
      New paths by the names of their settings; none where the run has not
      moved, or has not recorded where it was, as earlier versions.
    """
    before, now = str(recorded.get("run_dir", "")), files.whole(str(run_dir))
    if not (os.path.isabs(before) and os.path.isabs(now)):
        return {}
    found = {}
    for name in _DATA:
        path = str(recorded.get(name) or "")
        if os.path.isabs(path) and not os.path.lexists(path):
            place = os.path.join(now, os.path.relpath(path, before))
            if os.path.exists(place):
                found[name] = os.path.normpath(place)
    return found


def path_of(checkpoints: epath.Path, step: int) -> epath.Path:
    """The checkpoint of a step, whether it exists or not."""
    return checkpoints / f"{_CHECKPOINT}{step:08d}"


def steps_in(checkpoints: epath.Path) -> list[int]:
    """The steps that have a checkpoint, rising."""
    there = files.children(checkpoints, f"{_CHECKPOINT}*")
    names = (path.name for path in there)
    steps = (name.removeprefix(_CHECKPOINT) for name in names)
    return sorted(int(step) for step in steps if step.isdigit())


def read_metrics(
    path: epath.Path, leave_out: bool = False
) -> list[dict[str, float | None]]:
    """The epochs of a metrics.jsonl, in order; none where there is no file.

    Per epoch its number, `epoch`, and its figures by name; None for one that
    was not finite. A last line without its end, whose process was killed while
    it wrote, is left out.

    Args:
      path: of the file.
      leave_out: leave out other lines that are damaged too.

    Raises:
      ValueError: a line is damaged; it is named.
    """
    if not path.exists():
        return []
    epochs = []
    # Bytes: a line that is damaged may be no text at all.
    for number, line in enumerate(path.read_bytes().split(b"\n")[:-1], 1):
        try:
            figures = json.loads(line)
            is_whole = isinstance(figures["epoch"], int)
        except (ValueError, TypeError, KeyError):
            is_whole = False
        if is_whole:
            epochs.append(figures)
            continue
        exceptions.require(
            leave_out,
            f"{path}:{number} must be the figures of an epoch as JSON, but is "
            "damaged: --resume, or deleting the line, goes on without that "
            "epoch",
            line[:40].decode(errors="backslashreplace"),
        )
    return epochs


def read_arrays(path: epath.Path) -> dict[str, np.ndarray]:
    """The arrays of an .npz file by name; {} where there is none."""
    if not path.exists():
        return {}
    with (
        files.readable(path, _EVALUATE),
        np.load(io.BytesIO(path.read_bytes())) as arrays,
    ):
        return dict(arrays)


def write_arrays(path: epath.Path, **arrays: np.ndarray) -> None:
    """Writes an .npz file, all arrays or none."""
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    files.write_atomically(path, buffer.getvalue())


def _listed(names: set[str]) -> str:
    shown = ", ".join(sorted(names)[:_SHOWN_NAMES])
    return shown + (", ..." if len(names) > _SHOWN_NAMES else "")
