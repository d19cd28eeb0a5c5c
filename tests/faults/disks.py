"""Small disks that are nearly full, and the partial files on them."""

import contextlib
import os
import pathlib
import subprocess
from collections.abc import Iterator

import pytest


@contextlib.contextmanager
def small_disk(folder: pathlib.Path, size: str) -> Iterator[pathlib.Path]:
    """A disk of a size such as 24m, mounted at a new folder.

    Skips the test where this process may not mount any.
    """
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs"]
    try:
        result = subprocess.run(
            [*mount, folder], capture_output=True, text=True
        )
    except FileNotFoundError:
        pytest.skip("there is no mount")
    if result.returncode:
        pytest.skip(f"no disk can be mounted: {result.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def fill(folder: pathlib.Path, left: int) -> pathlib.Path:
    """Fills the disk of a folder but for so many bytes, by a file there."""
    filling = folder / "filling"
    status = os.statvfs(folder)
    size = status.f_bavail * status.f_frsize - left
    with open(filling, "ab") as file:
        os.posix_fallocate(file.fileno(), 0, size)
    return filling


def hidden(folder: pathlib.Path) -> list[str]:
    """The names of partial files in a folder and below it."""
    return sorted(path.name for path in folder.rglob(".*.partial"))
