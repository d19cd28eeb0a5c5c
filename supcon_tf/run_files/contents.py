"""Files of numbers: metrics.jsonl and .npz files."""

from __future__ import annotations

import io
import json

import numpy as np
from etils import epath

from supcon_tf import exceptions
from supcon_tf.disk import files

ANEW = "tools/evaluate.py makes it anew"


def read_metrics(
    path: epath.Path, leave_out: bool = False
) -> list[dict[str, float | None]]:
    """The epochs of a metrics.jsonl, in order; [] for no such file.

    Each has its number, `epoch`, and its figures by name, None for a figure
    that was not finite. A last line without its end, of a process that was
    killed, is left out.

    Args:
      path: of the file.
      leave_out: leave other damaged lines out too.

    Raises:
      ValueError: a line is damaged; it is named.
    """
    if not path.exists():
        return []
    epochs = []
    # Bytes: a damaged line may be no text at all.
    for number, line in enumerate(path.read_bytes().split(b"\n")[:-1], 1):
        try:
            figures = json.loads(line)
            is_whole = isinstance(figures["epoch"], int)
        except (ValueError, TypeError, KeyError, RecursionError):
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
    """The arrays of an .npz file by name; {} for no such file."""
    if not path.exists():
        return {}
    with (
        files.readable(path, ANEW),
        np.load(io.BytesIO(path.read_bytes())) as arrays,
    ):
        return dict(arrays)


def write_arrays(path: epath.Path, **arrays: np.ndarray) -> None:
    """Writes an .npz file, all arrays or none."""
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    files.write_atomically(path, buffer.getvalue())
