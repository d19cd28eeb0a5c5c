"""What a kill leaves goes with the next command; what is being filled stays."""

import dataclasses
import os
import pathlib
import signal
import uuid

import numpy as np
import pytest
from etils import epath

from supcon_tf import config, data, training
from supcon_tf.data import tfrecord_writer
from supcon_tf.disk import files, leftovers
from tests import forks
from tests.faults import disks

# Fills a file or a directory, and is then killed, or waits.
_FILLING = """
import pathlib, sys, time
from etils import epath
from supcon_tf.disk import files

kind, path = sys.argv[1], epath.Path(sys.argv[2])
filled = files.replaced if kind == "file" else files.make_atomically
with filled(path) as partial:
    print("filling", flush=True)
    time.sleep(900)
"""


@pytest.mark.parametrize("kind", ["file", "directory"])
def test_what_a_living_process_fills_stays(kind, tmp_path):
    process = forks.Fork(_FILLING, kind, str(tmp_path / "made"))
    assert process.read_line() == "filling\n"
    files.write_atomically(tmp_path / "other", "x")
    with files.make_atomically(tmp_path / "directory"):
        pass
    (partial,) = disks.hidden(tmp_path)
    assert partial.startswith(".made.")
    process.kill()
    process.wait()
    assert disks.hidden(tmp_path) == [partial]
    files.write_atomically(tmp_path / "other", "y")
    assert disks.hidden(tmp_path) == []
    assert {path.name for path in tmp_path.iterdir()} == {"other", "directory"}


def test_files_of_others_stay(tmp_path):
    for name in (".x.partial", f".x.{uuid.uuid4()}", "x.partial"):
        (tmp_path / name).touch()
    target = tmp_path / "target"
    target.mkdir()
    (target / "file").touch()
    link = f".x.{uuid.uuid4()}.partial"
    (tmp_path / link).symlink_to(target)
    files.write_atomically(tmp_path / "other", "x")
    assert len(list(tmp_path.iterdir())) == 6
    assert (target / "file").exists()


def test_what_was_put_aside_stays_where_nothing_took_its_place(tmp_path):
    aside = tmp_path / f".made.{uuid.uuid4()}.old"
    aside.mkdir()
    leftovers.remove_dead(tmp_path)
    assert aside.exists()
    (tmp_path / "made").mkdir()
    leftovers.remove_dead(tmp_path)
    assert not aside.exists()


# Runs a tool that is killed as it makes something: a path with this in it.
_KILLED = """
import os, pathlib, runpy, signal, sys, uuid
from supcon_tf.disk import leftovers

part, tool = sys.argv[1], sys.argv[2]
sys.argv[:2] = []
sys.path.insert(0, str(pathlib.Path(tool).parent))
locked = leftovers._locked

def killed(path, make):
    if part in str(path):
        make(path.with_name(f".{path.name}.{uuid.uuid4()}.partial"))
        os.kill(os.getpid(), signal.SIGKILL)
    return locked(path, make)

leftovers._locked = killed
runpy.run_path(tool, run_name="__main__")
"""


@pytest.mark.parametrize("part", ["encoded/train", "samples"])
def test_the_next_evaluation_removes_what_a_killed_one_left(
    part, copy_run, tmp_path
):
    run = copy_run(tmp_path / "run")
    tool = str(disks.TOOLS / "evaluate.py")
    flags = f"--run_dir={run.path}", "--plotted_images=0"
    killed = forks.run(_KILLED, part, tool, *flags)
    assert killed.returncode == -signal.SIGKILL
    assert disks.hidden(tmp_path)
    process = forks.run(disks.TOOLS / "evaluate.py", *flags)
    assert process.returncode == 0, process.stderr
    assert disks.hidden(tmp_path) == []


def test_a_fine_tuning_that_goes_on_removes_what_was_left(finished_text_run):
    run = finished_text_run
    for folder in (run.best, run.checkpoints):
        half = folder / f".step-00000009.{uuid.uuid4()}.partial"
        half.mkdir()
        (half / "variables.index").touch()
    recorded = run.recorded(config.FinetuneTextSettings)
    training.finetune_text(
        dataclasses.replace(recorded, run_dir=str(run.path), resume=True)
    )
    assert disks.hidden(pathlib.Path(run.path)) == []


def test_two_writers_of_one_tfrecord_file_have_their_own(tmp_path):
    images = np.zeros([4, 8, 8, 3], np.uint8)
    source = data.from_arrays(images, [0, 1, 0, 1])
    dead = tmp_path / f".train-00000-of-00001.{uuid.uuid4()}.partial"
    dead.write_bytes(b"half")
    tfrecord_writer._write_split(
        epath.Path(tmp_path),
        {"train-00000-of-00001": 4},
        source,
        0,
        0,
        lambda _: None,
    )
    assert os.listdir(tmp_path) == ["train-00000-of-00001"]
