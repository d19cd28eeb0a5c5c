"""The processes of cells: commands of `supcon`, one after another."""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import time

import tensorflow as tf

from supcon_tf import exceptions, settings
from supcon_tf.disk import locks
from supcon_tf.sweeps import grid
from supcon_tf.training import preemption

_PACKAGE_PARENT = pathlib.Path(__file__).parent.parent.parent
_PROGRAM = "supcon_tf.cli.attached"  # not imported: the process is its main
_SECONDS_PER_LOOK = 0.1


def run_cell(
    cell: grid.Cell,
    notice: preemption.Notice,
    has_company: bool = False,
    cores: set[int] | None = None,
) -> grid.State:
    """Runs the commands of a cell, their output appended to its log.

    It first waits for a process that still works on the run, as the process of
    a killed sweep does until it has saved.

    Args:
      cell: the cell to run, whose directory exists.
      notice: once it has come, the command that runs is to save and to end.
      has_company: whether other cells run at the same time.
      cores: numbers of the cores that it may use; None for all.

    Returns:
      The state of the cell after the commands.
    """
    seconds, start_time = cell.state().seconds, time.monotonic()
    cell.write_state(grid.State("running", seconds))
    wait_for_others(cell, notice)
    for part in (*cell.trainings, cell.evaluation):
        with start(cell, part, has_company, cores) as process:
            while process.poll() is None:
                time.sleep(_SECONDS_PER_LOOK)
                if notice.came:
                    print(f"stopping     {cell.name} is saved", flush=True)
                    process.terminate()
                    process.wait()
        if process.returncode or notice.came:
            break
    seconds += time.monotonic() - start_time
    if cell.results():
        return grid.State("finished", seconds)
    if notice.came:
        return grid.State("pending", seconds)
    error = _error(cell, process.returncode)
    return grid.State("failed", seconds, grid.TOOLS[type(part)].title, error)


def wait_for_others(cell: grid.Cell, notice: preemption.Notice) -> None:
    """Waits until no process works on the run, or the notice has come."""
    while not notice.came:
        with contextlib.suppress(exceptions.InvalidValue):
            for directory in (
                cell.run_dir,
                f"{cell.run_dir}/{cell.linear_stage}",
            ):
                locks.check_all(directory)
            break
        time.sleep(_SECONDS_PER_LOOK)


def start(
    cell: grid.Cell,
    part: settings.Settings,
    has_company: bool,
    cores: set[int] | None,
) -> subprocess.Popen:
    """Starts a command of a cell."""
    tool = grid.TOOLS[type(part)]
    # TensorFlow would take all memory of a GPU at once.
    gpu_options = {"TF_FORCE_GPU_ALLOW_GROWTH": "true"} if has_company else {}
    folders = [str(_PACKAGE_PARENT), os.environ.get("PYTHONPATH", "")]
    python_path = os.pathsep.join(folders).rstrip(os.pathsep)
    with cell.log.open("a") as log:
        print(f"=== {tool.title}", file=log, flush=True)
        process = subprocess.Popen(
            [  # unbuffered: the log of a killed process is whole
                *(sys.executable, "-u", "-m", _PROGRAM, tool.name),
                *settings.to_flags(part),
                *["--resume"] * (part in cell.trainings),
            ],
            stdin=subprocess.PIPE,  # closed when we end: then it ends too
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**gpu_options, **os.environ, "PYTHONPATH": python_path},
            # Ctrl-C is for the sweep, which then asks the command to save.
            start_new_session=True,
        )
    if cores is not None:  # before it has a second thread
        os.sched_setaffinity(process.pid, cores)
    # Where memory runs out, the system ends this process before any other.
    with contextlib.suppress(OSError):
        pathlib.Path(f"/proc/{process.pid}/oom_score_adj").write_text("1000")
    return process


def _error(cell: grid.Cell, status: int) -> str:
    """Returns the reason of a failure: the signal, or the log's last line."""
    if status < 0:
        name = signal.Signals(-status).name
        hint = ", as when memory runs out" if name == "SIGKILL" else ""
        return f"ended by {name}{hint}"
    log = cell.log.read_bytes().decode(errors="replace")
    return log.strip().splitlines()[-1].strip().removeprefix("error: ")


def shares(count: int) -> list[set[int] | None]:
    """Returns the cores of each of `count` processes; None for all cores.

    Each process has cores of its own where there are enough and no GPU: several
    TensorFlows with a thread per core wait for one another.
    """
    is_linux = hasattr(os, "sched_getaffinity")
    usable = sorted(os.sched_getaffinity(0)) if is_linux else []
    cores_each = len(usable) // max(count, 1)
    if count < 2 or not cores_each or tf.config.list_physical_devices("GPU"):
        return [None] * count
    return [
        set(usable[index * cores_each : (index + 1) * cores_each])
        for index in range(count)
    ]
