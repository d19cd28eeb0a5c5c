"""The cores of this machine."""

from __future__ import annotations

import os
import pathlib

# Linux' names of the x86 instructions for numbers of 16 bits.
_INSTRUCTIONS = {
    "bfloat16": {"avx512_bf16", "amx_bf16", "avx_ne_convert"},
    "float16": {"avx512_fp16", "amx_fp16", "avx_ne_convert"},
}


def usable() -> int:
    """The number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):  # Linux: within taskset, containers.
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def lack_instructions(dtype: str) -> bool:
    """Whether the cores have no instructions for `dtype`.

    False where this is not known: for a dtype other than bfloat16 and float16,
    on processors other than x86, and on systems other than Linux.
    """
    if dtype not in _INSTRUCTIONS:
        return False
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return False
    flags = next((line for line in lines if line.startswith("flags")), None)
    return flags is not None and _INSTRUCTIONS[dtype].isdisjoint(flags.split())
