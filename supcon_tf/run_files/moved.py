"""Data that have moved together with a run."""

from __future__ import annotations

import os
from collections.abc import Mapping

from etils import epath

from supcon_tf.disk import files

# Settings with paths of data, which later tools read again.
_DATA = (
    *("data_dir", "hierarchy"),
    *("train_file", "validation_file", "test_file"),
)


def moved_data(
    recorded: Mapping[str, object], run_dir: epath.PathLike
) -> dict[str, str]:
    """New paths of the data of a run that have moved together with it.

    Data have moved if a recorded local path does not exist, and the same path
    relative to the run does.

    Args:
      recorded: settings by name, among them the run_dir of the recording.
      run_dir: the present run directory.

    Returns:
      New paths by the names of their settings; {} if the run has not moved, or
      an earlier version has not recorded its path.
    """
    old_dir = str(recorded.get("run_dir", ""))
    new_dir = files.whole(str(run_dir))
    if not (os.path.isabs(old_dir) and os.path.isabs(new_dir)):
        return {}
    moved = {}
    for name in _DATA:
        path = str(recorded.get(name) or "")
        if os.path.isabs(path) and not os.path.lexists(path):
            moved_path = os.path.join(new_dir, os.path.relpath(path, old_dir))
            if os.path.exists(moved_path):
                moved[name] = os.path.normpath(moved_path)
    return moved
