"""Pretraining as users run it: processes of tools/pretrain.py."""

from __future__ import annotations

import pathlib
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

from supcon_tf.training import checkpoints, run_directory

ROOT = pathlib.Path(__file__).parents[1]
FLAGS = (  # digits, seconds
    "--resume",
    "--architecture=vgg8",
    "--width=0.05",
    "--hidden_dims=16",
    "--projection_dim=8",
    "--batch_size=64",
    "--warmup_epochs=1",
    "--learning_rate=0.5",
    "--checkpoint_every=1",
)


def start(
    run_dir: pathlib.Path, *flags: str, environment: dict | None = None
) -> subprocess.Popen:
    """Starts, or goes on with, a small run on the digits."""
    return subprocess.Popen(
        [
            sys.executable,
            str(ROOT / "tools" / "pretrain.py"),
            f"--run_dir={run_dir}",
            *FLAGS,
            *flags,
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=ROOT,
        env=environment,
    )


def end(process: subprocess.Popen, code: int = 0) -> str:
    """What it printed, once it has ended as it should."""
    output, _ = process.communicate(timeout=300)
    assert process.returncode == code, output[-3000:]
    return output


def last_step(run_dir: pathlib.Path) -> int:
    """Step of the newest checkpoint, 0 for none."""
    run = run_directory.RunDirectory(run_dir)
    return max(checkpoints.steps_in(run.checkpoints), default=0)


def wait_until(
    condition: Callable[[], object], processes: Sequence[subprocess.Popen]
) -> None:
    """Polls without a pause: a checkpoint is written in milliseconds."""
    until = time.monotonic() + 180
    while not condition():
        for process in processes:
            assert process.poll() is None, process.communicate()[0][-3000:]
        assert time.monotonic() < until
