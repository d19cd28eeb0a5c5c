"""The names of checkpoints, by their steps."""

from __future__ import annotations

from etils import epath

from supcon_tf.disk import files

_CHECKPOINT = "step-"  # followed by the step, of eight digits or more


def path_of(checkpoints: epath.Path, step: int) -> epath.Path:
    """The checkpoint of a step, whether it exists or not."""
    return checkpoints / f"{_CHECKPOINT}{step:08d}"


def steps_in(checkpoints: epath.Path) -> list[int]:
    """The steps that have a checkpoint, rising."""
    checkpoint_paths = files.children(checkpoints, f"{_CHECKPOINT}*")
    names = (path.name for path in checkpoint_paths)
    steps = (name.removeprefix(_CHECKPOINT) for name in names)
    return sorted(int(step) for step in steps if step.isdigit())


def newest(checkpoints: epath.Path) -> epath.Path | None:
    """The checkpoint of the last step; None before it."""
    steps = steps_in(checkpoints)
    return path_of(checkpoints, steps[-1]) if steps else None
