"""Processes that need not import TensorFlow: forks of one that has.

Importing it is half of the cost of a small process. A server imports it once,
without starting its runtime, and every process here is a fork of the server,
with its own environment, signals, devices and memory. Forks share the results
of imports, such as the seed of hashes.
"""

import gc
import multiprocessing
import os
import pathlib
import runpy
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping

# Seconds after which a process hangs: far more than any process takes.
HANGS = 900

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(
    ["supcon_tf.evaluation", "supcon_tf.serving", "sklearn.datasets"]
)


class Fork:
    """A running program, with the interface of subprocess.Popen.

    Attributes:
      returncode: of the program, None before its end.
    """

    def __init__(
        self,
        program: pathlib.Path | str,
        *arguments: str,
        cwd: pathlib.Path | str | None = None,
        env: Mapping[str, str] | None = None,
    ):
        """Starts a file of Python, or the text of a program."""
        self._outputs = tempfile.TemporaryDirectory()
        self._stdout, self._stderr = (
            pathlib.Path(self._outputs.name, name)
            for name in ("stdout", "stderr")
        )
        self._stdout.touch()
        self._lines_read = 0
        self._process = _CONTEXT.Process(
            target=_run,
            args=(
                program,
                arguments,
                str(cwd or os.getcwd()),
                dict(os.environ if env is None else env),
                (str(self._stdout), str(self._stderr)),
            ),
        )
        self._process.start()

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        os.kill(self._process.pid, number)

    def kill(self) -> None:
        self._process.kill()

    def wait(self, timeout: float = HANGS) -> int:
        self._process.join(timeout)
        if self.returncode is None:
            self.kill()
            raise AssertionError(f"running after {timeout} s")
        return self.returncode

    def communicate(self, timeout: float = HANGS) -> tuple[str, str]:
        """Waits for the end; returns stdout and stderr."""
        self.wait(timeout)
        return self._stdout.read_text(), self._stderr.read_text()

    def read_line(self) -> str:
        """Waits for the next line on stdout, and returns it."""
        until = time.monotonic() + HANGS
        while True:
            ended = self.poll() is not None
            lines = self._stdout.read_text().splitlines(keepends=True)
            unread = lines[self._lines_read :]
            if unread and unread[0].endswith("\n"):
                self._lines_read += 1
                return unread[0]
            assert not ended and time.monotonic() < until
            time.sleep(0.01)


def run(
    program: pathlib.Path | str, *arguments: str, **options: object
) -> subprocess.CompletedProcess:
    """Runs a program to its end, as subprocess.run does."""
    fork = Fork(program, *arguments, **options)
    stdout, stderr = fork.communicate()
    return subprocess.CompletedProcess(
        [str(program), *arguments], fork.returncode, stdout, stderr
    )


def _run(program, arguments, cwd, env, outputs) -> None:
    """What a fork does."""
    gc.freeze()  # as conftest.py
    gc.set_threshold(100_000, 20, 100)
    for number, path in enumerate(outputs, start=1):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), number)
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    sys.argv = [str(program), *arguments]
    if isinstance(program, pathlib.Path):
        sys.path.insert(0, str(program.parent))  # as Python does
        runpy.run_path(str(program), run_name="__main__")
    else:
        exec(compile(program, "<string>", "exec"), {"__name__": "__main__"})
