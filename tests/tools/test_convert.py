"""The command line of the conversion, as a process."""

from __future__ import annotations

import pathlib
import shutil

from tests import forks

TOOL = pathlib.Path(__file__).parent.parent.parent / "tools" / "convert.py"


def test_a_run_becomes_files_and_a_table(finished_run, tmp_path):
    """And nothing of what the converter prints."""
    shutil.copytree(finished_run.path, tmp_path / "run")
    done = forks.run(
        TOOL,
        "--run_dir=run",
        "--formats=tflite_float32",
        cwd=tmp_path,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr[-2000:]
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines] == [
        *("versions", "devices", "data", "encoder", "classifier"),
        *("made", "converted", "MB", "float", "tflite_float32"),
    ]
