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


def test_runs_side_by_side_without_tensorflow(tmp_path):
    first, second = (
        run_files.write_run(tmp_path / name, parts=()) for name in "ab"
    )
    tool = ROOT / "tools" / "report.py"
    flags = [f"--run_dir={tmp_path}/c"]
    command = [sys.executable, "-c", PROGRAM, tool, first, second, *flags]
    process = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert process.returncode == 0, process.stderr
    path, imported = process.stdout.splitlines()
    assert path == f"{tmp_path}/c/report.html"
    assert "<h1>a and b</h1>" in pathlib.Path(path).read_text()
    assert imported == "False"
