"""tools/report.py as a user calls it."""

import pathlib
import subprocess
import sys

from tests.reports import run_files

ROOT = pathlib.Path(__file__).parent.parent.parent
# Runs the tool, then says whether it has imported TensorFlow.
PROGRAM = """
import os, runpy, sys
del sys.argv[0]
sys.path.insert(0, os.path.dirname(sys.argv[0]))
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
finally:
    print("tensorflow" in sys.modules)
"""


def run(*arguments):
    tool = ROOT / "tools" / "report.py"
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tool), *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )


def test_runs_side_by_side_without_tensorflow(tmp_path):
    first, second = (
        run_files.write_run(tmp_path / name, parts=()) for name in "ab"
    )
    done = run(first, second, f"--run_dir={tmp_path}/c", "--names=one,two")
    assert done.returncode == 0, done.stderr
    path, imported = done.stdout.splitlines()
    assert path == f"{tmp_path}/c/report.html"
    assert "<h1>one and two</h1>" in pathlib.Path(path).read_text()
    assert imported == "False"


def test_a_wrong_run_is_one_line(tmp_path):
    done = run(tmp_path, f"--run_dir={tmp_path}/c")
    assert done.returncode == 1
    assert done.stderr == (
        f"error: --runs must be run directories, got {tmp_path}, which has "
        "no settings.flags\n"
    )
    assert not (tmp_path / "c").exists()
