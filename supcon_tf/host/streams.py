"""Output that nobody reads any more: a closed terminal, a pipe to `head`."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Iterator
from typing import TextIO


class LastingStream:
    """A stream that drops its output once the reader is gone.

    Attributes:
      is_silent: whether the reader was gone at the last write.
    """

    def __init__(self, stream: TextIO):
        self._stream = stream
        self.is_silent = False

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Writes to the stream."""
        with self._silenced():
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Flushes the stream."""
        with self._silenced():
            self._stream.flush()

    @contextlib.contextmanager
    def _silenced(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if error.errno not in (errno.EIO, errno.EPIPE):
                raise
            # Else Python's flush of the buffer at exit fails.
            silence(self._stream.fileno())
            self.is_silent = True


@contextlib.contextmanager
def lasting_output() -> Iterator[None]:
    """A context in which stdout and stderr are `LastingStream`s."""
    with contextlib.ExitStack() as changes:
        for redirect, stream in (
            (contextlib.redirect_stdout, sys.stdout),
            (contextlib.redirect_stderr, sys.stderr),
        ):
            # A process may have no stdout.
            if stream is not None and not isinstance(stream, LastingStream):
                changes.enter_context(redirect(LastingStream(stream)))
        yield


def silence(descriptor: int) -> None:
    """Redirects a descriptor to the null device."""
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, descriptor)
    os.close(null)
