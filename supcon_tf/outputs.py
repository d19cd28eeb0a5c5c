"""What of a run directory is its own, checked before it is removed.

Runs that lie inside of it, and files of users, are not. Where a folder is a
link to a larger disk, or a mount, what is in it is removed, and the link stays.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Protocol

from etils import epath

from supcon_tf import exceptions, files, locks

# What a process leaves that is killed.
_UNFINISHED = (".*.partial", ".*.old")
_CHECKPOINTS = ("step-*", ".step-*", ".partial*", "epoch-*")  # of old as well
# The folders in which users keep files too, and what there is the run's.
_PARTS = {
    "checkpoints": _CHECKPOINTS,
    "best": _CHECKPOINTS,
    "export": ("[0-9]*", *_UNFINISHED),
    "tensorboard": ("train", "views", "projector", "plugins", "events.*"),
}


class Run(Protocol):
    """What of `run_files.RunDirectory`, which imports this, is used here."""

    path: epath.Path
    settings_file: epath.Path
    unfinished_file: epath.Path
    trainings: epath.Path
    tuned: epath.Path
    flags: Callable[[], dict[str, str]]
    stage: Callable[[str], Run]
    stages: Callable[[], list[str]]


def check(run: Run) -> None:
    """Checks that all of a run can be removed, and nothing else would be.

    Raises:
      ValueError: a run of its own is inside, another process works on the run,
        or something cannot be removed; it is named.
    """
    for part in (run, *_stages(run)):
        locks.check_all(part.path)
    inside = [*_runs_inside(run)]
    for path in _own(run):
        _check_folder(path.parent)
        if not path.is_dir() or os.path.islink(path):
            continue
        for folder, _, names in os.walk(path):
            _check_folder(folder)
            if "settings.flags" in names and not _is_training(run, folder):
                inside.append(folder)
    exceptions.require(
        not inside,
        f"`overwrite` must not remove other runs than {run.path}: move those "
        "inside of it, or choose another directory",
        exceptions.listed([str(path) for path in inside]),
    )


def remove(run: Run) -> None:
    """Removes what a run has written, and its folders where nothing is left."""
    for path in [*_own(run)]:
        if path.is_dir() and not os.path.islink(path):
            path.rmtree()
        else:
            path.unlink(missing_ok=True)
    for stage in _stages(run):
        remove(stage)
        for file in (stage.unfinished_file, stage.settings_file):
            file.unlink(missing_ok=True)  # what makes it one goes last
        _remove_empty(stage.path)
    for folder in _folders(run):
        _remove_empty(folder)


def _own(run: Run) -> Iterator[epath.Path]:
    """What is removed whole, but for settings.flags: files and folders."""
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


def _folders(run: Run) -> list[epath.Path]:
    below = [x for x in vars(run).values() if x.parent == run.path]
    return [x for x in below if x != run.tuned and x.is_dir()]


def _stages(run: Run) -> list[Run]:
    """The stages of a run, and the training that a transfer keeps."""
    stages = (run.stage(name) for name in run.stages())
    return [x for x in stages if x.path == run.tuned or "name" in x.flags()]


def _runs_inside(run: Run) -> Iterator[epath.Path]:
    """The runs of their own in a run and in its stages."""
    stages = _stages(run)
    paths = [stage.path for stage in stages]
    yield from (run.path / x for x in run.stages() if run.path / x not in paths)
    for stage in stages:
        yield from _runs_inside(stage)


def _is_training(run: Run, folder: str) -> bool:
    """Whether a folder is of the trainings of a transfer."""
    return epath.Path(folder).is_relative_to(run.trainings)


def _stays(folder: epath.Path) -> bool:
    return os.path.islink(folder) or os.path.ismount(folder)


def _check_folder(folder: str | os.PathLike[str]) -> None:
    """Raises ValueError where nothing can be removed from a folder."""
    exceptions.require(
        "://" in str(folder) or os.access(folder, os.W_OK | os.X_OK),
        "`overwrite` must be able to remove the run that is there",
        f"{folder}, which cannot be written",
    )


def _remove_empty(folder: epath.Path) -> None:
    if "://" not in str(folder) and not _stays(folder):
        with contextlib.suppress(OSError):
            os.rmdir(folder)
