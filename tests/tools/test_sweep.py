"""tools/sweep.py as a process, and signals to it and to its cells."""

import json
import os
import pathlib
import signal

import pytest

from supcon_tf.training import preemption
from tests import forks, processes

CELL = "temperature=0.1"
EPOCHS = 20


def start(run_dir, *flags):
    """The same command every time: two cells on the digits."""
    return forks.Fork(
        processes.ROOT / "tools" / "sweep.py",
        f"--run_dir={run_dir}",
        "--sweep=temperature=0.1,0.2",
        *processes.FLAGS,
        f"--epochs={EPOCHS}",
        *flags,
        cwd=processes.ROOT,
    )


def cell_processes(run_dir):
    """Process ids of the cells of a sweep."""
    process_ids = []
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = path.read_bytes().decode().split("\0")
        except OSError:  # it has ended
            continue
        if "supcon_tf.cli.attached" in command and str(run_dir) in str(command):
            process_ids.append(int(path.parent.name))
    return process_ids


def train_two_epochs_more(run_dir, process):
    """Waits for more checkpoints than a cell writes as its sweep is killed."""
    run = run_dir / "cells" / CELL
    before = processes.last_step(run)
    processes.wait_until(
        lambda: processes.last_step(run) >= before + 44, [process]
    )


def status(run_dir):
    described = json.loads((run_dir / "sweep.json").read_text())
    return [cell["status"] for cell in described["cells"]]


def test_a_wrong_sweep_is_one_line_at_once():
    process = start("x", "--sweep=temprature=1")
    _, error = process.communicate()
    assert process.returncode == 1
    assert error == (
        "error: --sweep must name a setting of stage 1, or linear.NAME of "
        "stage 2, got temprature; temperature is one\n"
    )


@pytest.mark.slow
@pytest.mark.skipif(not os.path.isdir("/proc"), reason="needs Linux")
def test_whatever_is_killed_goes_on(tmp_path):
    run_dir = tmp_path / "sweep"
    log = run_dir / "logs" / CELL / "log.txt"

    # SIGKILL of the sweep: the cell saves and ends by itself, and the next
    # sweep, though started at once, waits for that.
    process = start(run_dir)
    train_two_epochs_more(run_dir, process)
    process.send_signal(signal.SIGKILL)
    process.communicate()

    # SIGTERM and Ctrl-C: cell and sweep end, saved.
    for number, code in (
        (signal.SIGTERM, preemption.EXIT_CODE),
        (signal.SIGINT, preemption.EXIT_CODE),
    ):
        process = start(run_dir)
        train_two_epochs_more(run_dir, process)
        assert len(cell_processes(run_dir)) == 1
        process.send_signal(number)
        output = processes.end(process, code)
        assert "Traceback" not in output
        assert not cell_processes(run_dir)
        assert status(run_dir) == ["pending", "pending"]

    # SIGKILL of the cell: the next one is run.
    process = start(run_dir)
    train_two_epochs_more(run_dir, process)
    (cell,) = cell_processes(run_dir)
    os.kill(cell, signal.SIGKILL)
    output = processes.end(process, 1)
    assert status(run_dir) == ["failed", "finished"]
    assert "pretraining: ended by SIGKILL, as when memory runs out" in output
    assert output.endswith(
        "error: 1 of 2 cells failed; the same command, without --overwrite, "
        "tries them again\n"
    )

    processes.end(start(run_dir))
    assert status(run_dir) == ["finished", "finished"]
    text = log.read_text()
    assert text.count("preempted    saved") == 3
    assert text.count("resumed      ") == 4
    # No epoch was trained twice, but for what SIGKILL lost.
    metrics = (run_dir / "cells" / CELL / "metrics.jsonl").read_text()
    epochs = [json.loads(line)["epoch"] for line in metrics.splitlines()]
    assert epochs == list(range(1, EPOCHS + 1))
