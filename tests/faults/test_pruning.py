"""Readers beside a training that prunes its checkpoints."""

import os
import shutil

import numpy as np
import pytest

from supcon_tf import run_files
from supcon_tf.training import checkpoints, runs


def add(run, step):
    """Copies the newest checkpoint of a run to another step."""
    newest = run.latest_checkpoint()
    path = run_files.path_of(run.checkpoints, step)
    shutil.copytree(newest, path)


def test_a_checkpoint_with_a_reader_stays(copy_run, tmp_path):
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


def test_a_checkpoint_pruned_while_opened_is_passed_over(copy_run, tmp_path):
    run = copy_run(tmp_path / "run")
    add(run, 7)
    offered = iter([6, 7])

    def newest():
        step = next(offered)
        if step == 6:
            run_files.path_of(run.checkpoints, 6).rmtree()
        return str(run_files.path_of(run.checkpoints, step))

    path, descriptor = checkpoints.hold(newest)
    assert path.endswith("step-00000007") and descriptor is not None
    os.close(descriptor)
    with pytest.raises(ValueError, match="x must be there, but was removed"):
        checkpoints.hold(lambda: str(tmp_path / "x"))


def test_a_missing_checkpoint_is_named(copy_run, tmp_path):
    """As on a file system without locks."""
    run = copy_run(tmp_path / "run")
    opened = runs.open_run(run.path)
    shutil.rmtree(opened.checkpoint)
    message = "step-00000006 must be there, but was removed since"
    for read in (lambda: opened.encoder, lambda: opened.identity):
        with pytest.raises(ValueError, match=message):
            read()
