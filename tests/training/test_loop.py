"""Runs of two workers: real processes, real signals."""

from __future__ import annotations

import json
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from supcon_tf.training import checkpoints, preemption, run_directory
from tests import workers

ROOT = pathlib.Path(__file__).parents[2]
FLAGS = (
    "--resume",
    "--architecture=vgg8",
    "--width=0.05",
    "--hidden_dims=16",
    "--projection_dim=8",
    "--batch_size=64",
    "--epochs=2",
    "--warmup_epochs=1",
    "--learning_rate=0.5",
    "--checkpoint_steps=3",
)


def start(run_dir, strategy, environment=None):
    return subprocess.Popen(
        [
            sys.executable,
            str(ROOT / "tools" / "pretrain.py"),
            f"--run_dir={run_dir}",
            f"--strategy={strategy}",
            *FLAGS,
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=ROOT,
        env=environment,
    )


def start_two(run_dir):
    return [
        start(run_dir, "multi_worker", environment)
        for environment in workers.environments(2)
    ]


def end_of(processes):
    """What each printed, and its exit code."""
    ends = []
    for process in processes:
        output, _ = process.communicate(timeout=300)
        ends.append((output, process.returncode))
    return ends


def steps(run_dir):
    return checkpoints.steps_in(run_directory.RunDirectory(run_dir).checkpoints)


def wait_for_step(run_dir, step, processes):
    until = time.monotonic() + 180
    while max(steps(run_dir), default=0) < step:
        for process in processes:
            assert process.poll() is None, process.communicate()[0][-3000:]
        assert time.monotonic() < until
        time.sleep(0.02)


def losses(run_dir):
    lines = (pathlib.Path(run_dir) / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line)["loss"] for line in lines]


@pytest.fixture(scope="module")
def one_device(tmp_path_factory):
    run_dir = tmp_path_factory.mktemp("one") / "run"
    ((output, code),) = end_of([start(run_dir, "one_device")])
    assert code == 0, output[-3000:]
    return run_dir


def test_two_workers_stop_together_and_end_like_one_device(
    one_device, tmp_path
):
    """SIGTERM to one of them: both save the same step, and go on from it."""
    run_dir = tmp_path / "run"
    processes = start_two(run_dir)
    wait_for_step(run_dir, 6, processes)
    processes[1].send_signal(signal.SIGTERM)
    for output, code in end_of(processes):
        assert code == preemption.EXIT_CODE, output[-3000:]
        assert f"preempted    saved at step {steps(run_dir)[-1]};" in output
    for output, code in end_of(start_two(run_dir)):
        assert code == 0, output[-3000:]
        assert "resumed      " in output and "2 worker(s)" in output
    assert steps(run_dir)[-1] == steps(one_device)[-1] == 44
    assert losses(run_dir) == pytest.approx(losses(one_device), rel=1e-3)


@pytest.mark.slow
def test_a_worker_that_is_lost_ends_the_other_to_be_started_again(
    one_device, tmp_path
):
    run_dir = tmp_path / "run"
    for killed in (1, 0):
        processes = start_two(run_dir)
        begun = max(steps(run_dir), default=0)
        wait_for_step(run_dir, begun + 6, processes)
        processes[killed].send_signal(signal.SIGKILL)
        ends = end_of(processes)
        output, code = ends[1 - killed]
        assert code == preemption.EXIT_CODE, output[-3000:]
        assert "lost         another worker" in output
    for output, code in end_of(start_two(run_dir)):
        assert code == 0, output[-3000:]
    assert losses(run_dir) == pytest.approx(losses(one_device), rel=1e-3)
