"""Signals, terminals that close, and output that nobody reads."""

import fcntl
import os
import pty
import select
import shutil
import signal
import struct
import sys
import termios
import time

import pytest

from supcon_tf import config, run_files, settings
from supcon_tf.training import preemption
from tests import forks, processes
from tests.tools import test_sweep

LISTENS_TO = [
    *(signal.SIGTERM, signal.SIGINT, signal.SIGHUP),
    *(signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU),
]


@pytest.fixture(autouse=True)
def unhandled():
    """The suite may have been started by nohup, or in the background."""
    before = {
        signum: signal.signal(signum, signal.SIG_DFL) for signum in LISTENS_TO
    }
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", LISTENS_TO)
def test_a_signal_is_noted_once_or_more(number):
    with preemption.Notice() as notice:
        assert not notice.came
        os.kill(os.getpid(), number)
        assert notice.came
        # A terminal's end may come twice, that of CPU time every second; LSF
        # sends SIGINT and SIGTERM, SLURM SIGTERM behind what announced it.
        for other in {*LISTENS_TO} - {signal.SIGINT}:
            os.kill(os.getpid(), other)
        if number != signal.SIGINT:
            os.kill(os.getpid(), signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) == signal.SIG_DFL
    assert {signal.getsignal(signum) for signum in LISTENS_TO} == {
        signal.SIG_DFL
    }


def test_what_is_ignored_or_handled_stays_so():
    def handler(number, frame):
        handled.append(number)

    handled = []
    others = LISTENS_TO[2:]
    for number in LISTENS_TO:
        signal.signal(number, signal.SIG_IGN)  # as nohup does
        with preemption.Notice() as notice:
            os.kill(os.getpid(), number)
        assert not notice.came
        signal.signal(number, handler)  # as of who calls us
        with preemption.Notice() as notice:
            os.kill(os.getpid(), number)
        assert notice.came == (number not in others)
        assert signal.getsignal(number) == handler
    assert handled == others


def test_output_that_nobody_reads_is_no_error(monkeypatch):
    read, write = os.pipe()
    with os.fdopen(write, "w") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        with preemption.Notice():
            print("read", flush=True)
            assert os.read(read, 9) == b"read\n" and not sys.stdout.isatty()
            os.close(read)
            for _ in range(2):
                print("not read", flush=True)
        assert sys.stdout is stream
    with open("/dev/full", "w") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        with preemption.Notice(), pytest.raises(OSError, match="No space left"):
            print("a full disk is one", flush=True)
        monkeypatch.undo()
        with pytest.raises(OSError, match="No space left"):
            stream.close()


# Runs a tool in a terminal of its own.
_IN_TERMINAL = """
import os, pathlib, runpy, signal, sys

terminal, handler, tool = sys.argv[1:4]
sys.argv[:4] = [tool]
sys.path.insert(0, str(pathlib.Path(tool).parent))
os.setsid()
for number in range(3):
    os.dup2(os.open(terminal, os.O_RDWR), number)
assert os.isatty(1)
signal.signal(signal.SIGHUP, signal.Handlers[handler])
runpy.run_path(tool, run_name="__main__")
"""


class Terminal:
    """A tool in a terminal that can be closed."""

    def __init__(self, tool, *flags, handler="SIG_DFL"):
        self._ours, self._theirs = pty.openpty()
        size = struct.pack("4H", 50, 200, 0, 0)  # rows, columns
        fcntl.ioctl(self._ours, termios.TIOCSWINSZ, size)
        path = processes.ROOT / "tools" / f"{tool}.py"
        started = os.ttyname(self._theirs), handler, str(path), *flags
        self.process = forks.Fork(_IN_TERMINAL, *started, cwd=processes.ROOT)
        self.shown = ""

    def wait_for(self, text):
        until = time.monotonic() + forks.HANGS
        ready = select.poll()  # of any number, where select takes 1,024
        ready.register(self._ours, select.POLLIN)
        while text not in self.shown:
            if ready.poll(100):
                self.shown += os.read(self._ours, 4096).decode()
            elif self.process.poll() is not None:
                raise AssertionError(self.shown)
            assert time.monotonic() < until

    def close(self):
        """Closes it, as its window does, and waits for the tool to end."""
        os.close(self._ours)
        os.close(self._theirs)
        output = "".join(self.process.communicate())
        assert "Traceback" not in output, output
        return self.process.returncode


LONG = "--epochs=100000", "--checkpoint_every=100000", "--resume"


def closed_twice(tool, run_dir, *flags):
    """A training whose terminal closes, goes on, and whose terminal closes."""
    steps = [0]
    for _ in range(2):
        terminal = Terminal(tool, *flags, f"--run_dir={run_dir[0]}")
        if steps[-1]:
            terminal.wait_for(f"/step-{steps[-1]:08}, ")  # resumed
        terminal.wait_for("\repoch ")  # the bar of a step
        assert terminal.close() == preemption.EXIT_CODE
        steps.append(processes.last_step(run_dir[-1]))
    assert 0 < steps[1] < steps[2]


def test_a_closed_terminal_ends_a_pretraining_that_goes_on(tmp_path):
    closed_twice("pretrain", [tmp_path / "run"], *processes.FLAGS, *LONG)


def test_an_ignored_one_lets_it_go_on(tmp_path):
    """As nohup and disown do, the latter without another output."""
    flags = (*processes.FLAGS, "--epochs=3", f"--run_dir={tmp_path}/run")
    terminal = Terminal("pretrain", *flags, handler="SIG_IGN")
    terminal.wait_for("\repoch ")
    assert terminal.close() == 0
    assert processes.last_step(tmp_path / "run") == 66


@pytest.mark.slow
def test_a_closed_terminal_ends_a_linear_stage_that_goes_on(finished_run):
    flags = "--name=long", "--batch_size=16", *LONG
    run_dir = finished_run.path, finished_run.path / "long"
    closed_twice("train_linear", run_dir, *flags)


@pytest.mark.slow
def test_a_closed_terminal_ends_a_fine_tuning_that_goes_on(
    finished_run, image_folder
):
    flags = (
        *("--name=other", "--method=finetune", f"--data_dir={image_folder}"),
        *("--steps=100000", "--batch_size=16", "--resume"),
    )
    training = finished_run.path / "other" / "tuned"
    closed_twice("transfer", [finished_run.path, training], *flags)


@pytest.mark.slow
def test_a_closed_terminal_ends_a_training_on_texts_that_goes_on(
    finished_text_run, tmp_path
):
    recorded = finished_text_run.recorded(config.FinetuneTextSettings)
    flagfile = tmp_path / "own.flags"
    flagfile.write_text(settings.to_flagfile(recorded))
    run_dir = [tmp_path / "run"]
    closed_twice("finetune_text", run_dir, f"--flagfile={flagfile}", *LONG)


@pytest.mark.slow
@pytest.mark.skipif(not os.path.isdir("/proc"), reason="needs Linux")
def test_a_closed_terminal_ends_a_sweep_and_its_cells(tmp_path):
    sweep = tmp_path / "sweep"
    flags = f"--run_dir={sweep}", "--sweep=temperature=0.1,0.2"
    run = run_files.RunDirectory(sweep / "cells" / test_sweep.CELL)
    for epochs in (1, 3):
        terminal = Terminal("sweep", *flags, *processes.FLAGS, *LONG)
        processes.wait_until(
            lambda epochs=epochs: len(run.metrics()) >= epochs,
            [terminal.process],
        )
        assert terminal.close() == preemption.EXIT_CODE
        assert not test_sweep.cell_processes(sweep)
        assert test_sweep.status(sweep) == ["pending", "pending"]
    log = (sweep / "logs" / test_sweep.CELL / "log.txt").read_text()
    assert log.count("preempted    saved at step ") == 2
    assert log.count("resumed      ") == 1
    shutil.rmtree(sweep)
