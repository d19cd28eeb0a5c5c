"""The outputs of a run in its directory, for checked removal.

Other runs inside of the directory, and files of users, are no outputs. Of a
folder that is a link to a larger disk, or a mount, the content is removed, and
the link stays.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from etils import epath

from supcon_tf import exceptions
from supcon_tf.disk import files, leftovers, locks

if TYPE_CHECKING:
    from supcon_tf.run_files.directory import RunDirectory

# Left-overs of killed processes.
_UNFINISHED = (".*.partial", ".*.old")
_CHECKPOINTS = "step-*", ".step-*"
# Folders in which users keep files too, and patterns of the run's files there.
_PARTS = {
    "checkpoints": _CHECKPOINTS,
    "best": _CHECKPOINTS,
    "export": ("[0-9]*", *_UNFINISHED),
    "tensorboard": ("train", "views", "projector", "plugins", "events.*"),
}


def check(run: RunDirectory) -> None:
    """Checks that all outputs of a run can be removed, and no other files.

    Raises:
      ValueError: another run is inside, another process works on the run, or a
        file cannot be removed; the message names it.
    """
    for part in (run, *_stages(run)):
        locks.check_all(part.path)
    inside = [*_runs_inside(run)]
    for path in _outputs(run):
        _check_folder(path.parent)
        if not path.is_dir() or os.path.islink(path):
            continue
        for folder, _, names in os.walk(path):
            _check_folder(folder)
            # The trainings of a transfer are its outputs.
            is_run = run.settings_file.name in names
            if is_run and not epath.Path(folder).is_relative_to(run.trainings):
                inside.append(folder)
    exceptions.require(
        not inside,
        f"`overwrite` must not remove other runs than {run.path}: move those "
        "inside of it, or choose another directory",
        exceptions.listed([str(path) for path in inside]),
    )


def remove(run: RunDirectory) -> None:
    """Removes the outputs of a run, and the folders that are empty then."""
    for path in [*_outputs(run)]:
        if path.is_dir() and not os.path.islink(path):
            path.rmtree()
        else:
            path.unlink(missing_ok=True)
    for stage in _stages(run):
        remove(stage)
        for file in (stage.unfinished_file, stage.settings_file):
            file.unlink(missing_ok=True)  # last: it is a stage by this file
        _remove_empty(stage.path)
    for folder in _folders(run):
        _remove_empty(folder)


def _outputs(run: RunDirectory) -> Iterator[epath.Path]:
    """The files and folders to be removed, without settings.flags."""
    for path in vars(run).values():
        is_below = path.parent == run.path and path != run.settings_file
        if is_below and path != run.tuned and not path.is_dir():
            if path.exists() or os.path.islink(path):
                yield path
    for folder in _folders(run):
        if folder.name in _PARTS or _stays(folder):
            patterns = _PARTS.get(folder.name, ("*", *_UNFINISHED))
            for pattern in patterns:
                yield from files.children(folder, pattern)
        else:
            yield folder
    for pattern in _UNFINISHED:
        yield from files.children(run.path, pattern)


def _folders(run: RunDirectory) -> list[epath.Path]:
    paths = [path for path in vars(run).values() if path.parent == run.path]
    return [path for path in paths if path != run.tuned and path.is_dir()]


def _stages(run: RunDirectory) -> list[RunDirectory]:
    """The stages of a run, and the training that a transfer keeps."""
    stages = (run.stage(name) for name in run.stages())
    return [
        stage
        for stage in stages
        if stage.path == run.tuned or "name" in stage.flags()
    ]


def _runs_inside(run: RunDirectory) -> Iterator[epath.Path]:
    """The other runs in a run and in its stages."""
    stages = _stages(run)
    paths = [stage.path for stage in stages]
    yield from (
        run.path / name for name in run.stages() if run.path / name not in paths
    )
    for stage in stages:
        yield from _runs_inside(stage)


def _stays(folder: epath.Path) -> bool:
    return os.path.islink(folder) or os.path.ismount(folder)


def _check_folder(folder: str | os.PathLike[str]) -> None:
    """Raises ValueError for a folder that cannot be written."""
    exceptions.require(
        not leftovers.is_local(folder) or os.access(folder, os.W_OK | os.X_OK),
        "`overwrite` must be able to remove the run that is there",
        f"{folder}, which cannot be written",
    )


def _remove_empty(folder: epath.Path) -> None:
    if leftovers.is_local(folder) and not _stays(folder):
        with contextlib.suppress(OSError):
            os.rmdir(folder)
