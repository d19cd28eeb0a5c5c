"""Runs that are killed at their beginning, overwritten, or written twice."""

import dataclasses
import errno
import fcntl
import json
import os
import shutil
import socket

import pytest

from supcon_tf import (
    config,
    conversion,
    evaluation,
    run_files,
    serving,
    training,
)
from supcon_tf.disk import locks
from tests import runs
from tests.faults import disks, processes

_CREATION = """
from supcon_tf import config, run_files
import pathlib, shutil

run_dir = run_files.RunDirectory(FOLDER + "/run")
settings = config.PretrainSettings(str(run_dir.path))
IMAGES = ["a/1.png", "b/2.png"]

def prepare():
    shutil.rmtree(run_dir.path, ignore_errors=True)
    if {overwritten}:
        run_dir.create(settings, ("old", "older"), ["old/1.png"])
        for folder in ("checkpoints/step-00000001", "tensorboard/train"):
            (run_dir.path / folder).mkdir(parents=True)
            (run_dir.path / folder / "file").write_text("old")
        run_dir.metrics_file.write_text("old")
        stage = run_dir.stage("linear")
        stage.create(config.LinearSettings(str(run_dir.path)), ("old",))
        stage.metrics_file.write_text("old")

def run():
    run_dir.check_free({overwritten})
    run_dir.create(settings, ("a", "b"), IMAGES)

def verify(count):
    if run_dir.exists() and run_dir.class_names() == ("old", "older"):
        # The whole old run.
        assert run_dir.trained_on.names() == {{"old/1.png"}}
        assert run_dir.stage("linear").exists()
    elif run_dir.exists():
        assert run_dir.class_names() == ("a", "b")  # the whole new run
        assert run_dir.trained_on.names() == set(IMAGES)
        assert not run_dir.metrics_file.exists()
        assert not run_dir.checkpoints.exists()
        assert not run_dir.stage("linear").exists()
    else:  # the next command begins the run anew, with overwrite or without
        run_dir.check_free(False)
        run_dir.create(settings, ("a", "b"), IMAGES)
        paths = pathlib.Path(run_dir.path).rglob("*")
        names = {{path.name for path in paths if path.is_file()}}
        assert names == {{"settings.flags", "classes.json", "images.json"}}
"""


@pytest.mark.parametrize("overwritten", [False, True])
def test_a_killed_creation_leaves_a_whole_run_or_none(tmp_path, overwritten):
    program = _CREATION.format(overwritten=overwritten)
    assert processes.kill_everywhere(program, tmp_path) >= 7


def test_a_run_begins_once_a_full_disk_has_space(tmp_path):
    settings = config.PretrainSettings(str(tmp_path / "disk" / "run"))
    run = run_files.RunDirectory(settings.run_dir)
    images = [f"a/{number:040}.png" for number in range(1000)]
    with disks.small_disk(tmp_path / "disk", "64k") as disk:
        (disk / "data").write_bytes(bytes(40_000))
        run.check_free(overwrite=False)
        with pytest.raises(OSError, match="No space left"):
            run.create(settings, ("a", "b"), images)
        assert not run.exists()
        (disk / "data").unlink()
        run.check_free(overwrite=False)
        run.create(settings, ("a", "b"), images)
        run.trained_on.check_same(images)


def _pretrain(run):
    recorded = run.recorded(config.PretrainSettings)
    training.pretrain(dataclasses.replace(recorded, resume=True))


def _train_linear(run):
    training.train_linear(runs.linear_settings(run.path, overwrite=True))


def _evaluate(run):
    evaluation.evaluate(runs.evaluation_settings(run.path))


def _export(run):
    serving.export(config.ExportSettings(str(run.path)))


def _convert(run):
    conversion.convert(config.ConvertSettings(str(run.path)))


@pytest.mark.parametrize(
    ("work", "folder", "write"),
    [
        (locks.TRAINING, "", _pretrain),
        (locks.TRAINING, "linear", _train_linear),
        ("evaluation", "linear", _evaluate),
        ("export", "", _export),
        ("conversion", "", _convert),
    ],
)
def test_a_second_writer_of_the_same_files_is_refused(
    copy_run, tmp_path, work, folder, write
):
    run = copy_run(tmp_path / "run")
    with processes.lock_holder(run.path / folder, work) as holder:
        before = _states(tmp_path)
        owner = f"process {holder._process.pid} on {socket.gethostname()}"
        message = f"^the {work} of .* one process at a time, .*{owner}, since"
        with pytest.raises(ValueError, match=message):
            write(run)
        with pytest.raises(ValueError, match=message):
            run.check_free(overwrite=True)
        assert _states(tmp_path) == before


def _states(folder):
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*")}


def test_holders_are_known_by_their_process_without_flock(
    tmp_path, monkeypatch
):
    def flock(descriptor, operation):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    path = tmp_path / "run"
    lock = path / ".x.lock"

    def is_free():
        try:
            locks.check(path, "x")
            with locks.held(path, "x"):
                assert json.loads(lock.read_text())["pid"] == os.getpid()
        except ValueError as error:
            assert "one process at a time" in str(error)
            return False
        return True

    with processes.lock_holder(path, "x") as holder:
        monkeypatch.setattr(fcntl, "flock", flock)
        record = lock.read_text()
        assert not is_free()
        foreign = json.loads(record) | {"host": "another"}
        lock.write_text(json.dumps(foreign))
        assert is_free()
        path.mkdir(exist_ok=True)
        lock.write_text(record)
        holder.kill()
        holder.wait()
        assert is_free()


def test_a_lock_leaves_nothing(tmp_path):
    path = tmp_path / "new" / "run"
    with locks.held(path, "training"), locks.held(path, "training"):
        locks.check(path, "training")
        assert [entry.name for entry in path.iterdir()] == [".training.lock"]
        with locks.held(path, "evaluation"):
            assert len([*path.iterdir()]) == 2
    assert not [*tmp_path.iterdir()]


def _names(path):
    return {str(entry.relative_to(path)) for entry in path.rglob("*")}


@pytest.mark.parametrize(
    "subfolder", ["second", "linear/second", "tensorboard/train/x", "encoded/x"]
)
def test_overwriting_keeps_runs_that_lie_inside(copy_run, tmp_path, subfolder):
    run = copy_run(tmp_path / "run")
    inside = run_files.RunDirectory(run.path / subfolder)
    inside.create(config.PretrainSettings(str(inside.path)), ("a", "b"))
    before = _names(tmp_path)
    message = f"other runs than {run.path}: .*, got {inside.path}"
    with pytest.raises(ValueError, match=message):
        run.check_free(overwrite=True)
    with pytest.raises(ValueError, match=message):
        run.create(config.PretrainSettings(str(run.path)), ("a", "b"))
    assert _names(tmp_path) == before


def test_overwriting_keeps_files_of_users(copy_run, tmp_path):
    run = copy_run(tmp_path / "run")
    mine = {
        *("notes.txt", "linear/notes.txt", "checkpoints/best/weights.h5"),
        *("export/README", "tensorboard/others/events", "sweep/sweep.json"),
    }
    for name in mine:
        (tmp_path / "run" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "run" / name).write_text("mine")
    (tmp_path / "run/export/1").mkdir()
    run.create(config.PretrainSettings(str(run.path)), ("a", "b"))
    left = {
        str(path.relative_to(run.path))
        for path in (tmp_path / "run").rglob("*")
        if path.is_file()
    }
    assert left == mine | {"settings.flags", "classes.json"}


def test_folders_that_are_links_to_a_larger_disk(copy_run, tmp_path):
    run = copy_run(tmp_path / "run")
    (tmp_path / "large").mkdir()
    for name in ("checkpoints", "tensorboard", "encoded"):
        (run.path / name).mkdir(exist_ok=True)
        shutil.move(run.path / name, tmp_path / "large")
        (tmp_path / "run" / name).symlink_to(tmp_path / "large" / name)
    (tmp_path / "large/tensorboard/others").mkdir()
    (tmp_path / "large/encoded/test").mkdir()
    run.check_free(overwrite=True)
    run.create(config.PretrainSettings(str(run.path)), ("a", "b"))
    assert {entry for entry in _names(tmp_path / "large")} == {
        *("checkpoints", "tensorboard", "encoded", "tensorboard/others")
    }
    assert (tmp_path / "run/checkpoints").is_symlink()
    assert not run.stage("linear").path.exists()
    # The disk is gone: nothing has been removed.
    shutil.rmtree(tmp_path / "large")
    before = _names(tmp_path)
    with pytest.raises(ValueError, match="must be a link to a folder that is"):
        run.check_free(overwrite=True)
    assert _names(tmp_path) == before


def test_a_run_may_begin_with_a_link(tmp_path):
    (tmp_path / "large").mkdir()
    run = run_files.RunDirectory(tmp_path / "run")
    run.path.mkdir()
    os.symlink(tmp_path / "large", run.checkpoints)
    for overwrite in (False, True):
        run.check_free(overwrite)
        run.create(config.PretrainSettings(str(run.path)), ("a", "b"))
        assert not _names(tmp_path / "large")
        (run.checkpoints / "step-00000000").mkdir()


@pytest.mark.parametrize(
    ("write", "folder"),
    [(_convert, "converted"), (_export, "export"), (_evaluate, "encoded")],
)
def test_an_unwritable_target_is_refused_before_any_work(
    copy_run, tmp_path, write, folder, monkeypatch
):
    run = copy_run(tmp_path / "run")
    (run.path / folder).write_text("a file")
    monkeypatch.setattr(training.Run, "source", None)
    monkeypatch.setattr(training.Run, "encoder", None)
    with pytest.raises(ValueError, match="`run_dir` must be a folder that can"):
        write(run)
