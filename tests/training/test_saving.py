"""Runs that are killed and go on: real processes, real signals.

Every process is tools/pretrain.py with the same command; only signals differ.
"""

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

FLAGS = (
    "--deterministic",
    "--epochs=2",
    "--batch_size=120",
    "--checkpoint_steps=4",
)


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
    (torn,) = (run_dir / "checkpoints").glob(".*.partial")
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
    by_the_clock = ("examples/s", "data_wait")
    return [
        {
            name: value
            for name, value in line.items()
            if name not in by_the_clock
        }
        for line in run_files.RunDirectory(run_dir).metrics()
    ]


def assert_same_run(run_dir, other):
    assert steps(run_dir)[-1] == steps(other)[-1] == 22
    expected, results = values(run_dir), values(other)
    assert expected.keys() == results.keys() and len(expected) > 30
    for name, value in expected.items():
        np.testing.assert_array_equal(value, results[name], err_msg=name)
    assert figures(run_dir) == figures(other)
    assert [line["epoch"] for line in figures(run_dir)] == [1, 2]


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
    # The second ends inside of the second epoch of 11 steps.
    for number, count, saved in (
        (signal.SIGTERM, 1, 9),
        (signal.SIGINT, 3, 17),
    ):
        process = start(run_dir, signalled=(number, count))
        output = processes.end(process, preemption.EXIT_CODE)
        assert f"preempted    saved at step {saved}; --resume goes" in output
        assert "Traceback" not in output
        assert steps(run_dir)[-1] == saved
    output = processes.end(start(run_dir))
    assert f"resumed      {run_dir}/checkpoints/step-{saved:08}" in output
    assert_same_run(undisturbed, run_dir)


@pytest.mark.slow
def test_mixed_images_go_on_bit_identical(tmp_path):
    """What is mixed with what is a function of the step alone."""
    mixed = ("--mixing=mixup", "--objective=supcon+ce", "--positives=cosine")
    runs = [tmp_path / name for name in ("whole", "stopped")]
    processes.end(processes.start(runs[0], *FLAGS, *mixed))
    signalled = (signal.SIGTERM, 1)
    process = processes.start(runs[1], *FLAGS, *mixed, signalled=signalled)
    processes.end(process, preemption.EXIT_CODE)
    assert steps(runs[1])[-1] == 5
    processes.end(processes.start(runs[1], *FLAGS, *mixed))
    assert_same_run(*runs)


@pytest.mark.slow
def test_five_kills_end_bit_identical(undisturbed, tmp_path):
    random.seed(time.time_ns())
    run_dir = tmp_path / "run"
    for kill in range(5):
        if kill % 2:
            kill_while_saving(run_dir, random.randint(1, 2))
        else:
            kill_after(run_dir, start(run_dir), random.randint(1, 3))
    processes.end(start(run_dir))
    assert_same_run(undisturbed, run_dir)


EACH = {"checkpoint_every": 1}


@pytest.fixture(scope="module")
def trained(tiny_settings):
    """A run of two epochs of three steps, each saved; tests use copies."""
    return training.pretrain(tiny_settings(warmup_epochs=None, **EACH))


@pytest.fixture
def run(trained, tmp_path):
    shutil.copytree(trained.path, tmp_path / "run")
    return run_files.RunDirectory(tmp_path / "run")


@pytest.fixture
def resume(run, tiny_settings):
    """Goes on with the copy."""

    def go_on(**overrides):
        options = {"warmup_epochs": None, "resume": True, **EACH}
        return training.pretrain(tiny_settings(run.path, **options | overrides))

    return go_on


def test_a_finished_run_has_nothing_to_go_on_with(run, resume, capsys):
    before = values(run.path)
    resume()
    printed = capsys.readouterr().out
    assert f"resumed      {run.latest_checkpoint()}, 2 epochs done" in printed
    assert "\nepoch " not in printed
    for name, value in before.items():
        np.testing.assert_array_equal(value, values(run.path)[name])


def test_what_does_not_belong_to_a_run_is_refused(
    run, resume, image_folder, tmp_path
):
    for overrides, message in (
        ({"temperature": 0.2}, r"got --temperature=0.2 \(was 0.1\); --flagfil"),
        ({"resume": False}, "holds a run already"),
    ):
        with pytest.raises(ValueError, match=message):
            resume(**overrides)
    images = tmp_path / "images"
    shutil.copytree(image_folder, images)
    for path in sorted(images.glob("train/*/*"))[::3]:
        path.unlink()
    message = r"got 0 others and 16 missing: train/bright/00.png, .*, \.\.\.$"
    with pytest.raises(ValueError, match=message):
        resume(data_dir=str(images))
    for split in ("train", "test"):
        (images / split / "dark").rename(images / split / "gloomy")
    with pytest.raises(ValueError, match=r"got -dark \+gloomy"):
        resume(data_dir=str(images))


@pytest.mark.slow
def test_a_finished_run_can_be_given_more_epochs(run, resume, capsys):
    """As if it had been begun with so many, from here on."""
    assert run.recorded(config.PretrainSettings).warmup_epochs == 0.2
    resume(epochs=4)
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
        resume(epochs=3)


@pytest.mark.slow
def test_a_damaged_checkpoint_stops_a_run_that_would_go_on(run, resume):
    newest = pathlib.Path(run.latest_checkpoint())
    (newest / "variables.index").write_bytes(b"torn")
    with pytest.raises(ValueError, match=r"index \(changed\). Delete it to g"):
        resume()
    shutil.rmtree(newest)
    resume()
    assert run.latest_checkpoint() == str(newest)


@pytest.mark.slow
def test_a_linear_stage_goes_on_where_it_was(run):
    """Interrupted inside an epoch, it ends with the same classifier.

    And keeps the checkpoints that it is asked to.
    """
    ends = []
    for name in ("whole", "interrupted"):
        settings = config.LinearSettings(
            str(run.path),
            name=name,
            epochs=3,
            batch_size=16,
            checkpoint_every=2,
            checkpoint_steps=2,
            keep_checkpoints=2,
            keep_every=2,
        )
        stage = training.train_linear(settings)
        assert steps(stage.path) == [6, 8, 9]  # of 3 steps per epoch
        if name == "interrupted":
            shutil.rmtree(stage.latest_checkpoint())
            training.train_linear(dataclasses.replace(settings, resume=True))
        ends.append(values(stage.path))
    for name, value in ends[0].items():
        np.testing.assert_allclose(value, ends[1][name], rtol=1e-5, atol=1e-6)
