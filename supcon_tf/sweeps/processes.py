"""Processes of cells: started, watched, ended."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
import time

from supcon_tf.sweeps import grid, records

_PACKAGE_PARENT = pathlib.Path(__file__).parent.parent.parent
_PROGRAM = f"{__package__}.cell"  # not imported: the process is its main


class CellProcess:
    """A process that runs a cell, its output appended to the cell's log.

    Args:
      cell: what is run.
      directory: of the cell, with its settings.
      shares: whether other cells run at the same time.
    """

    def __init__(
        self, cell: grid.Cell, directory: records.CellDirectory, shares: bool
    ):
        self.cell = cell
        self.directory = directory
        self._before = directory.state().seconds
        self._began = time.monotonic()
        directory.write_state(records.State("running", self._before))
        with directory.log.open("ab") as log:
            self._log_begins = log.tell()
            self._process = subprocess.Popen(
                [sys.executable, "-m", _PROGRAM, str(directory.path)],
                stdin=subprocess.PIPE,  # closed by our end: the cell's too
                stdout=log,
                stderr=subprocess.STDOUT,
                env=_environment(shares),
                # Ctrl-C is for the sweep, which then asks the cell to save.
                start_new_session=True,
            )

    def has_ended(self) -> bool:
        """Whether the process is over, without waiting."""
        return self._process.poll() is not None

    def ask_to_end(self) -> None:
        """Asks the process to save and to end."""
        if not self.has_ended():
            self._process.send_signal(signal.SIGTERM)

    def wait(self) -> None:
        """Waits until the process is over."""
        self._process.wait()

    def kill(self) -> None:
        """Ends the process as it is, if it is not over."""
        if not self.has_ended():
            self._process.kill()
            self._process.wait()

    def note_end(self, interrupted: bool) -> records.State:
        """Writes down, and returns, how the cell is now.

        Args:
          interrupted: whether it ended because it was asked to.
        """
        self._process.stdin.close()
        seconds = self._before + time.monotonic() - self._began
        state = records.State("finished", seconds)
        if not self.directory.evaluation_file.exists():
            state = records.State("pending", seconds)
            if not interrupted:
                state = self._failed(seconds)
        self.directory.write_state(state)
        return state

    def _failed(self, seconds: float) -> records.State:
        """What the log and the exit status tell of a failure."""
        with self.directory.log.open("rb") as log:
            log.seek(self._log_begins)
            text = log.read().decode(errors="replace")
        lines = [x.strip() for x in text.splitlines() if x.strip()]
        heads = [line for line in lines if line.startswith(records.HEADING)]
        part = heads[-1].removeprefix(records.HEADING) if heads else None
        code = self._process.returncode
        if code < 0:
            name = signal.Signals(-code).name
            hint = ", as when memory runs out" if name == "SIGKILL" else ""
            error = f"ended by {name}{hint}"
        else:
            error = lines[-1].removeprefix(records.ERROR) if lines else ""
        return records.State("failed", seconds, part, error)


def _environment(shares: bool) -> dict[str, str]:
    """That of this process, with what the cell's needs."""
    path = [str(_PACKAGE_PARENT), os.environ.get("PYTHONPATH", "")]
    needed = {
        "PYTHONPATH": os.pathsep.join(path).rstrip(os.pathsep),
        "PYTHONUNBUFFERED": "1",  # the log of a killed process is whole
    }
    defaults = {"TF_CPP_MIN_LOG_LEVEL": "3"}
    if shares:  # TensorFlow would take all memory of a GPU at once
        defaults["TF_FORCE_GPU_ALLOW_GROWTH"] = "true"
    return defaults | dict(os.environ) | needed
