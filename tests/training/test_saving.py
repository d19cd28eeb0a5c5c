"""Runs that end early and are resumed: real processes, real signals."""

import dataclasses
import shutil
import signal
import types

import numpy as np
import pytest
from etils import epath

from supcon_tf import config, models, run_files, training
from supcon_tf import losses as supcon_losses
from supcon_tf.training import (
    checkpoints,
    jobs,
    loop,
    preemption,
    saving,
    stages,
)
from tests import processes, workers

FLAGS = (
    *("--epochs=2", "--batch_size=120", "--checkpoint_steps=4"),
    # Otherwise the loss of so small a run depends on the last bits, which
    # differ with the processor, the threads and the number of workers.
    *("--noprojection_batch_norm", "--learning_rate=0.1"),
)


def steps(run_dir):
    return run_files.steps_in(run_files.RunDirectory(run_dir).checkpoints)


def start(run_dir, *flags, **options):
    return processes.start(run_dir, *FLAGS, *flags, **options)


def start_pair(run_dir, *flags, **options):
    """Two workers; the options are those of the second."""
    flags = "--strategy=multi_worker", *flags
    first, second = workers.environments(2)
    return [
        start(run_dir, *flags, environment=first),
        start(run_dir, *flags, environment=second, **options),
    ]


def kill_while_saving(run_dir, count):
    """SIGKILL when the files of a checkpoint exist, but not its name."""
    process = start(
        run_dir, "--deterministic", signalled=(signal.SIGKILL, count)
    )
    processes.end(process, -signal.SIGKILL)
    (partial,) = (run_dir / "checkpoints").glob(".*.partial")
    assert list(partial.glob("variables*"))


def kill_after(run_dir, process, more_steps):
    """SIGKILL between two checkpoints."""
    last = processes.last_step(run_dir) + more_steps
    processes.wait_until(
        lambda: processes.last_step(run_dir) >= last, [process]
    )
    process.send_signal(signal.SIGKILL)
    process.communicate()


def figures(run_dir):
    """The lines of metrics.jsonl, without the figures of the clock."""
    clock = {"examples/s", "data_wait"}
    return [
        {name: line[name] for name in line.keys() - clock}
        for line in run_files.RunDirectory(run_dir).metrics()
    ]


def losses(run_dir):
    return [line["loss"] for line in figures(run_dir)]


def assert_same_run(run_dir, other):
    assert steps(run_dir)[-1] == steps(other)[-1] == 22
    expected, actual = processes.variables(run_dir), processes.variables(other)
    assert expected.keys() == actual.keys() and len(expected) > 30
    for name, value in expected.items():
        np.testing.assert_array_equal(value, actual[name], err_msg=name)
    assert figures(run_dir) == figures(other)
    assert [line["epoch"] for line in figures(run_dir)] == [1, 2]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    run_dir = tmp_path_factory.mktemp("undisturbed") / "run"
    processes.end(start(run_dir, "--deterministic"))
    return run_dir


def test_a_killed_run_ends_bit_identical(undisturbed, tmp_path):
    run_dir = tmp_path / "run"
    kill_while_saving(run_dir, 2)
    assert steps(run_dir) == [4]
    assert (run_dir / ".training.lock").exists()
    output = processes.end(start(run_dir, "--deterministic"))
    assert f"resumed      {run_dir}/checkpoints/step-00000004" in output
    assert_same_run(undisturbed, run_dir)
    assert not (run_dir / ".training.lock").exists()


def test_two_workers_save_the_same_step_and_train_like_one_device(
    undisturbed, tmp_path
):
    """SIGTERM to one worker; one device resumes the run of both."""
    run_dir = tmp_path / "run"
    pair = start_pair(run_dir, signalled=(signal.SIGTERM, 1))
    outputs = [processes.end(process, preemption.EXIT_CODE) for process in pair]
    for output in outputs:
        assert "2 worker(s)" in output
        assert "preempted    saved at step 5; --resume goes on" in output
    assert steps(run_dir) == [4, 5]
    run = run_files.RunDirectory(run_dir)
    recorded = run.recorded(config.PretrainSettings)
    one_device = {"strategy": "one_device", "resume": True}
    training.pretrain(dataclasses.replace(recorded, **one_device))
    assert losses(run_dir) == pytest.approx(losses(undisturbed), rel=1e-3)


@pytest.mark.slow
def test_signals_and_kills_end_bit_identical(undisturbed, tmp_path):
    """Of 22 steps, two signals take 9; a kill while saving takes none."""
    run_dir = tmp_path / "run"
    for number, step in ((signal.SIGTERM, 5), (signal.SIGINT, 9)):
        process = start(run_dir, "--deterministic", signalled=(number, 1))
        output = processes.end(process, preemption.EXIT_CODE)
        assert "Traceback" not in output
        assert f"preempted    saved at step {step}; --resume" in output
    for count in (1, 2):
        kill_while_saving(run_dir, count)
    kill_after(run_dir, start(run_dir, "--deterministic"), 1)
    processes.end(start(run_dir, "--deterministic", fresh=True))
    assert_same_run(undisturbed, run_dir)


@pytest.mark.slow
def test_a_lost_worker_ends_the_other_for_a_restart(undisturbed, tmp_path):
    run_dir = tmp_path / "run"
    for lost in (1, 0):
        # `fresh`: the workers agree on the order of their collectives, whatever
        # the seed of hashes.
        pair = start_pair(run_dir, fresh=True)
        kill_after(run_dir, pair[lost], 4)
        output = processes.end(pair[1 - lost], preemption.EXIT_CODE)
        assert "lost         another worker" in output
    for output in map(processes.end, start_pair(run_dir)):
        assert "resumed      " in output
    assert losses(run_dir) == pytest.approx(losses(undisturbed), rel=1e-3)


@pytest.mark.slow
def test_a_worker_does_not_wait_for_a_chief_that_refuses(undisturbed):
    chief, other = start_pair(undisturbed, "--temperature=0.5")
    assert "error: --resume must come with" in processes.end(chief, 1)
    output = processes.end(other, preemption.EXIT_CODE)
    assert "lost         another worker" in output


def make_saver(folder, epoch_steps):
    model = models.ProjectionHead(2, ())
    model.build((None, 2))
    model.compile("sgd", supcon_losses.SupConLoss())
    settings = types.SimpleNamespace(
        epochs=1,
        checkpoint_steps=None,
        checkpoint_every=1,
        keep_checkpoints=1,
        keep_every=None,
    )
    start = checkpoints.Progress(0, epoch_steps)
    saver = saving.Saver(folder, {"model": model}, settings, start)
    saver.set_model(model)
    saver.on_epoch_begin(0)
    return saver


def test_workers_wait_for_the_files_of_the_chief(tmp_path, monkeypatch):
    folder, saved = epath.Path(tmp_path), []
    monkeypatch.setattr(
        saving.devices,
        "wait_for_all",
        lambda strategy: saved.append(run_files.steps_in(folder)),
    )
    make_saver(folder, epoch_steps=2).on_epoch_end(0)
    assert saved == [[2]]


def test_a_step_whose_figures_failed_is_not_saved_as_the_one_before(tmp_path):
    """The weights are of the last step of the epoch."""
    folder = epath.Path(tmp_path)
    saver = make_saver(folder, epoch_steps=3)
    for batch in range(2):
        saver.on_train_batch_end(batch)
    assert saver.save_last() == 2 and run_files.steps_in(folder) == [2]
    saver.on_train_batch_end(2)
    assert saver.save_last() == 2
    saver = make_saver(epath.Path(tmp_path / "other"), epoch_steps=2)
    for batch in range(2):
        saver.on_train_batch_end(batch)
    assert saver.save_last() == 0
    saver.on_epoch_end(0)
    assert run_files.steps_in(saver.directory) == [2]


@pytest.fixture
def run(copy_run, tmp_path):
    return copy_run(tmp_path / "run")


@pytest.fixture
def resume(run):
    recorded = run.recorded(config.PretrainSettings)

    def pretrain(**overrides):
        settings = {"resume": True, **overrides}
        return training.pretrain(dataclasses.replace(recorded, **settings))

    return pretrain


def test_a_finished_run_trains_no_further(run, resume, capsys):
    before = processes.variables(run.path)
    resume()
    printed = capsys.readouterr().out
    assert f"resumed      {run.latest_checkpoint()}, 2 epochs done" in printed
    assert "\nepoch " not in printed
    for name, value in before.items():
        np.testing.assert_array_equal(
            value, processes.variables(run.path)[name]
        )


def test_other_settings_and_data_are_refused(run, image_folder, tmp_path):
    recorded = run.recorded(config.PretrainSettings)

    def open_again(**overrides):
        settings = dataclasses.replace(recorded, resume=True, **overrides)
        job = jobs.prepare(settings, stages._splits)
        with loop.open_run(job):
            raise AssertionError("the run is open")

    changed = r"got --temperature=0.2 \(was 0.1\); --flagfile"
    with pytest.raises(ValueError, match=changed):
        open_again(temperature=0.2)
    images = tmp_path / "images"
    shutil.copytree(image_folder, images)
    for path in sorted(images.glob("train/*/*"))[::3]:
        path.unlink()
    missing = r"got 0 others and 16 missing: train/bright/00.png, .*\.\.\.; res"
    with pytest.raises(ValueError, match=missing):
        open_again(data_dir=str(images))
    for split in ("train", "test"):
        (images / split / "dark").rename(images / split / "gloomy")
    with pytest.raises(ValueError, match=r"got -dark \+gloomy"):
        open_again(data_dir=str(images))


@pytest.mark.slow
def test_more_epochs_extend_the_schedule_and_no_setting(run, resume, capsys):
    resume(epochs=4, warmup_epochs=None, learning_rate=None)
    assert "extended     from 2 to 4 epochs: " in capsys.readouterr().out
    recorded = run.recorded(config.PretrainSettings)
    assert (recorded.epochs, recorded.warmup_epochs) == (4, 1.0)
    assert steps(run.path)[-1] == 12
    assert [line["epoch"] for line in figures(run.path)] == [1, 2, 3, 4]
    rates = [line["learning_rate"] for line in figures(run.path)]
    # The first half is a cosine of 2 epochs, the second that of 4 epochs.
    assert max(rates[1], rates[3]) < rates[2] < rates[0]
    with pytest.raises(ValueError, match=r"got --epochs=3 \(was 4\)"):
        resume(epochs=3)


@pytest.mark.slow
def test_a_linear_stage_resumes_inside_an_epoch(run):
    """It ends with the same classifier, and keeps the asked checkpoints."""
    classifiers = []
    for name in ("whole", "interrupted"):
        settings = config.LinearSettings(
            str(run.path),
            name=name,
            epochs=3,  # of 3 steps
            batch_size=16,
            checkpoint_every=2,
            checkpoint_steps=2,
            keep_checkpoints=2,
            keep_every=2,
        )
        stage = training.train_linear(settings)
        assert steps(stage.path) == [6, 8, 9]
        if name == "interrupted":
            shutil.rmtree(stage.latest_checkpoint())
            training.train_linear(dataclasses.replace(settings, resume=True))
        classifiers.append(processes.variables(stage.path))
    whole, interrupted = classifiers
    for name, value in whole.items():
        np.testing.assert_allclose(interrupted[name], value, 1e-5, 1e-6)
