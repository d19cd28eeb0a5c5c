"""Checkpoints on disk: each exists whole, or not at all.

A checkpoint is a directory step-00000123/ with the variables as TensorFlow
writes them and progress.json, the record of the step and of the digests of the
files. The directory is written under another name and then renamed, so that no
process reads a checkpoint whose writer died.
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

from supcon_tf import exceptions, models, run_files
from supcon_tf.disk import files, leftovers
from supcon_tf.disk.origins import PROGRESS, REMOVED

_TRIES, _PAUSE = 3000, 0.01  # seconds, to open a checkpoint before it is pruned
_VARIABLES = "variables"  # the prefix of TensorFlow's files


@dataclasses.dataclass(frozen=True)
class Progress:
    """The position of a run at a checkpoint.

    Attributes:
      step: optimizer steps taken.
      epoch_steps: steps of an epoch.
      metrics: inside an epoch, the values of each metric's variables so far,
        by the name of the metric.
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
    """Saves parts, by name, and the progress in the checkpoints/ of a run.

    All workers must call it, for variables that are split among them; the files
    of the chief alone are kept.

    Raises:
      OSError: the files cannot be written; earlier checkpoints are untouched.
    """
    checkpoint = tf.train.Checkpoint(**parts)
    if not is_chief:
        with tempfile.TemporaryDirectory() as elsewhere:
            checkpoint.write(f"{elsewhere}/{_VARIABLES}")
        return
    path = run_files.path_of(directory, progress.step)
    try:
        # A run that was resumed from an earlier step saves this step again.
        with files.make_atomically(path, overwrite=True) as partial:
            checkpoint.write(str(partial / _VARIABLES))
            # The files are synced while their digests are computed.
            with futures.ThreadPoolExecutor(1) as pool:
                sync = pool.submit(files.sync, partial)
                record = dataclasses.asdict(progress)
                record["files"] = _digests(partial)
                sync.result()
            (partial / PROGRESS).write_text(json.dumps(record, indent=1))
    except (OSError, tf.errors.OpError) as error:
        advice = "There is no earlier one"
        if steps := run_files.steps_in(directory):
            advice = (
                f"That of step {steps[-1]} is good: free some space, and go on "
                "from it with --resume"
            )
        raise exceptions.NotSaved(
            f"the checkpoint of step {progress.step} could not be saved in "
            f"{directory}: {_reason(error)}. {advice}"
        ) from error


def remove_partial(directory: epath.Path) -> None:
    """Removes the partial checkpoints of processes that died."""
    leftovers.remove_dead(directory)
    if not leftovers.is_local(directory):  # without locks
        for path in files.children(directory, ".step-*"):
            path.rmtree(missing_ok=True)


def prune(directory: epath.Path, keep: int, keep_every: int = 0) -> None:
    """Removes all but the newest `keep` and multiples of `keep_every` steps.

    A checkpoint that another process `hold`s stays, until the next call.
    """
    for step in run_files.steps_in(directory)[:-keep]:
        if not keep_every or step % keep_every:
            _remove_unless_held(run_files.path_of(directory, step))


def hold(newest: Callable[[], str]) -> tuple[str, int | None]:
    """Locks the newest checkpoint, so that a training does not prune it.

    Args:
      newest: returns its path, or raises ValueError if there is none.

    Returns:
      The path, and the open descriptor that holds the lock; None for a
      checkpoint on another machine.

    Raises:
      ValueError: there is no checkpoint, or each was pruned before it was
        opened.
    """
    missing = None
    for _ in range(_TRIES):
        path = newest()
        if not leftovers.is_local(path):
            return path, None
        try:
            descriptor = os.open(path, os.O_RDONLY)
        except FileNotFoundError:  # pruned by now, or a link to nowhere
            if path == missing:
                break
            missing = path
            continue
        # Else the checkpoint is being saved, or pruned.
        if _lock(descriptor, fcntl.LOCK_SH) and os.path.exists(path):
            return path, descriptor
        os.close(descriptor)
        time.sleep(_PAUSE)
    raise exceptions.InvalidValue(REMOVED.format(path))


def _lock(descriptor: int, kind: int) -> bool:
    """Locks an open folder, unless another process holds it.

    On a file system without locks, nobody holds a folder.
    """
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True


def _remove_unless_held(path: epath.Path) -> None:
    if not leftovers.is_local(path):
        path.rmtree()
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        if _lock(descriptor, fcntl.LOCK_EX):
            # No reader opens the hidden name while the files are removed.
            hidden = path.with_name(f".{path.name}.{uuid.uuid4()}.partial")
            path.rename(hidden)
            hidden.rmtree()
    finally:
        os.close(descriptor)


def read_progress(path: epath.PathLike) -> Progress:
    """Reads the progress of a checkpoint, and checks its files.

    Raises:
      ValueError: a file is missing or differs from its digest.
    """
    path = epath.Path(path)
    try:
        record = json.loads((path / PROGRESS).read_text())
        expected = record.pop("files")
        progress = Progress(**record)
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise exceptions.InvalidValue(
            f"{path} must be a checkpoint of this package, but its "
            f"{PROGRESS} cannot be read: {error}"
        ) from error
    digests = _digests(path)
    damaged = [
        f"{name} ({'changed' if name in digests else 'missing'})"
        for name, digest in expected.items()
        if digests.get(name) != digest
    ]
    if damaged:
        raise exceptions.InvalidValue(
            f"{path} must be as it was saved, but is damaged: "
            f"{', '.join(damaged)}. Delete it to go on from an earlier one"
        )
    return progress


def restore(path: epath.PathLike, **parts: tf.Module) -> None:
    """Restores all variables of parts, by the names of `save`.

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
    """SHA-256 of every file of a checkpoint but progress.json."""
    return {
        file.name: files.digest(file)["sha256"]
        for file in sorted(path.iterdir())
        if file.name != PROGRESS
    }


def _reason(error: Exception) -> str:
    """The message of the file system."""
    if full := exceptions.no_room(error):
        return full
    text = getattr(error, "strerror", None) or getattr(error, "message", None)
    # TensorFlow surrounds the system's message with names of its operations.
    return re.sub(r"^\{\{.*?\}\} | \[Op:.*", "", str(text or error)).strip()


def _differences(prefix: str, parts: dict[str, tf.Module]) -> str:
    """The variables, by path, in which checkpoint and parts differ."""
    try:
        stored = _shapes(prefix, parts)
        with tempfile.TemporaryDirectory() as elsewhere:
            written = tf.train.Checkpoint(**parts).write(f"{elsewhere}/parts")
            expected = _shapes(written, parts)
    except (OSError, ValueError, tf.errors.OpError):
        return ""
    lines = [f"-{n} {expected[n]}" for n in expected.keys() - stored.keys()]
    lines += [f"+{n} {stored[n]}" for n in stored.keys() - expected.keys()]
    for name in expected.keys() & stored.keys():
        if stored[name] != expected[name]:
            lines.append(f"{name} {stored[name]}, not {expected[name]}")
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
