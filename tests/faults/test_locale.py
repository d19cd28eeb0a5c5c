"""Names with accents under a locale of ASCII."""

import os
import subprocess
import sys

import pytest
from PIL import Image

from supcon_tf import run_files
from tests import processes

PROGRAM = """
import sys
from supcon_tf import config, data, run_files
folder = sys.argv[1]
print(sys.getfilesystemencoding())
try:
    config.PretrainSettings(folder + "/\\udcc3\\udca9")
except ValueError as error:
    print(error)
source = data.load("folder", "train", folder)
print(ascii(source.class_names), ascii(source.ids))
run = run_files.RunDirectory(folder + "/run")
run.create(config.PretrainSettings(str(run.path)), source.class_names)
run = run_files.RunDirectory(folder + "/run")
print(run.class_names() == source.class_names)
"""


@pytest.mark.slow
def test_names_are_read_and_written_as_utf_8(tmp_path):
    (tmp_path / "été").mkdir()
    Image.new("RGB", (9, 9)).save(tmp_path / "été" / "é.png")
    process = subprocess.run(
        [sys.executable, "-c", PROGRAM, tmp_path],
        env={
            **os.environ,
            "PYTHONPATH": str(processes.ROOT),
            "PYTHONUTF8": "0",
            "PYTHONCOERCECLOCALE": "0",
            "LC_ALL": "C",
        },
        capture_output=True,
        text=True,
    )
    assert process.returncode == 0, process.stderr
    encoding, error, names, same = process.stdout.splitlines()
    assert encoding == "ascii"
    assert "--run_dir must be UTF-8 without line breaks, got" in error
    assert error.endswith("the locale is one of ascii: set LC_ALL=C.UTF-8")
    assert names == ascii(("été",)) + " " + ascii(("été/é.png",))
    assert same == "True"
    assert run_files.RunDirectory(tmp_path / "run").class_names() == ("été",)
