"""Runs of two workers: real processes, real signals."""

import signal

import pytest

from supcon_tf import run_files
from supcon_tf.training import preemption
from tests import processes, workers

FLAGS = (
    *("--epochs=1", "--checkpoint_steps=2"),
    # With it the loss of a run this small is at the mercy of the last bits,
    # which differ with the number of threads.
    "--noprojection_batch_norm",
)


def start_two(run_dir, **options):
    """Two workers; options are those of the second."""
    return [
        processes.start(
            run_dir,
            "--strategy=multi_worker",
            *FLAGS,
            environment=environment,
            **(options if index == 1 else {}),
        )
        for index, environment in enumerate(workers.environments(2))
    ]


def wait_for_step(run_dir, step, pair):
    processes.wait_until(lambda: processes.last_step(run_dir) >= step, pair)


def losses(run_dir):
    return [line["loss"] for line in run_files.RunDirectory(run_dir).metrics()]


@pytest.fixture(scope="module")
def one_device(tmp_path_factory):
    run_dir = tmp_path_factory.mktemp("one") / "run"
    processes.end(processes.start(run_dir, *FLAGS))
    return run_dir


def test_two_workers_stop_together_and_end_like_one_device(
    one_device, tmp_path
):
    """SIGTERM to one of them: both save the same step, and go on from it."""
    run_dir = tmp_path / "run"
    pair = start_two(run_dir, signalled=(signal.SIGTERM, 2), fresh=True)
    outputs = [processes.end(process, preemption.EXIT_CODE) for process in pair]
    assert processes.last_step(run_dir) == 5  # after it wrote that of step 4
    saved = "preempted    saved at step 5;"
    assert all(saved in output for output in outputs)
    for output in [processes.end(process) for process in start_two(run_dir)]:
        assert "resumed      " in output and "2 worker(s)" in output
    assert processes.last_step(run_dir) == 22
    assert processes.last_step(one_device) == 22
    assert losses(run_dir) == pytest.approx(losses(one_device), rel=1e-3)


@pytest.mark.slow
def test_a_worker_that_is_lost_ends_the_other_to_be_started_again(
    one_device, tmp_path
):
    run_dir = tmp_path / "run"
    for killed in (1, 0):
        pair = start_two(run_dir)
        wait_for_step(run_dir, processes.last_step(run_dir) + 4, pair)
        pair[killed].send_signal(signal.SIGKILL)
        output = processes.end(pair[1 - killed], preemption.EXIT_CODE)
        assert "lost         another worker" in output
        pair[killed].communicate()
    for process in start_two(run_dir):
        processes.end(process)
    assert losses(run_dir) == pytest.approx(losses(one_device), rel=1e-3)


@pytest.mark.slow
def test_a_worker_does_not_wait_for_a_chief_that_refuses(one_device):
    """The chief says what is wrong, the other ends as one that lost it."""
    chief, other = [
        processes.start(
            one_device,
            "--strategy=multi_worker",
            "--temperature=0.5",
            *FLAGS,
            environment=environment,
        )
        for environment in workers.environments(2)
    ]
    assert "error: --resume must come with" in processes.end(chief, 1)
    output = processes.end(other, preemption.EXIT_CODE)
    assert "lost         another worker" in output
