"""Readers beside a training that prunes its checkpoints."""

import os
import shutil

import numpy as np
import pytest

from supcon_tf import config, evaluation, run_files
from supcon_tf.training import checkpoints, runs
from tests import processes


def add(run, step):
    """Saves the newest checkpoint of a run again, as one of another step."""
    newest = run.latest_checkpoint()
    path = run_files.path_of(run.checkpoints, step)
    shutil.copytree(newest, path)


def test_a_checkpoint_that_is_read_stays(copy_run, tmp_path):
    run = copy_run(tmp_path / "run")
    opened = runs.open_run(run.path)
    assert opened.checkpoint.endswith("step-00000006")
    add(run, 7)
    add(run, 8)
    checkpoints.prune(run.checkpoints, 1)
    assert run_files.steps_in(run.checkpoints) == [6, 8]
    weights = opened.encoder.get_weights()
    assert opened.identity["checkpoint"] == "step-00000006"
    newest = runs.open_run(run.path).encoder.get_weights()
    for weight, other in zip(weights, newest, strict=True):
        np.testing.assert_array_equal(weight, other)
    del opened  # and what it holds
    checkpoints.prune(run.checkpoints, 1)
    assert run_files.steps_in(run.checkpoints) == [8]
    assert [path.name for path in run.checkpoints.iterdir()] == [
        "step-00000008"
    ]


def test_one_that_is_pruned_as_it_is_opened_is_not_taken(copy_run, tmp_path):
    run = copy_run(tmp_path / "run")
    add(run, 7)
    offered = iter([6, 7])

    def newest():
        step = next(offered)
        if step == 6:
            run_files.path_of(run.checkpoints, 6).rmtree()
        return str(run_files.path_of(run.checkpoints, step))

    path, holds = checkpoints.hold(newest)
    assert path.endswith("step-00000007") and holds is not None
    os.close(holds)
    with pytest.raises(ValueError, match="x must be there, but was removed"):
        checkpoints.hold(lambda: str(tmp_path / "x"))


def test_one_that_is_gone_all_the_same_is_said(copy_run, tmp_path):
    """As on a file system without locks."""
    run = copy_run(tmp_path / "run")
    opened = runs.open_run(run.path)
    shutil.rmtree(opened.checkpoint)
    message = "step-00000006 must be there, but was removed since"
    for read in (lambda: opened.encoder, lambda: opened.identity):
        with pytest.raises(ValueError, match=message):
            read()


@pytest.mark.slow
def test_evaluate_beside_a_training_that_saves_every_step(tmp_path):
    """Every evaluation is of one checkpoint, whatever is pruned meanwhile."""
    training = processes.start(
        tmp_path / "run",
        *("--dataset=digits", "--epochs=1000"),
        *("--checkpoint_steps=1", "--keep_checkpoints=1"),
    )
    try:
        processes.wait_until(
            lambda: processes.last_step(tmp_path / "run"), [training]
        )
        settings = config.EvaluateSettings(
            str(tmp_path / "run"), sample_images=0, plotted_images=0
        )
        for _ in range(3):
            measured = evaluation.evaluate(settings)
            name = measured["made_of"]["encoder"]["checkpoint"]
            assert measured["encoder"].endswith(name)
    finally:
        training.kill()
        training.wait()
