"""The cores of this machine."""

from __future__ import annotations

import os


def usable() -> int:
    """The number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):  # Linux: within taskset, containers.
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
