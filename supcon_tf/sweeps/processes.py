"""Starts, watches and ends the processes of cells."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
import time

import tensorflow as tf

from supcon_tf.sweeps import grid, records

_PACKAGE_PARENT = pathlib.Path(__file__).parent.parent.parent
_PROGRAM = f"{__package__}.cell"  # not imported: the process is its main


class CellProcess(subprocess.Popen):
    """A process that runs a cell, its output appended to the cell's log.

    SIGTERM asks it to save and to end.

    Args:
      cell: the cell to run, whose settings are on disk.
      has_company: whether other cells run at the same time.
      cores: numbers of the cores that it may use; None for all.
    """

    def __init__(
        self,
        cell: grid.Cell,
        has_company: bool = False,
        cores: set[int] | None = None,
    ):
        self.cell, self.cores = cell, cores
        self._earlier_seconds = cell.directory.state().seconds
        self._start_time = time.monotonic()
        cell.directory.write_state(
            records.State("running", self._earlier_seconds)
        )
        with cell.directory.log.open("ab") as log:
            self._log_start = log.tell()
            super().__init__(
                [sys.executable, "-m", _PROGRAM, str(cell.directory.path)],
                stdin=subprocess.PIPE,  # closed when we end: the cell ends too
                stdout=log,
                stderr=subprocess.STDOUT,
                env=_environment(has_company),
                # Ctrl-C is for the sweep, which then asks the cell to save.
                start_new_session=True,
            )
        if cores is not None:  # before it has a second thread
            os.sched_setaffinity(self.pid, cores)

    def end_state(self, interrupted: bool) -> records.State:
        """The state of the cell after its process ended, asked to or not."""
        self.stdin.close()
        seconds = self._earlier_seconds + time.monotonic() - self._start_time
        if self.cell.results():
            return records.State("finished", seconds)
        if interrupted:
            return records.State("pending", seconds)
        return self._failed(seconds)

    def _failed(self, seconds: float) -> records.State:
        """What the log and the exit status tell of a failure."""
        with self.cell.directory.log.open("rb") as log:
            log.seek(self._log_start)
            text = log.read().decode(errors="replace")
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        headings = [line for line in lines if line.startswith(records.HEADING)]
        part = headings[-1].removeprefix(records.HEADING) if headings else None
        if self.returncode < 0:
            name = signal.Signals(-self.returncode).name
            hint = ", as when memory runs out" if name == "SIGKILL" else ""
            error = f"ended by {name}{hint}"
        else:
            error = lines[-1].removeprefix(records.ERROR) if lines else ""
        return records.State("failed", seconds, part, error)


def shares(count: int) -> list[set[int] | None]:
    """The cores of each of `count` processes at a time; None for all.

    Each has cores of its own where there are enough and no GPU: several
    TensorFlows with a thread per core wait for one another.
    """
    usable = []
    if hasattr(os, "sched_getaffinity"):  # Linux
        usable = sorted(os.sched_getaffinity(0))
    size = len(usable) // max(count, 1)
    if count < 2 or not size or tf.config.list_physical_devices("GPU"):
        return [None] * count
    return [set(usable[i * size : (i + 1) * size]) for i in range(count)]


def _environment(has_company: bool) -> dict[str, str]:
    """This process's environment, and what the cell's process needs."""
    folders = [str(_PACKAGE_PARENT), os.environ.get("PYTHONPATH", "")]
    overrides = {
        "PYTHONPATH": os.pathsep.join(folders).rstrip(os.pathsep),
        "PYTHONUNBUFFERED": "1",  # the log of a killed process is whole
    }
    defaults = {"TF_CPP_MIN_LOG_LEVEL": "3"}
    if has_company:  # TensorFlow would take all memory of a GPU at once
        defaults["TF_FORCE_GPU_ALLOW_GROWTH"] = "true"
    return defaults | dict(os.environ) | overrides
