"""What the benchmarks share: a process per measurement, interleaved rounds.

The parent imports neither TensorFlow nor PyTorch. A measurement is a module of
this package, started with a job, JSON, as its argument; its last line of stdout
is a JSON object of what was measured, or {"error": "..."}.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import platform
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING

from supcon_tf import cores

if TYPE_CHECKING:
    from matplotlib import figure

Point = dict[str, object]

_PACKAGE_PARENT = pathlib.Path(__file__).parent.parent.parent


def run(module: str, job: Point) -> Point:
    """Runs a measurement in a fresh process; `error` where it fails.

    Args:
      module: name in this package of a program that calls `answer`.
      job: what that program is given; of it, `threads` sets OpenMP's here.
    """
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": str(job["threads"]),
        # Resident memory is the host's, and peers run where tensors start.
        "CUDA_VISIBLE_DEVICES": "-1",
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "PYTHONPATH": os.pathsep.join(
            [str(_PACKAGE_PARENT), os.environ.get("PYTHONPATH", "")]
        ).rstrip(os.pathsep),
    }
    done = subprocess.run(
        [sys.executable, "-m", f"{__package__}.{module}", json.dumps(job)],
        capture_output=True,
        text=True,
        env=environment,
    )
    if done.returncode < 0:
        return {"error": f"ended by {signal.Signals(-done.returncode).name}"}
    if done.returncode > 0:
        text = done.stderr.strip().splitlines() or ["no message"]
        return {"error": text[-1]}
    return json.loads(done.stdout.splitlines()[-1])


def answer(measure: Callable[[Point], Point]) -> None:
    """The program of such a process: its job in, one line of JSON out."""
    # Where memory runs out, the system ends this process before any other.
    with contextlib.suppress(OSError):
        pathlib.Path("/proc/self/oom_score_adj").write_text("1000")
    try:
        result = measure(json.loads(sys.argv[1]))
    except Exception as error:  # Whatever a peer raises is this point's result.
        traceback.print_exc()
        result = {"error": one_line(error)}
    print(json.dumps(result))


def one_line(error: Exception) -> str:
    """Kind and message, without the source lines that AutoGraph quotes."""
    lines = str(error).strip().splitlines() or [""]
    if lines[0] == "in user code:":
        return lines[-1].strip()
    told = next((line for line in lines if "OOM" in line), lines[0])
    return f"{type(error).__name__}: {told.strip()}"


def interleave(
    rounds: int, measurements: dict[str, Callable[[], Point]]
) -> dict[str, list[Point]]:
    """What each measurement gave in each round, in turn: A B C A B C ...

    A slow minute of the machine so falls on all of them. What has failed once
    is not tried again; its last entry has the `error`.
    """
    runs = {name: [] for name in measurements}
    for _ in range(rounds):
        for name, before in runs.items():
            if not before or "error" not in before[-1]:
                before.append(measurements[name]())
    return runs


def choose_threads(asked: int) -> int:
    """Threads of every process: those asked for, or all cores it may use."""
    return asked or cores.usable()


def describe_machine(threads: int) -> Point:
    """Processor, threads, load before the start and Python."""
    processor = platform.processor() or platform.machine()
    information = pathlib.Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text().splitlines():
            if line.startswith("model name"):
                processor = line.split(":", 1)[1].strip()
    return {
        "processor": processor,
        "threads": threads,
        "load": os.getloadavg()[0],
        "python": platform.python_version(),
    }


def write(
    directory: pathlib.Path,
    name: str,
    results: Point,
    drawn: figure.Figure | None = None,
) -> None:
    """Writes NAME.json and, of a figure, NAME.png; whole files or none."""
    partial = directory / f"{name}.partial"
    partial.write_text(json.dumps(results, indent=1) + "\n")
    partial.replace(directory / f"{name}.json")
    if drawn is not None:
        drawn.savefig(partial, format="png", dpi=120)
        partial.replace(directory / f"{name}.png")
