"""Preemption: a signal or a closed terminal ends a process that saves first."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import types

from supcon_tf.host import streams

# Signals of a cluster that takes its machine away, and of Ctrl-C.
_END_SIGNALS = (signal.SIGTERM, signal.SIGINT)
# Signals that end a process by default: of a closed terminal; of SLURM, SGE and
# LSF some time before they kill; of the limit of CPU time.
_OTHER_SIGNALS = (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU)

_MESSAGE = b"\nsaving after this step; Ctrl-C again: at once\n"

# Kubeflow's TFJob restarts this code: "user-specified retryable".
EXIT_CODE = 138


class Preempted(SystemExit):
    """Ends the process with `EXIT_CODE`, once the run is saved."""

    def __init__(self):
        super().__init__(EXIT_CODE)


class Notice:
    """A context that notes signals to end the process.

    The step under way is not disturbed. A second Ctrl-C ends the process at
    once. Other signals may come again, as clusters send several before they
    kill. A signal that the process ignores, as under nohup, stays ignored. Only
    the main thread can handle signals: in others nothing is noted.

    Inside of the context, output to a closed terminal, or to a pipe without a
    reader, is dropped without an error.

    Attributes:
      came: whether a signal came.
    """

    def __init__(self):
        self.came = False
        self._changes = contextlib.ExitStack()

    def __enter__(self) -> Notice:
        if threading.current_thread() is not threading.main_thread():
            return self
        self._terminals = [
            descriptor for descriptor in range(3) if os.isatty(descriptor)
        ]
        for number in (*_END_SIGNALS, *_OTHER_SIGNALS):
            handler = signal.getsignal(number)
            # None is a handler that is not Python's.
            is_free = handler == signal.SIG_DFL or (
                number in _END_SIGNALS and handler not in (signal.SIG_IGN, None)
            )
            if is_free:
                signal.signal(number, self._note)
                self._changes.callback(signal.signal, number, handler)
        self._changes.enter_context(streams.lasting_output())
        return self

    def __exit__(self, *error: object) -> None:
        self._changes.close()

    def _note(self, number: int, frame: types.FrameType | None) -> None:
        self.came = True
        for terminal in self._terminals:
            if not os.isatty(terminal):  # closed by now
                streams.silence(terminal)
        if number == signal.SIGINT:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            with contextlib.suppress(OSError):
                os.write(2, _MESSAGE)  # print is not to be reentered
