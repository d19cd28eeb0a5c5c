"""SIGTERM, of a cluster that takes a machine away, and SIGINT, of Ctrl-C."""

from __future__ import annotations

import os
import signal
import threading
import types

_SIGNALS = (signal.SIGTERM, signal.SIGINT)

# What Kubeflow's TFJob starts again by itself: "user-specified retryable".
EXIT_CODE = 138


class Preempted(SystemExit):
    """Ends the process with a code of its own, once the run is saved."""

    def __init__(self):
        super().__init__(EXIT_CODE)


class Notice:
    """Notes that SIGTERM or SIGINT came, while it is entered as a context.

    The step that is under way is not disturbed. A second signal has its usual
    effect. Threads other than the main one cannot listen to signals: there,
    nothing is noted. `came` says whether one came.
    """

    def __init__(self):
        self.came = False
        self._before: dict[int, object] = {}

    def __enter__(self) -> Notice:
        if threading.current_thread() is threading.main_thread():
            self._before = {
                number: signal.signal(number, self._note)
                for number in _SIGNALS
                if signal.getsignal(number) != signal.SIG_IGN  # as of nohup
            }
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: types.FrameType | None) -> None:
        self.came = True
        if number == signal.SIGINT:  # os.write: print is not to be reentered
            os.write(2, b"\nsaving after this step; Ctrl-C again: at once\n")
        for number in self._before:
            signal.signal(number, signal.SIG_DFL)
