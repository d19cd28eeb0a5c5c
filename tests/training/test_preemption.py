"""Signals, terminals that close, and output without a reader."""

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

SIGNALS = [
    *(signal.SIGTERM, signal.SIGINT, signal.SIGHUP),
    *(signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU),
]


@pytest.fixture(autouse=True)
def default_handlers():
    """The suite may have been started by nohup, or in the background."""
    handlers = {
        number: signal.signal(number, signal.SIG_DFL) for number in SIGNALS
    }
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", SIGNALS)
def test_a_notice_survives_repeated_signals(number):
    with preemption.Notice() as notice:
        assert not notice.came
        os.kill(os.getpid(), number)
        assert notice.came
        # A terminal's end may come twice, that of CPU time every second; LSF
        # sends SIGINT and SIGTERM, SLURM SIGTERM after another signal.
        for other in {*SIGNALS} - {signal.SIGINT}:
            os.kill(os.getpid(), other)
        if number != signal.SIGINT:
            os.kill(os.getpid(), signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) == signal.SIG_DFL
    assert {*map(signal.getsignal, SIGNALS)} == {signal.SIG_DFL}


def test_ignored_and_handled_signals_stay_so():
    def handler(number, frame):
        handled.append(number)

    handled = []
    others = SIGNALS[2:]
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)  # as nohup does
        with preemption.Notice() as notice:
            os.kill(os.getpid(), number)
        assert not notice.came
        signal.signal(number, handler)  # of the caller
        with preemption.Notice() as notice:
            os.kill(os.getpid(), number)
        assert notice.came == (number not in others)
        assert signal.getsignal(number) == handler
    assert handled == others


@pytest.mark.parametrize("channel", [os.pipe, pty.openpty])
def test_output_without_a_reader_is_dropped(channel, monkeypatch):
    reader, writer = channel()
    with os.fdopen(writer, "w") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        with preemption.Notice():
            print("read", flush=True)
            assert os.read(reader, 9).split() == [b"read"]
            os.close(reader)
            for _ in range(2):
                print("not read", flush=True)
        assert sys.stdout is stream


def test_output_to_a_full_disk_is_an_error(monkeypatch):
    with open("/dev/full", "w") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        with preemption.Notice(), pytest.raises(OSError, match="No space left"):
            print("text", flush=True)
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
        self._master, self._slave = pty.openpty()
        size = struct.pack("4H", 50, 200, 0, 0)  # rows, columns
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, size)
        path = processes.ROOT / "tools" / f"{tool}.py"
        arguments = os.ttyname(self._slave), handler, str(path), *flags
        self.process = forks.Fork(_IN_TERMINAL, *arguments, cwd=processes.ROOT)
        self.shown = ""

    def wait_for(self, text):
        deadline = time.monotonic() + forks.HANGS
        ready = select.poll()  # of any number, where select takes 1,024
        ready.register(self._master, select.POLLIN)
        while text not in self.shown:
            if ready.poll(100):
                self.shown += os.read(self._master, 4096).decode()
            elif self.process.poll() is not None:
                raise AssertionError(self.shown)
            assert time.monotonic() < deadline

    def close(self):
        """Closes the terminal, as its window does; the tool's exit code."""
        os.close(self._master)
        os.close(self._slave)
        output = "".join(self.process.communicate())
        assert "Traceback" not in output, output
        return self.process.returncode


LONG = "--epochs=100000", "--checkpoint_every=100000", "--resume"


def train_until_closed(tool, run_dir, *flags):
    """Closes the terminal of a training; returns the saved step."""
    before = processes.last_step(run_dir)
    terminal = Terminal(tool, *flags)
    if before:
        terminal.wait_for(f"/step-{before:08}, ")  # resumed
    terminal.wait_for("\repoch ")  # the bar of a step
    assert terminal.close() == preemption.EXIT_CODE
    assert processes.last_step(run_dir) > before


def test_a_closed_terminal_saves_a_pretraining(tmp_path):
    flags = (*processes.FLAGS, *LONG, f"--run_dir={tmp_path}/run")
    train_until_closed("pretrain", tmp_path / "run", *flags)


@pytest.mark.slow
def test_a_training_under_nohup_survives_its_terminal(tmp_path):
    flags = (*processes.FLAGS, "--epochs=3", f"--run_dir={tmp_path}/run")
    terminal = Terminal("pretrain", *flags, handler="SIG_IGN")
    terminal.wait_for("\repoch ")
    assert terminal.close() == 0
    assert processes.last_step(tmp_path / "run") == 66


@pytest.mark.slow
@pytest.mark.parametrize("tool", ["train_linear", "transfer", "finetune_text"])
def test_a_closed_terminal_saves_every_training_and_it_resumes(
    tool, finished_run, image_folder, finished_text_run, tmp_path
):
    trained, flags = {
        "train_linear": ("long", ["--name=long", "--batch_size=16", *LONG]),
        "transfer": (
            "other/tuned",
            [
                *("--name=other", "--method=finetune", "--resume"),
                f"--data_dir={image_folder}",
                *("--steps=100000", "--batch_size=16"),
            ],
        ),
        "finetune_text": (".", LONG),
    }[tool]
    run_dir = finished_run.path
    if tool == "finetune_text":
        run_dir = tmp_path / "run"
        recorded = finished_text_run.recorded(config.FinetuneTextSettings)
        flagfile = tmp_path / "text.flags"
        flagfile.write_text(settings.to_flagfile(recorded))
        flags = [f"--flagfile={flagfile}", *flags]
    for _ in range(2):
        train_until_closed(
            tool, run_dir / trained, *flags, f"--run_dir={run_dir}"
        )


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
