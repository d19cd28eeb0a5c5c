"""Ends of a process that a run is saved for: signals, a closed terminal."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import sys
import threading
import types
from collections.abc import Iterator
from typing import TextIO

# That ask a process to end: a cluster that takes its machine away, Ctrl-C.
_ASKING = (signal.SIGTERM, signal.SIGINT)
# That would end it if nothing else is made of them: a closed terminal; what
# SLURM, SGE and LSF send some time before they kill; the limit of CPU time.
_OTHERS = (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU)

_SAYS = b"\nsaving after this step; Ctrl-C again: at once\n"

# What Kubeflow's TFJob starts again by itself: "user-specified retryable".
EXIT_CODE = 138


class Preempted(SystemExit):
    """Ends the process with a code of its own, once the run is saved."""

    def __init__(self):
        super().__init__(EXIT_CODE)


class Notice:
    """Notes that a signal came to end the process, while it is entered.

    The step that is under way is not disturbed. A second Ctrl-C ends the
    process at once. Other signals may come again, or one after the other, as
    clusters send them before they kill. A signal that is ignored, as by nohup,
    stays so. Threads other than the main one cannot listen to signals: there,
    nothing is noted. `came` says whether one came.

    What is printed to a terminal that is closed by now, or into a pipe that
    nobody reads, goes nowhere, and is no error.
    """

    def __init__(self):
        self.came = False
        self._changes = contextlib.ExitStack()

    def __enter__(self) -> Notice:
        if threading.current_thread() is not threading.main_thread():
            return self
        self._terminals = [x for x in range(3) if os.isatty(x)]
        for number in (*_ASKING, *_OTHERS):
            handler = signal.getsignal(number)
            # None is one that is not Python's.
            is_free = handler == signal.SIG_DFL or (
                number in _ASKING and handler not in (signal.SIG_IGN, None)
            )
            if is_free:
                signal.signal(number, self._note)
                self._changes.callback(signal.signal, number, handler)
        for redirect, stream in (
            (contextlib.redirect_stdout, sys.stdout),
            (contextlib.redirect_stderr, sys.stderr),
        ):
            if stream is not None:  # as of a process without it
                self._changes.enter_context(redirect(_Harmless(stream)))
        return self

    def __exit__(self, *error: object) -> None:
        self._changes.close()

    def _note(self, number: int, frame: types.FrameType | None) -> None:
        self.came = True
        for terminal in self._terminals:
            if not os.isatty(terminal):  # closed by now
                silence(terminal)
        if number == signal.SIGINT:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            with contextlib.suppress(OSError):
                os.write(2, _SAYS)  # print is not to be reentered


class _Harmless:
    """A stream that cannot fail for want of a reader."""

    def __init__(self, stream: TextIO):
        self._stream = stream

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """As of the stream."""
        with self._silenced():
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """As of the stream."""
        with self._silenced():
            self._stream.flush()

    @contextlib.contextmanager
    def _silenced(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if error.errno not in (errno.EIO, errno.EPIPE):
                raise
            # Else what is left in its buffer fails when Python ends.
            silence(self._stream.fileno())


def silence(descriptor: int) -> None:
    """Lets what is written to a descriptor go nowhere."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)
