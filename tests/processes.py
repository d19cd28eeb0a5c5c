"""Pretraining as users run it: processes of tools/pretrain.py."""

import pathlib
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from supcon_tf import run_files
from tests import forks

ROOT = pathlib.Path(__file__).parents[1]
Process = subprocess.Popen | forks.Fork
FLAGS = (  # digits, seconds
    *("--resume", "--checkpoint_every=1", "--warmup_epochs=1"),
    *("--image_size=16", "--batch_size=64", "--learning_rate=0.5"),
    *("--architecture=vgg8", "--width=0.1", "--hidden_dims=16"),
    "--projection_dim=8",
    "--augmentation=identity",  # the policies are slow to trace
)
# Runs a tool that gets a signal as it writes its n-th checkpoint, whose files
# are there by then, but not its name: however slow the machine, at that step.
_SIGNALLED = """
import os, pathlib, runpy, sys
import tensorflow as tf

number, left, tool = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
sys.argv[:4] = [tool]
sys.path.insert(0, str(pathlib.Path(tool).parent))
write = tf.train.Checkpoint.write

def write_and_signal(*arguments, **options):
    global left
    path = write(*arguments, **options)
    left -= 1
    if left == 0:
        os.kill(os.getpid(), number)
    return path

tf.train.Checkpoint.write = write_and_signal
runpy.run_path(tool, run_name="__main__")
"""


def start(
    run_dir: pathlib.Path,
    *flags: str,
    environment: dict | None = None,
    fresh: bool = False,
    signalled: tuple[int, int] | None = None,
) -> Process:
    """Starts, or goes on with, a small run on the digits.

    Args:
      run_dir: its run directory.
      *flags: more flags than `FLAGS`.
      environment: instead of that of this process.
      fresh: whether to import everything anew, with another seed of hashes.
      signalled: a signal, and which of the checkpoints that the process writes
        it comes with.
    """
    tool = ROOT / "tools" / "pretrain.py"
    flags = (f"--run_dir={run_dir}", *FLAGS, *flags)
    if signalled:
        signal_number, count = map(str, map(int, signalled))
        program, arguments = (
            _SIGNALLED,
            (signal_number, count, str(tool), *flags),
        )
    else:
        program, arguments = tool, flags
    if not fresh:
        return forks.Fork(program, *arguments, cwd=ROOT, env=environment)
    start = ["-c", program] if signalled else [str(program)]
    return subprocess.Popen(
        [sys.executable, *start, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=environment,
    )


def end(process: Process, code: int = 0) -> str:
    """The output of a process that must end with this code."""
    output = "".join(process.communicate(timeout=forks.HANGS))
    assert process.returncode == code, output[-3000:]
    return output


def last_step(run_dir: pathlib.Path) -> int:
    """Step of the newest checkpoint, 0 for none."""
    run = run_files.RunDirectory(run_dir)
    return max(run_files.steps_in(run.checkpoints), default=0)


def wait_until(
    condition: Callable[[], object], processes: Sequence[Process]
) -> None:
    """Polls with a short pause: a checkpoint is written in milliseconds."""
    until = time.monotonic() + forks.HANGS
    while not condition():
        for process in processes:
            if process.poll() is not None:
                raise AssertionError("".join(process.communicate())[-3000:])
        assert time.monotonic() < until
        time.sleep(0.0005)


def variables(run_dir: pathlib.Path) -> dict[str, np.ndarray]:
    """Every tensor of the newest checkpoint: weights, optimizer."""
    newest = run_files.RunDirectory(run_dir).latest_checkpoint()
    reader = tf.train.load_checkpoint(f"{newest}/variables")
    return {
        name: reader.get_tensor(name)
        for name in reader.get_variable_to_shape_map()
        if name != "_CHECKPOINTABLE_OBJECT_GRAPH"
    }
