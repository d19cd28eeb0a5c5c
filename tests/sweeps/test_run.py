"""Sweeps: the cells that run, the records, and interrupted sweeps."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time
import types
import uuid

import pytest

from supcon_tf import config, run_files, settings, sweeps
from supcon_tf.disk import files
from supcon_tf.host import cores
from supcon_tf.sweeps import figure, grid, processes
from supcon_tf.training import preemption
from tests import forks
from tests.faults.processes import lock_holder
from tests.sweeps.results import write_evaluation
from tests.tools import test_paths


class Pretended:
    """A stand-in for the processes of cells.

    Attributes:
      log: pairs of an event, start or end, and the name of a cell.
      fails: part and error by the name of a cell that fails.
      signal: the signal that comes while a cell runs, or None.
    """

    def __init__(self):
        self.log, self.fails, self.signal = [], {}, None

    def run_cell(self, cell, notice, has_company, cores):
        self.log.append(("start", cell.name))
        assert cell.directory.is_dir()
        time.sleep(0.05)  # others at a time begin meanwhile
        if self.signal:
            os.kill(os.getpid(), self.signal)
            while not notice.came:
                time.sleep(0.01)
        self.log.append(("end", cell.name))
        if notice.came:
            return grid.State("pending", 1.0)
        if cell.name in self.fails:
            return grid.State("failed", 1.0, *self.fails[cell.name])
        write_evaluation(cell, linear={"top_1": 0.5})
        return grid.State("finished", 1.0)


@pytest.fixture
def pretended(monkeypatch):
    pretended = Pretended()
    monkeypatch.setattr(processes, "run_cell", pretended.run_cell)
    fig = types.SimpleNamespace(savefig=lambda *_, **__: None)  # slow
    monkeypatch.setattr(figure, "plot_sweep", lambda _: fig)
    return pretended


def make_settings(path, *axes, **overrides):
    return config.SweepSettings(str(path), sweep=axes, **overrides)


def started_names(pretended):
    return [name for event, name in pretended.log if event == "start"]


def statuses(results):
    return [cell["status"] for cell in results["cells"]]


def read(path):
    return json.loads((path / "sweep.json").read_text())


class CommandFork(forks.Fork):
    """A command of a cell, in a process that need not import TensorFlow."""

    def __init__(self, cell, part, *_):
        self.log = cell.log
        program = "from supcon_tf.cli import commands\ncommands.main()"
        flags = settings.to_flags(part)
        super().__init__(program, grid.TOOLS[type(part)].name, *flags)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with self.log.open("a") as log:
            log.writelines(self.communicate())


def test_a_failed_cell_is_recorded_and_the_rest_goes_on(
    tiny_settings, image_folder, tmp_path, monkeypatch
):
    """In a folder of an odd name; one cell, a real process, has no images."""
    start = processes.start

    def start_or_fork(cell, part, *options):
        is_real = cell.training.data_dir == "/nowhere"
        return (start if is_real else CommandFork)(cell, part, *options)

    monkeypatch.setattr(processes, "start", start_or_fork)
    flags = tmp_path / "linear.flags"
    flags.write_text("--epochs=20\n--crop_area=\n--nohorizontal_flip\n")
    path = tmp_path / test_paths.NAME / "sweep"
    sweep_settings = config.SweepSettings(
        **vars(tiny_settings(path, epochs=1)),
        **{"sweep": (f"data_dir=/nowhere,{image_folder}",), "parallel": 2},
        linear_flagfile=str(flags),
    )
    results = sweeps.run_sweep(sweep_settings)
    failed, finished = results["cells"]
    assert statuses(results) == ["failed", "finished"]
    assert failed["part"] == "pretraining"
    assert "/nowhere" in failed["error"]
    log = pathlib.Path(failed["log"])
    assert log.read_text().splitlines()[-1] == f"error: {failed['error']}"
    run = run_files.RunDirectory(finished["run_dir"])
    evaluation = run.stage("linear").evaluation()
    assert finished["metrics"]["linear.top_1"] == evaluation["linear"]["top_1"]
    assert evaluation["linear"]["top_1"] > 0.5
    assert finished["seconds"] > 0 and failed["seconds"] > 0
    assert read(path) == json.loads(json.dumps(results))
    assert failed["error"] in (path / "sweep.md").read_text()
    assert (path / "sweep.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (path / "sweep.svg").read_text()


@pytest.mark.slow
def test_cells_on_texts(finished_text_run, tmp_path):
    """A real process."""
    settings = finished_text_run.recorded(config.FinetuneTextSettings)
    changes = {"run_dir": str(tmp_path / "sweep"), "epochs": 2}
    results = sweeps.run_sweep(
        config.SweepTextSettings(
            **vars(settings) | changes, sweep=("temperature=0.1",)
        )
    )
    (cell,) = results["cells"]
    assert cell["status"] == "finished", cell["error"]
    run = run_files.RunDirectory(cell["run_dir"])
    assert (
        run.evaluation()["validation"]["top_1"]
        == (cell["metrics"]["validation.top_1"])
    )
    assert "validation top-1" in (tmp_path / "sweep" / "sweep.md").read_text()


def test_finished_cells_are_skipped_and_new_ones_are_run(pretended, tmp_path):
    pretended.fails = {"temperature=0.1": ("evaluation", "bad")}
    results = sweeps.run_sweep(make_settings(tmp_path, "temperature=0.1,0.2"))
    assert statuses(results) == ["failed", "finished"]
    pretended.log.clear()
    pretended.fails = {}
    results = sweeps.run_sweep(
        make_settings(tmp_path, "temperature=0.1,0.2,0.3")
    )
    assert started_names(pretended) == ["temperature=0.1", "temperature=0.3"]
    assert statuses(results) == ["finished"] * 3
    pretended.log.clear()
    results = sweeps.run_sweep(make_settings(tmp_path, "temperature=0.2,0.3"))
    assert not pretended.log and len(results["cells"]) == 2


def test_a_sweep_begins_where_one_was_killed_at_its_start(pretended, tmp_path):
    (tmp_path / f".sweep.json.{uuid.uuid4()}.partial").touch()
    results = sweeps.run_sweep(make_settings(tmp_path, "temperature=0.1"))
    assert statuses(results) == ["finished"]


def test_a_precision_that_the_processor_lacks_is_noted(
    pretended, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(cores, "lack_instructions", lambda t: t == "bfloat16")
    precisions = "precision=float32,mixed_bfloat16"
    sweeps.run_sweep(make_settings(tmp_path, precisions, "seed=0,1"))
    notes = re.findall("^note .*$", capsys.readouterr().out, re.MULTILINE)
    assert len(notes) == 1 and "so that mixed_bfloat16 takes" in notes[0]


def test_what_is_wrong_is_found_before_anything_changes(pretended, tmp_path):
    (tmp_path / "other" / "runs").mkdir(parents=True)
    settings = make_settings(tmp_path / "other", "seed=1", overwrite=True)
    with pytest.raises(ValueError, match="must be empty or hold a sweep"):
        sweeps.run_sweep(settings)
    assert [path.name for path in (tmp_path / "other").iterdir()] == ["runs"]
    path = tmp_path / "s"
    with pytest.raises(ValueError, match="cell batch_size=1: --batch_size m"):
        sweeps.run_sweep(make_settings(path, "batch_size=20,1"))
    assert not path.exists() and not pretended.log
    sweeps.run_sweep(make_settings(path, "temperature=0.1,0.2"))
    changed_settings = make_settings(path, "temperature=0.1,0.2", epochs=50)
    with pytest.raises(ValueError, match="--epochs=50 .was 100. for temperat"):
        sweeps.run_sweep(changed_settings)
    assert read(path)["cells"][0]["settings"]["pretrain"]["epochs"] == 100
    sweeps.run_sweep(dataclasses.replace(changed_settings, overwrite=True))
    assert len(started_names(pretended)) == 4


def test_a_sweep_of_an_earlier_version_is_refused(pretended, tmp_path):
    """And goes on once its folders have their names of now."""
    settings = make_settings(tmp_path, "temperature=0.1,0.2")
    sweeps.run_sweep(settings)
    (tmp_path / "cells").rename(tmp_path / "runs")
    (tmp_path / "logs").rename(tmp_path / "cells")
    pretended.log.clear()
    for overwrite in (False, True):
        with pytest.raises(ValueError, match="`mv .*` there, and") as refused:
            sweeps.run_sweep(dataclasses.replace(settings, overwrite=overwrite))
    command = str(refused.value).split("`")[1]
    subprocess.run(command, shell=True, check=True, cwd=tmp_path)
    results = sweeps.run_sweep(settings)
    assert statuses(results) == ["finished"] * 2 and not pretended.log
    assert [cell["seconds"] for cell in results["cells"]] == [1.0, 1.0]


def test_a_sweep_is_run_by_one_process_at_a_time(pretended, tmp_path):
    settings = make_settings(tmp_path, "temperature=0.1")
    with lock_holder(tmp_path, "sweep"):
        with pytest.raises(ValueError, match="the sweep of .* one process at"):
            sweeps.run_sweep(settings)
    assert not pretended.log
    (cell,) = sweeps.run_sweep(settings)["cells"]
    overwriting = dataclasses.replace(settings, overwrite=True)
    with lock_holder(cell["run_dir"], "training"):
        with pytest.raises(ValueError, match="the training of .* one process"):
            sweeps.run_sweep(overwriting)
    assert statuses(sweeps.run_sweep(settings)) == ["finished"]
    assert len(started_names(pretended)) == 1
    sweeps.run_sweep(overwriting)
    assert len(started_names(pretended)) == 2


def test_a_cell_waits_for_a_process_of_a_killed_sweep(tmp_path):
    (cell,) = grid.list_cells(make_settings(tmp_path, "temperature=0.1"))
    for ends in ("process", "notice"):
        notice = types.SimpleNamespace(came=False)
        waiting = threading.Thread(
            target=processes.wait_for_others, args=(cell, notice)
        )
        with lock_holder(f"{cell.run_dir}/linear", "training") as process:
            waiting.start()
            waiting.join(0.5)
            assert waiting.is_alive()
            if ends == "process":
                process.kill()
            notice.came = ends == "notice"
            waiting.join(forks.HANGS)
            assert not waiting.is_alive()


def test_what_cannot_be_recorded_ends_the_other_cells(
    pretended, tmp_path, monkeypatch
):
    settings = make_settings(
        tmp_path, "temperature=0.1,0.2,0.3,0.4", parallel=2
    )
    write, full = files.write_json, OSError(errno.ENOSPC, "no room")

    def fails(path, content):
        if ("end", "temperature=0.1") in pretended.log:
            raise full
        write(path, content)

    monkeypatch.setattr(files, "write_json", fails)
    with pytest.raises(OSError, match="no room"):
        sweeps.run_sweep(settings)
    assert len(started_names(pretended)) == 2
    monkeypatch.setattr(files, "write_json", write)
    pretended.log.clear()
    assert statuses(sweeps.run_sweep(settings)) == ["finished"] * 4


def test_a_missing_extra_is_found_before_the_trainings(
    pretended, tmp_path, monkeypatch
):
    monkeypatch.setitem(sys.modules, "imagecorruptions", None)
    flags = tmp_path / "evaluate.flags"
    flags.write_text("--corruptions=generated")
    path = tmp_path / "s"
    sweep = make_settings(path, "seed=1", evaluate_flagfile=str(flags))
    with pytest.raises(ImportError, match="the extra `corruptions`: pip inst"):
        sweeps.run_sweep(sweep)
    assert not path.exists() and not pretended.log


def test_a_failed_stage_1_fails_the_cells_that_share_it(pretended, tmp_path):
    pretended.fails = {
        "temperature=0.1,linear.momentum=0.5": ("pretraining", "nan"),
        "temperature=0.2,linear.momentum=0.5": ("linear stage", "nan"),
    }
    results = sweeps.run_sweep(
        make_settings(
            tmp_path, "temperature=0.1,0.2", "linear.momentum=0.5,0.9"
        )
    )
    assert statuses(results) == ["failed", "failed", "failed", "finished"]
    assert len(started_names(pretended)) == 3
    assert results["cells"][1]["error"] == (
        "stage 1 is that of temperature=0.1,linear.momentum=0.5, which failed"
    )


def test_cells_of_one_run_directory_never_run_at_a_time(pretended, tmp_path):
    axes = "temperature=0.1,0.2", "linear.momentum=0.5,0.9"
    sweeps.run_sweep(make_settings(tmp_path, *axes, parallel=3))
    assert {*started_names(pretended)[:2]} == {
        "temperature=0.1,linear.momentum=0.5",
        "temperature=0.2,linear.momentum=0.5",
    }
    running = []
    for event, name in pretended.log:
        run = name.split(",")[0]
        if event == "start":
            assert run not in running
            running.append(run)
        else:
            running.remove(run)
    assert len(started_names(pretended)) == 4


def test_a_signal_ends_cells_that_can_go_on(pretended, tmp_path, capsys):
    pretended.signal = signal.SIGTERM
    settings = make_settings(tmp_path, "temperature=0.1,0.2")
    with pytest.raises(SystemExit) as raised:
        sweeps.run_sweep(settings)
    assert raised.value.code == preemption.EXIT_CODE
    expected = [(event, "temperature=0.1") for event in ("start", "end")]
    assert pretended.log == expected
    assert statuses(read(tmp_path)) == ["pending", "pending"]
    message = "the same command, without --overwrite, goes on"
    assert message in capsys.readouterr().out
    pretended.signal = None
    assert statuses(sweeps.run_sweep(settings)) == ["finished", "finished"]


def test_a_metric_that_no_result_has_is_named(pretended, tmp_path):
    settings = make_settings(tmp_path, "temperature=0.1", metric="linear.top1")
    message = (
        "--metric must be one of linear.top_1, method.top_1, got linear.top1"
    )
    with pytest.raises(ValueError, match=message):
        sweeps.run_sweep(settings)
    pretended.log.clear()
    sweeps.run_sweep(dataclasses.replace(settings, metric="linear.top_1"))
    assert not pretended.log


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="needs Linux")
def test_processes_at_a_time_have_cores_of_their_own(tmp_path, monkeypatch):
    """Real processes, ended before they do anything."""
    usable_cores = sorted(os.sched_getaffinity(0))
    with monkeypatch.context() as patch:
        patch.setattr(os, "sched_getaffinity", lambda _: {0, 2, 3, 5, 9})
        assert processes.shares(2) == [{0, 2}, {3, 5}]
        assert processes.shares(1) == [None]
        assert processes.shares(6) == [None] * 6  # too few cores
    shares = processes.shares(len(usable_cores))
    cells = grid.list_cells(make_settings(tmp_path, "seed=0,1"))
    for cell, share in zip(cells, shares, strict=False):
        cell.record()
        with processes.start(cell, cell.training, True, share) as process:
            try:
                process_cores = os.sched_getaffinity(process.pid)
                kernel = pathlib.Path(f"/proc/{process.pid}")
                badness = (kernel / "oom_score_adj").read_text()
                while not (variables := (kernel / "environ").read_bytes()):
                    assert process.poll() is None  # it begins
            finally:
                process.kill()
        assert process_cores == (share or set(usable_cores))
        assert badness == "1000\n"
        assert b"TF_FORCE_GPU_ALLOW_GROWTH=true" in variables.split(b"\0")
    if len(usable_cores) > 1:
        assert shares == [{core} for core in usable_cores]
