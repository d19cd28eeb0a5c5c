"""Runs that are killed as they begin, overwritten, or worked on twice."""

import contextlib
import errno
import fcntl
import json
import os
import shutil
import signal
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
from tests import processes as runs
from tests.faults import disks, processes

_CREATION = """
from supcon_tf import config, run_files
import os, pathlib, shutil

run_dir = run_files.RunDirectory(FOLDER + "/run")
own = config.{settings}(str(run_dir.path){name})
IMAGES = ["a/1.png", "b/2.png"]

def prepare():
    shutil.rmtree(run_dir.path, ignore_errors=True)
    if {overwritten}:
        run_dir.create(own, ("old", "older"), ["old/1.png"])
        for folder in ("checkpoints/step-00000001", "tensorboard/train"):
            (run_dir.path / folder).mkdir(parents=True)
            (run_dir.path / folder / "file").write_text("old")
        run_dir.metrics_file.write_text("old")
        stage = run_dir.stage("linear")
        stage.create(config.LinearSettings(str(run_dir.path)), ("old",))
        stage.metrics_file.write_text("old")

def run():
    run_dir.check_free({overwritten})
    run_dir.create(own, ("a", "b"), IMAGES)

def verify(count):
    if run_dir.exists() and run_dir.class_names() == ("old", "older"):
        assert run_dir._trained_on() == {{"old/1.png"}}  # whole, as it was
        assert run_dir.stage("linear").exists()
    elif run_dir.exists():
        assert run_dir.class_names() == ("a", "b")  # whole, and new
        assert run_dir._trained_on() == set(IMAGES)
        assert not run_dir.metrics_file.exists()
        assert not run_dir.checkpoints.exists()
        assert not run_dir.stage("linear").exists()
    else:  # the next command begins it anew, whether it overwrites or not
        run_dir.check_free(False)
        run_dir.create(own, ("a", "b"), IMAGES)
        there = pathlib.Path(run_dir.path).rglob("*")
        left = {{path.name for path in there if path.is_file()}}
        files = {{"settings.flags", "classes.json", "images.json"}}
        assert left == files, left
"""


@pytest.mark.parametrize("overwritten", [False, True])
@pytest.mark.parametrize(
    "settings, name",
    [("PretrainSettings", ""), ("LinearSettings", ", name='run'")],
)
def test_a_run_begins_whole_or_not_at_all(
    tmp_path, settings, name, overwritten
):
    program = _CREATION.format(
        settings=settings, name=name, overwritten=overwritten
    )
    assert processes.kill_everywhere(program, tmp_path) >= 7


def test_a_run_that_was_killed_as_it_began_is_resumed(tiny_settings, tmp_path):
    """Whatever it left, and whatever earlier versions have left."""
    run = run_files.RunDirectory(tmp_path / "run")
    settings = tiny_settings(run.path, epochs=0, resume=True)
    training.pretrain(settings)
    images = run.images_file.read_text()
    for left in (
        {".unfinished"},
        {".unfinished", ".classes.json.partial"},
        {".unfinished", "classes.json", "images.json"},
        {"settings.flags"},
        {"settings.flags", "classes.json"},
    ):
        for path in run.path.iterdir():
            if path.is_dir():
                path.rmtree()
            elif path.name not in left:
                path.unlink()
        for name in left:
            (run.path / name).touch()
        training.pretrain(settings)
        assert run.images_file.read_text() == images, left
        assert run.class_names() == ("bright", "dark", "mid")
        assert not run.unfinished_file.exists()


def test_a_disk_that_is_full_as_a_run_begins(tmp_path):
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
        run.check_images(images)


# What one process holds while another one wants to do the same.
_HOLDS = """
import sys
from supcon_tf.disk import locks

lock = locks.held(sys.argv[1], sys.argv[2])
lock.__enter__()
print("held", flush=True)
"""


def _linear(run):
    options = {"crop_area": (), "horizontal_flip": False, "overwrite": True}
    training.train_linear(config.LinearSettings(str(run), **options))


_TOOLS = {
    "linear": (locks.TRAINING, "linear", _linear),
    "evaluation": (
        "evaluation",
        "linear",
        lambda run: evaluation.evaluate(
            config.EvaluateSettings(str(run), sample_images=0, plotted_images=0)
        ),
    ),
    "export": (
        "export",
        "",
        lambda run: serving.export(config.ExportSettings(str(run))),
    ),
    "conversion": (
        "conversion",
        "",
        lambda run: conversion.convert(config.ConvertSettings(str(run))),
    ),
}


@pytest.mark.slow(but=["evaluation"])
@pytest.mark.parametrize("tool", _TOOLS)
def test_two_that_write_the_same_files(copy_run, tmp_path, tool):
    run = copy_run(tmp_path / "run").path
    work, below, use = _TOOLS[tool]
    before = {
        path: path.stat().st_mtime_ns for path in (tmp_path / "run").rglob("*")
    }
    with processes.holder(_HOLDS, str(run / below), work) as other:
        with pytest.raises(ValueError, match="one process at a time") as error:
            use(run)
        told = str(error.value)
        assert f"process {other._process.pid} on {socket.gethostname()}" in told
        assert "\n" not in told
        # Nor does anybody remove the files under it.
        settings = config.PretrainSettings(str(run), overwrite=True)
        with pytest.raises(ValueError, match=f"the {work} of .* one process"):
            run_files.RunDirectory(settings.run_dir).check_free(overwrite=True)
        assert (
            before.items()
            <= {
                path: path.stat().st_mtime_ns
                for path in (tmp_path / "run").rglob("*")
                if path.name != below or not below
            }.items()
            | {
                path: before.get(path) for path in [tmp_path / "run" / below]
            }.items()
        )
        other.send_signal(signal.SIGKILL)
        other.wait()
    assert (run / below / f".{work}.lock").exists()  # of a process that is dead
    if tool != "conversion":  # takes long
        use(run)
        assert not (run / below / f".{work}.lock").exists()


def test_two_trainings_go_on_with_one_run(tmp_path):
    run = tmp_path / "run"
    first = runs.start(run, "--epochs=500", "--keep_checkpoints=2")
    runs.wait_until(lambda: runs.last_step(run) >= 22, [first])
    refused = runs.end(runs.start(run, "--epochs=500"), 1)
    (line,) = [
        text for text in refused.splitlines() if text.startswith("error:")
    ]
    assert f"process {first._process.pid} on {socket.gethostname()}" in line
    assert "Traceback" not in refused and first.poll() is None
    first.kill()
    first.wait()
    last_step = runs.last_step(run)
    shutil.rmtree(run / "tensorboard")
    epochs = last_step // 22 + 1
    flags = run / "settings.flags"
    flags.write_text(
        flags.read_text().replace("epochs=500", f"epochs={epochs}")
    )
    runs.end(runs.start(run, f"--epochs={epochs}"))
    lines = (run / "metrics.jsonl").read_text().splitlines()
    told = [json.loads(line)["epoch"] for line in lines]
    assert told == [*range(1, epochs + 1)]
    assert not (run / ".training.lock").exists()


@pytest.mark.parametrize("kind", ["dead", "alive", "of another machine"])
def test_a_file_system_without_locks(tmp_path, monkeypatch, kind):
    """There, who holds one is known by its number and its start."""

    def flock(descriptor, operation):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    with processes.holder(_HOLDS, str(tmp_path / "run"), "x") as other:
        monkeypatch.setattr(fcntl, "flock", flock)
        lock = tmp_path / "run" / ".x.lock"
        if kind == "dead":
            other.kill()
            other.wait()
        elif kind == "of another machine":
            told = json.loads(lock.read_text()) | {"host": "another"}
            lock.write_text(json.dumps(told))
        expected = contextlib.nullcontext()
        if kind == "alive":
            expected = pytest.raises(ValueError, match="one process at a time")
        with expected:
            locks.check(tmp_path / "run", "x")
        with expected, locks.held(tmp_path / "run", "x"):
            assert json.loads(lock.read_text())["pid"] == os.getpid()


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


def test_a_run_may_begin_with_a_link(tiny_settings, tmp_path):
    (tmp_path / "large").mkdir()
    (tmp_path / "run").mkdir()
    (tmp_path / "run/checkpoints").symlink_to(tmp_path / "large")
    for options in ({}, {"overwrite": True}):
        settings = tiny_settings(tmp_path / "run", epochs=0, **options)
        training.pretrain(settings)
        assert _names(tmp_path / "large") >= {"step-00000000"}


def test_a_report_that_is_killed_leaves_none_or_a_whole_one(copy_run, tmp_path):
    run = copy_run(tmp_path / "run")
    program = """
from supcon_tf import reports
import pathlib

page = pathlib.Path(FOLDER) / "report.html"
sizes = set()

def prepare():
    page.unlink(missing_ok=True)

def run():
    reports.write_report([RUN], page)

def verify(count):
    if page.exists():
        assert page.read_text().rstrip().endswith("</html>")
        sizes.add(page.stat().st_size)
"""
    (tmp_path / "page").mkdir()
    program = f"RUN = {str(run.path)!r}\n{program}"
    assert processes.kill_everywhere(program, tmp_path / "page") >= 2


@pytest.mark.parametrize("tool", ["conversion", "export", "evaluation"])
def test_a_target_that_cannot_be_written_is_found_first(
    copy_run, tmp_path, tool, monkeypatch
):
    run = copy_run(tmp_path / "run").path
    _, _, use = _TOOLS[tool]
    folder = {"conversion": "converted", "export": "export"}.get(tool)
    (tmp_path / "run" / (folder or "encoded")).write_text("a file")
    monkeypatch.setattr(training.Run, "source", None)  # no work before
    monkeypatch.setattr(training.Run, "encoder", None)
    with pytest.raises(ValueError, match="`run_dir` must be a folder that can"):
        use(run)
