"""Checkpoints on disk: each is there whole, or not at all.

A checkpoint is a directory step-00000123/ with the variables as TensorFlow
writes them and progress.json, which says how far the run was and what the
files must be. It is written under another name and then renamed, so a process
that dies while it saves leaves nothing that a later one would read.
"""

from __future__ import annotations

import dataclasses
import fcntl
import json
import os
import re
import tempfile
import time
import uuid
from collections.abc import Callable
from concurrent import futures

import tensorflow as tf
from etils import epath

from supcon_tf import exceptions, files, leftovers, models, run_files
from supcon_tf.origins import PROGRESS, REMOVED

_TRIES, _PAUSE = 3000, 0.01  # seconds, to open a checkpoint before it is pruned
_VARIABLES = "variables"  # what TensorFlow calls the path: a prefix of files


@dataclasses.dataclass(frozen=True)
class Progress:
    """How far a run was when it was saved.

    Attributes:
      step: optimizer steps taken.
      epoch_steps: steps of an epoch.
      metrics: inside an epoch, what its metrics had added up so far: metric
        name to the values of its variables.
      made_of: see `origins.recorded`.
    """

    step: int
    epoch_steps: int
    metrics: dict[str, list[object]] = dataclasses.field(default_factory=dict)
    made_of: dict[str, object] = dataclasses.field(default_factory=dict)

    @property
    def epoch(self) -> int:
        """Epochs that are complete."""
        return self.step // self.epoch_steps


def save(
    directory: epath.Path,
    parts: dict[str, tf.Module],
    progress: Progress,
    *,
    is_chief: bool = True,
) -> None:
    """Saves parts, by name, and how far the run is, in a run's checkpoints/.

    With several workers all must call it, for variables that are split among
    them, and only the chief's files stay.

    Raises:
      OSError: it could not be written; earlier checkpoints are untouched.
    """
    checkpoint = tf.train.Checkpoint(**parts)
    if not is_chief:
        with tempfile.TemporaryDirectory() as elsewhere:
            checkpoint.write(f"{elsewhere}/{_VARIABLES}")
        return
    path = run_files.path_of(directory, progress.step)
    try:
        # Overwrites that of a run that was resumed before it.
        with files.make_atomically(path, overwrite=True) as partial:
            checkpoint.write(str(partial / _VARIABLES))
            # The disk takes the files while they are read.
            with futures.ThreadPoolExecutor(1) as pool:
                synced = pool.submit(files.sync, partial)
                record = dataclasses.asdict(progress)
                record["files"] = _digests(partial)
                synced.result()
            (partial / PROGRESS).write_text(json.dumps(record, indent=1))
    except (OSError, tf.errors.OpError) as error:
        advice = "There is no earlier one"
        if kept := run_files.steps_in(directory):
            advice = (
                f"That of step {kept[-1]} is good: free some space, and go on "
                "from it with --resume"
            )
        raise exceptions.NotSaved(
            f"the checkpoint of step {progress.step} could not be saved in "
            f"{directory}: {_reason(error)}. {advice}"
        ) from error


def remove_partial(directory: epath.Path) -> None:
    """Removes what a process left that died while it saved."""
    leftovers.remove_dead(directory)
    of_others = [".partial*"]  # of earlier versions
    if not leftovers.is_local(directory):
        of_others.append(".step-*")  # no lock tells who still saves
    for pattern in of_others:
        for path in files.children(directory, pattern):
            path.rmtree(missing_ok=True)


def prune(directory: epath.Path, keep: int, keep_every: int = 0) -> None:
    """Removes all but the newest `keep` and multiples of `keep_every` steps.

    What another process `hold`s stays, until the next call.
    """
    for step in run_files.steps_in(directory)[:-keep]:
        if not keep_every or step % keep_every:
            _remove_unless_held(run_files.path_of(directory, step))


def hold(newest: Callable[[], str]) -> tuple[str, int | None]:
    """Keeps the newest checkpoint from a training that goes on and prunes.

    Args:
      newest: returns its path, and raises ValueError where there is none.

    Returns:
      The path, and what holds it as long as it is not closed; None on a file
      system that knows no locks.

    Raises:
      ValueError: there is none, or each was gone before it was opened.
    """
    gone = None
    for _ in range(_TRIES):
        path = newest()
        if not leftovers.is_local(path):
            return path, None
        try:
            number = os.open(path, os.O_RDONLY)
        except FileNotFoundError:  # pruned by now, or a link to nowhere
            if path == gone:
                break
            gone = path
            continue
        try:
            fcntl.flock(number, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:  # it is being saved, or pruned
            os.close(number)
            time.sleep(_PAUSE)
            continue
        except OSError:
            os.close(number)
            return path, None
        if os.path.exists(path):
            return path, number
        os.close(number)
    raise exceptions.InvalidValue(REMOVED.format(path))


def _remove_unless_held(path: epath.Path) -> None:
    if not leftovers.is_local(path):
        path.rmtree()
        return
    number = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(number)
        return
    except OSError:  # of a file system without locks
        pass
    try:
        # Half of a checkpoint has the name of none.
        hidden = path.with_name(f".{path.name}.{uuid.uuid4()}.partial")
        path.rename(hidden)
        hidden.rmtree()
    finally:
        os.close(number)


def read_progress(path: epath.PathLike) -> Progress:
    """Reads how far a run was, and checks the files of its checkpoint.

    Raises:
      ValueError: the checkpoint is not as it was saved.
    """
    path = epath.Path(path)
    try:
        record = json.loads((path / PROGRESS).read_text())
        expected = record.pop("files")
        progress = Progress(**record)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise exceptions.InvalidValue(
            f"{path} must be a checkpoint of this package, but its "
            f"{PROGRESS} cannot be read: {error}"
        ) from error
    there = _digests(path)
    damaged = [
        f"{name} ({'changed' if name in there else 'missing'})"
        for name, digest in expected.items()
        if there.get(name) != digest
    ]
    if damaged:
        raise exceptions.InvalidValue(
            f"{path} must be as it was saved, but is damaged: "
            f"{', '.join(damaged)}. Delete it to go on from an earlier one"
        )
    return progress


def restore(path: epath.PathLike, **parts: tf.Module) -> None:
    """Restores parts, by the names that they were saved by, completely.

    Raises:
      ValueError: a variable of a part is missing or has another shape; the
        message lists them.
    """
    prefix = f"{files.literal(path)}/{_VARIABLES}"
    try:
        status = tf.train.Checkpoint(**parts).read(prefix)
        status.assert_existing_objects_matched().expect_partial()
    except (AssertionError, ValueError, tf.errors.OpError) as error:
        if not epath.Path(path).exists():
            raise exceptions.InvalidValue(REMOVED.format(path)) from error
        raise exceptions.InvalidValue(
            f"{path} must fit {', '.join(parts)} of settings.flags, but does "
            f"not: {_differences(prefix, parts) or error}"
        ) from error
    for part in parts.values():
        models.finalize(part)


def _digests(path: epath.Path) -> dict[str, str]:
    """SHA-256 of every file of a checkpoint but its progress."""
    return {
        file.name: files.digest(file)["sha256"]
        for file in sorted(path.iterdir())
        if file.name != PROGRESS
    }


def _reason(error: Exception) -> str:
    """What the file system said."""
    if full := exceptions.no_room(error):
        return full
    text = getattr(error, "strerror", None) or getattr(error, "message", None)
    # TensorFlow puts the names of its operations around what the system said.
    return re.sub(r"^\{\{.*?\}\} | \[Op:.*", "", str(text or error)).strip()


def _differences(prefix: str, parts: dict[str, tf.Module]) -> str:
    """The variables, by path, in which checkpoint and parts differ."""
    try:
        stored = _shapes(prefix, parts)
        with tempfile.TemporaryDirectory() as elsewhere:
            written = tf.train.Checkpoint(**parts).write(f"{elsewhere}/parts")
            wanted = _shapes(written, parts)
    except (OSError, ValueError, tf.errors.OpError):
        return ""
    lines = [f"-{x} {wanted[x]}" for x in wanted.keys() - stored.keys()]
    lines += [f"+{x} {stored[x]}" for x in stored.keys() - wanted.keys()]
    for name in wanted.keys() & stored.keys():
        if stored[name] != wanted[name]:
            lines.append(f"{name} {stored[name]}, not {wanted[name]}")
    more = f" and {len(lines) - 10} more" if len(lines) > 10 else ""
    return "; ".join(sorted(lines)[:10]) + more


def _shapes(prefix: str, parts: dict[str, tf.Module]) -> dict[str, list[int]]:
    """The shapes of the variables of parts in a checkpoint, by path."""
    ending = "/.ATTRIBUTES/VARIABLE_VALUE"
    return {
        name.removesuffix(ending): shape
        for name, shape in tf.train.list_variables(prefix)
        if name.endswith(ending) and name.split("/")[0] in parts
    }
