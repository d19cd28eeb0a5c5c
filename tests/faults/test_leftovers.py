"""Commands remove the partial files of dead processes, and no other files."""

import dataclasses
import os
import pathlib
import uuid

import numpy as np
import pytest
from etils import epath

from supcon_tf import config, data, evaluation, training
from supcon_tf.data import tfrecord_writer
from supcon_tf.disk import files, leftovers
from tests import forks
from tests.faults import disks

# Fills a file or a directory until the process is killed.
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


def partial(path):
    return path.with_name(f".{path.name}.{uuid.uuid4()}.partial")


@pytest.mark.parametrize("kind", ["file", "directory"])
def test_partial_files_stay_as_long_as_their_process_lives(kind, tmp_path):
    process = forks.Fork(_FILLING, kind, str(tmp_path / "filled"))
    assert process.read_line() == "filling\n"
    files.write_atomically(tmp_path / "other", "x")
    with files.make_atomically(tmp_path / "directory"):
        pass
    (name,) = disks.hidden(tmp_path)
    assert name.startswith(".filled.")
    process.kill()
    process.wait()
    assert disks.hidden(tmp_path) == [name]
    files.write_atomically(tmp_path / "other", "y")
    assert disks.hidden(tmp_path) == []
    assert {path.name for path in tmp_path.iterdir()} == {"other", "directory"}


def test_files_of_users_stay(tmp_path):
    for name in (".x.partial", f".x.{uuid.uuid4()}", "x.partial"):
        (tmp_path / name).touch()
    target = tmp_path / "target"
    target.mkdir()
    (target / "file").touch()
    partial(tmp_path / "x").symlink_to(target)
    files.write_atomically(tmp_path / "other", "x")
    assert len(list(tmp_path.iterdir())) == 6
    assert (target / "file").exists()


def test_a_replaced_directory_stays_until_the_new_directory_exists(tmp_path):
    aside = tmp_path / f".x.{uuid.uuid4()}.old"
    aside.mkdir()
    leftovers.remove_dead(tmp_path)
    assert aside.exists()
    (tmp_path / "x").mkdir()
    leftovers.remove_dead(tmp_path)
    assert not aside.exists()


def test_evaluations_remove_leftovers(copy_evaluated_run, tmp_path):
    run = copy_evaluated_run(tmp_path / "run")
    partial(run.encoded / "train").mkdir()
    partial(run.evaluation_owner().samples_file).touch()
    settings = config.EvaluateSettings(str(run.path), plotted_images=0)
    evaluation.evaluate(settings)
    assert disks.hidden(tmp_path) == []


def test_resumed_fine_tunings_remove_leftovers(finished_text_run):
    run = finished_text_run
    for folder in (run.best, run.checkpoints):
        partial(folder / "step-00000009").mkdir()
    recorded = run.recorded(config.FinetuneTextSettings)
    training.finetune_text(dataclasses.replace(recorded, resume=True))
    assert disks.hidden(pathlib.Path(run.path)) == []


def test_writers_of_tfrecords_remove_leftovers(tmp_path):
    images = np.zeros([4, 8, 8, 3], np.uint8)
    source = data.from_arrays(images, [0, 1, 0, 1])
    name = "train-00000-of-00001"
    partial(tmp_path / name).write_bytes(b"half")
    tfrecord_writer._write_split(
        epath.Path(tmp_path), {name: 4}, source, 0, 0, lambda _: None
    )
    assert os.listdir(tmp_path) == [name]
