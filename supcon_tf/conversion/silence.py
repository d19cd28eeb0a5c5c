"""Converters in C++ print what a user cannot use."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Iterator

# A thread that began within another's silence would bring that back at its end.
_LOCK = threading.RLock()


@contextlib.contextmanager
def silenced() -> Iterator[None]:
    """Drops all that this process prints meanwhile, C++ code included.

    Errors come as exceptions, whose text holds the converter's. Threads wait
    for each other.
    """
    with _LOCK:
        yield from _silenced()


def _silenced() -> Iterator[None]:
    """Points the process's outputs elsewhere, and back."""
    sys.stdout.flush()
    sys.stderr.flush()
    saved = {number: os.dup(number) for number in (1, 2)}
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        for number in saved:
            os.dup2(nowhere, number)
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for number, kept in saved.items():
            os.dup2(kept, number)
            os.close(kept)
        os.close(nowhere)
