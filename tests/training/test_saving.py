"""Runs that are killed and go on: real processes, real signals.

Every process is tools/pretrain.py with the same command; only signals differ.
"""

from __future__ import annotations

import dataclasses
import pathlib
import random
import shutil
import signal
import time

import numpy as np
import pytest
import tensorflow as tf

from supcon_tf import config, run_files, training
from supcon_tf.training import preemption
from tests import processes

FLAGS = ("--deterministic", "--epochs=2", "--checkpoint_steps=4")


def steps(run_dir):
    return run_files.steps_in(run_files.RunDirectory(run_dir).checkpoints)


def start(run_dir, **options):
    return processes.start(run_dir, *FLAGS, **options)


def kill_after(run_dir, process, more_steps):
    """SIGKILL between two checkpoints, at whatever moment that is."""
    end = processes.last_step(run_dir) + more_steps
    processes.wait_until(lambda: processes.last_step(run_dir) >= end, [process])
    process.send_signal(signal.SIGKILL)
    process.communicate()


def kill_while_saving(run_dir, count):
    """SIGKILL when the files of a checkpoint are there, but not its name."""
    process = start(run_dir, signalled=(signal.SIGKILL, count))
    processes.end(process, -signal.SIGKILL)
    (torn,) = (run_dir / "checkpoints").glob(".partial*")
    assert list(torn.glob("variables*"))


def values(run_dir):
    """Every tensor of the newest checkpoint: weights, optimizer."""
    newest = run_files.RunDirectory(run_dir).latest_checkpoint()
    reader = tf.train.load_checkpoint(f"{newest}/variables")
    return {
        name: reader.get_tensor(name)
        for name in reader.get_variable_to_shape_map()
        if name != "_CHECKPOINTABLE_OBJECT_GRAPH"
    }


def figures(run_dir):
    """What metrics.jsonl says, without what is measured by the clock."""
    by_the_clock = ("images/s", "data_wait")
    return [
        {name: x for name, x in line.items() if name not in by_the_clock}
        for line in run_files.RunDirectory(run_dir).metrics()
    ]


def assert_same_run(one, other):
    assert steps(one)[-1] == steps(other)[-1] == 44
    expected, found = values(one), values(other)
    assert expected.keys() == found.keys() and len(expected) > 30
    for name, value in expected.items():
        np.testing.assert_array_equal(value, found[name], err_msg=name)
    assert figures(one) == figures(other)
    assert [line["epoch"] for line in figures(one)] == [1, 2]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    run_dir = tmp_path_factory.mktemp("undisturbed") / "run"
    processes.end(start(run_dir, fresh=True))
    return run_dir


def test_a_run_that_is_killed_and_stopped_ends_bit_identical(
    undisturbed, tmp_path
):
    run_dir = tmp_path / "run"
    kill_while_saving(run_dir, 2)
    assert steps(run_dir) == [4]
    assert preemption.EXIT_CODE == 138
    for number, saved in ((signal.SIGTERM, 13), (signal.SIGINT, 21)):
        process = start(run_dir, signalled=(number, 2))
        output = processes.end(process, preemption.EXIT_CODE)
        assert f"preempted    saved at step {saved}; --resume goes" in output
        assert "Traceback" not in output
        assert steps(run_dir)[-1] == saved
    output = processes.end(start(run_dir))
    assert f"resumed      {run_dir}/checkpoints/step-{saved:08}" in output
    assert_same_run(undisturbed, run_dir)


@pytest.mark.slow
def test_five_kills_end_bit_identical(undisturbed, tmp_path):
    random.seed(time.time_ns())
    run_dir = tmp_path / "run"
    for kill in range(5):
        if kill % 2:
            kill_while_saving(run_dir, random.randint(1, 3))
        else:
            kill_after(run_dir, start(run_dir), random.randint(1, 6))
    processes.end(start(run_dir))
    assert_same_run(undisturbed, run_dir)


def pretrain(tiny_settings, run_dir, **overrides):
    return training.pretrain(
        tiny_settings(run_dir, checkpoint_every=1, **overrides)
    )


def test_a_finished_run_has_nothing_to_go_on_with(
    tiny_settings, tmp_path, capsys
):
    run = pretrain(tiny_settings, tmp_path / "run", resume=True)
    before = values(run.path)
    capsys.readouterr()
    pretrain(tiny_settings, tmp_path / "run", resume=True)
    printed = capsys.readouterr().out
    assert f"resumed      {run.latest_checkpoint()}, 2 epochs done" in printed
    assert "Epoch" not in printed
    for name, value in before.items():
        np.testing.assert_array_equal(value, values(run.path)[name])


def test_what_does_not_belong_to_a_run_is_refused(tiny_settings, tmp_path):
    run = pretrain(tiny_settings, tmp_path / "run")
    for overrides, message in (
        ({"temperature": 0.2}, r"got --temperature=0.2 \(was 0.1\); --flagfil"),
        ({"epochs": 1}, r"got --epochs=1 \(was 2\)"),
        ({"test_fraction": 0.3}, "got --test_fraction=0.3"),
    ):
        with pytest.raises(ValueError, match=message):
            pretrain(tiny_settings, run.path, resume=True, **overrides)
    with pytest.raises(ValueError, match="holds a run already"):
        pretrain(tiny_settings, run.path)


def test_other_data_is_refused(tiny_settings, image_folder, tmp_path):
    data_dir = tmp_path / "images"
    shutil.copytree(image_folder, data_dir)
    run = pretrain(tiny_settings, tmp_path / "run", data_dir=str(data_dir))
    for path in sorted(data_dir.glob("train/*/*"))[::3]:
        path.unlink()
    message = r"got 0 others and 16 missing: train/bright/00.png, .*, \.\.\.$"
    with pytest.raises(ValueError, match=message):
        pretrain(tiny_settings, run.path, data_dir=str(data_dir), resume=True)
    for split in ("train", "test"):
        (data_dir / split / "dark").rename(data_dir / split / "gloomy")
    with pytest.raises(ValueError, match=r"got -dark \+gloomy"):
        pretrain(tiny_settings, run.path, data_dir=str(data_dir), resume=True)


def test_a_finished_run_can_be_given_more_epochs(
    tiny_settings, tmp_path, capsys
):
    """As if it had been begun with so many, from here on."""
    run = pretrain(tiny_settings, tmp_path / "run", warmup_epochs=None)
    assert run.recorded(config.PretrainSettings).warmup_epochs == 0.2
    longer = {"epochs": 4, "warmup_epochs": None, "resume": True}
    pretrain(tiny_settings, run.path, **longer)
    assert "extended     from 2 to 4 epochs: " in capsys.readouterr().out
    recorded = run.recorded(config.PretrainSettings)
    assert (recorded.epochs, recorded.warmup_epochs) == (4, 0.2)
    assert steps(run.path)[-1] == 12
    assert [line["epoch"] for line in figures(run.path)] == [1, 2, 3, 4]
    rates = [line["learning_rate"] for line in figures(run.path)]
    # The first half of its cosine was that of 2 epochs, the second is that of
    # 4: it goes up once, to where such a run would be, and then to 0.
    assert max(rates[1], rates[3]) < rates[2] < rates[0]
    with pytest.raises(ValueError, match=r"got --epochs=3 \(was 4\)"):
        pretrain(tiny_settings, run.path, epochs=3, resume=True)


def test_a_damaged_checkpoint_stops_a_run_that_would_go_on(
    tiny_settings, tmp_path
):
    run = pretrain(tiny_settings, tmp_path / "run")
    newest = pathlib.Path(run.latest_checkpoint())
    (newest / "variables.index").write_bytes(b"torn")
    with pytest.raises(ValueError, match=r"index \(changed\). Delete it to g"):
        pretrain(tiny_settings, run.path, resume=True)
    shutil.rmtree(newest)
    pretrain(tiny_settings, run.path, resume=True)
    assert run.latest_checkpoint() == str(newest)


def test_checkpoints_are_kept_as_asked(tiny_settings, tmp_path):
    kept = {"keep_checkpoints": 2, "keep_every": 3}
    run = pretrain(tiny_settings, tmp_path / "run", epochs=7, **kept)
    assert steps(run.path) == [9, 18, 21]


def test_a_linear_stage_goes_on_where_it_was(tiny_settings, tmp_path):
    """Interrupted inside an epoch, it ends with the same classifier."""
    run = pretrain(tiny_settings, tmp_path / "run", epochs=0)
    ends = []
    for name in ("whole", "interrupted"):
        kept = {"checkpoint_steps": 2, "keep_checkpoints": 9}
        chosen = config.LinearSettings(
            str(run.path), name=name, epochs=3, batch_size=16, **kept
        )
        stage = training.train_linear(chosen)
        if name == "interrupted":
            for step in steps(stage.path)[2:]:
                shutil.rmtree(run_files.path_of(stage.checkpoints, step))
            assert steps(stage.path) == [2, 4]  # of 3 steps per epoch
            training.train_linear(dataclasses.replace(chosen, resume=True))
        ends.append(values(stage.path))
    for name, value in ends[0].items():
        np.testing.assert_allclose(value, ends[1][name], rtol=1e-5, atol=1e-6)
