"""Small disks that are nearly full, and tools that run on them."""

import contextlib
import os
import pathlib
import subprocess
from collections.abc import Iterator

import pytest

from tests import forks

TOOLS = pathlib.Path(__file__).parents[2] / "tools"
# No file of the process may grow beyond a number of bytes.
_LIMITED = """
import pathlib, resource, runpy, sys

limit, tool = int(sys.argv[1]), sys.argv[2]
sys.argv[:3] = [tool]
sys.path.insert(0, str(pathlib.Path(tool).parent))
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
runpy.run_path(tool, run_name="__main__")
"""


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


def run_tool(name: str, *flags: str, limit: int | None = None) -> str:
    """Runs a tool that must fail in one line; returns the line.

    Args:
      name: of the tool.
      *flags: its flags.
      limit: bytes that no file may grow beyond; None for any.
    """
    tool = TOOLS / f"{name}.py"
    program, arguments = tool, flags
    if limit is not None:
        program, arguments = _LIMITED, (str(limit), str(tool), *flags)
    result = forks.run(program, *arguments)
    assert result.returncode == 1, (result.returncode, result.stderr[-3000:])
    assert "Traceback" not in result.stderr, result.stderr[-3000:]
    line = result.stderr.strip().splitlines()[-1]
    assert line.startswith("error: "), result.stderr[-3000:]
    return line


def hidden(folder: pathlib.Path) -> list[str]:
    """The names of partial files in a folder and below it."""
    return sorted(path.name for path in folder.rglob(".*.partial"))
