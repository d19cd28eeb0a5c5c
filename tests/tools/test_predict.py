"""tools/predict.py as a user calls it, at a server, without TensorFlow."""

import pathlib
import signal
import subprocess
import sys
import time

import pytest

from supcon_tf import config
from tests import model_server
from tests.clients import exports

ROOT = pathlib.Path(__file__).parent.parent.parent
# Runs the tool where TensorFlow cannot be imported.
PROGRAM = """
import os, runpy, sys
del sys.argv[0]
sys.path.insert(0, os.path.dirname(sys.argv[0]))
sys.modules["tensorflow"] = None
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    export = exports.write_lengths(tmp_path_factory.mktemp("lengths"))
    with model_server.ModelServer(export, "mine") as server:
        yield server


@pytest.fixture
def command(server, tmp_path):
    (tmp_path / "a").mkdir()
    for index, name in enumerate(("a/1.png", "a/2.jpg", "3.png")):
        (tmp_path / name).write_bytes(b"." * 30 * index)
    tool = str(ROOT / "tools" / "predict.py")
    flags = [f"--server={server.rest}", "--run_dir=runs/mine", "--top=1"]
    return [sys.executable, "-c", PROGRAM, tool, *flags]


def run(command, *arguments, cwd):
    return subprocess.run(
        [*command, *arguments], capture_output=True, text=True, cwd=cwd
    )


def test_rows_on_stdout_and_what_failed_on_stderr(command, tmp_path):
    process = run(command, "3.png", "a", cwd=tmp_path)
    assert process.stdout.splitlines() == [
        "path,predicted_class,probability,top_1_class,top_1_probability,error",
        '3.png,"long, or so",0.5,"long, or so",0.5,',
        'a/1.png,,,,,"no image is empty, got one of 0"',
        "a/2.jpg,short,0.636363626,short,0.636363626,",
    ]
    assert process.returncode == 1
    assert process.stderr == ("error: no answer for 1 of them, see `error`\n")
    process = run(command, "3.png", "--output=new/out.json", cwd=tmp_path)
    assert (process.returncode, process.stdout) == (0, "new/out.json\n")
    assert process.stderr == ""


def test_ctrl_c_ends_at_once(command, server, tmp_path):
    server.reset(delay=600)
    process = subprocess.Popen(
        [*command, "a/2.jpg", "--output=out.csv"],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
    )
    while not server.batch_sizes:
        assert process.poll() is None
        time.sleep(0.02)
    assert list(tmp_path.glob(".out.csv.*.partial"))
    process.send_signal(signal.SIGINT)
    assert process.wait(600) == 130
    assert process.stderr.read() == b""
    process.stderr.close()
    assert not list(tmp_path.glob("*out.csv*"))
    server.reset()


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"output": "a.txt"}, "--output must end in .csv, .json, .jsonl, got"),
        ({"model_name": "m"}, "--model_name must be left out without --server"),
        ({"server": "http://h", "model_dir": "d"}, "--model_dir must be left"),
        ({"server": "http://h"}, "--model_name must be given with --server"),
        ({"server": "localhost:8501"}, "--server must be http://HOST:PORT or "),
        ({"server": "http://h:85x"}, "--server must be http://HOST:PORT or ht"),
        ({"server": "http://"}, "--server must be http://HOST:PORT or https:"),
    ],
)
def test_flags_fit_each_other(overrides, message):
    with pytest.raises(ValueError, match=message):
        config.PredictSettings(**overrides)
    for server in ("http://[::1]:8501", "http://h:8501/prefix", "https://h"):
        config.PredictSettings("runs/mine", server=server)
        config.PredictSettings(server=server, model_name="m")
