"""What every benchmark does: measures in turn, writes, prints.

A suite (`loss.py`, ...) has a subclass of `Bench` and a function `measure`.
Each measurement is a process of its own. A round takes all jobs of a case in
turn (A B C A B C ...), so that a slow minute of the machine falls on all of
them. This process imports neither TensorFlow nor PyTorch.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import inspect
import itertools
import json
import math
import os
import pathlib
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from typing import ClassVar

from benchmarks import results
from benchmarks.results import Job, Point
from supcon_tf import exceptions, settings
from supcon_tf.cli import command_line
from supcon_tf.host import cores


@dataclasses.dataclass(frozen=True)
class Bench(settings.Settings):
    """What is measured, with how many threads."""

    # Implementations, to the modules and the flags ("--data_dir") they need.
    NEEDS: ClassVar[dict[str, tuple[str, ...]]]
    # Fields that make a case, to the settings that have their values.
    AXES: ClassVar[dict[str, str]] = {}
    COLUMNS: ClassVar[tuple[results.Column, ...]]
    # Labels of what all of a case are compared with: time/PEER, memory/PEER.
    PEERS: ClassVar[tuple[str, ...]] = ()
    # What must agree within a case, to the relative difference allowed.
    AGREEING: ClassVar[dict[str, float]] = {}
    LOGARITHMIC: ClassVar[bool] = True  # values in the figure
    # A job gives the same numbers again: a finished file is gone on from, too.
    DETERMINISTIC: ClassVar[bool] = False

    implementations: tuple[str, ...] = settings.setting(("all",), common=True)
    """See above; all: those installed or given."""
    threads: int = settings.setting(0, at_least=0, common=True)
    """Threads of a process; 0 for all cores."""
    rounds: int = settings.setting(3, at_least=1)
    """Processes per job."""
    device: str = settings.setting("cpu", choices=("cpu", "gpu"), common=True)
    """Where: on a GPU where there is one, or on the CPU."""

    def _check(self) -> None:
        for name, value in dataclasses.asdict(self).items():
            items = (value or (0,)) if isinstance(value, tuple) else ()
            if any(isinstance(item, int) and item < 1 for item in items):
                raise exceptions.InvalidValue(
                    f"--{name} must have values, numbers positive, got "
                    f"{settings.to_text(value)}"
                )
        names = self.implementations
        if names != ("all",) and not set(names) <= set(self.NEEDS):
            raise exceptions.InvalidValue(
                "--implementations must be all, or some of "
                f"{', '.join(self.NEEDS)}, got {settings.to_text(names)}"
            )

    @property
    def name(self) -> str:
        """Of the module that declares it."""
        return pathlib.Path(inspect.getfile(type(self))).stem

    def jobs(self, names: list[str]) -> list[Job]:
        """What is measured of these implementations, case by case.

        Where one is measured in several ways, each has another `label`.
        """
        axes = [getattr(self, name) for name in self.AXES.values()]
        axes = [range(n) if isinstance(n, int) else n for n in axes]
        return [
            dict(zip(self.AXES, values, strict=True)) | {"implementation": name}
            for *values, name in itertools.product(*axes, names)
        ]

    def shared(self) -> Job:
        """What every job has: the settings that are neither lists nor ours."""
        ours = ("run_dir", "rounds", "max_memory_gb", "device")
        return {
            name: value
            for name, value in dataclasses.asdict(self).items()
            if name not in ours and not isinstance(value, tuple)
        } | {"threads": self.threads or cores.usable()}

    def prepare(self, folder: str) -> str:
        """Fills a folder that all jobs have as `folder`; says what it holds."""
        return ""

    def expected_gb(self, job: Job, points: list[Point]) -> float:
        """Memory that a job may need, by it and earlier points."""
        return 0.0

    def cases_of(self, points: list[Point]) -> dict[str, results.Case]:
        """Rows of the table."""
        return results.cases_of(self.AXES, points)

    def notes(self, points: list[Point]) -> list[str]:
        """More lines below the table."""
        return []

    def disagreements(self, points: list[Point]) -> list[str]:
        """A line for each."""
        return results.disagreements(self, self.cases_of(points))


def run_dir(name: str) -> dataclasses.Field:
    """The run directory of a suite, as a field."""
    return settings.with_default(Bench, "run_dir", f"runs/{name}")


def main(settings_class: type[Bench]) -> None:
    """The command line of a suite."""

    def run_and_print(bench: Bench) -> None:
        written = measure_all(bench)
        machine = written["machine"]
        print(
            f"\n{machine['processor']}, {machine['threads']} threads, load "
            f"before the start {machine['load']:.1f}. {written['prepared']}\n"
            f"{results.describe(bench, written)}\n\n"
            f"figure  {bench.run_dir}/bench_{bench.name}.png"
        )

    command_line.run(run_and_print, settings_class)


def measure_all(bench: Bench) -> Point:
    """Measures every job in every round; what the file has.

    What fails is recorded and not tried again. After every measurement
    bench_NAME.json and .png are written into run_dir. An unfinished file is
    gone on from: a job that it has, equal in every field, is not measured
    again; other jobs that it has stay there.
    """
    names, left_out = choose(bench)
    file = pathlib.Path(bench.run_dir, f"bench_{bench.name}.json")
    points = []
    with tempfile.TemporaryDirectory() as folder:
        written = {
            "settings": dataclasses.asdict(bench),
            "machine": describe_machine(bench),
            "prepared": bench.prepare(folder),
            "left_out": left_out,
            "points": points,
            "finished": False,
        }
        file.parent.mkdir(parents=True, exist_ok=True)
        earlier = _read(bench, file)
        if earlier:
            print(f"goes on from {len(earlier)} measurements in {file}")
        for job in list_jobs(bench, names):
            before = [point for point in points if point["job"] == job]
            if before and "error" in before[-1]:
                continue
            point = next((p for p in earlier if p["job"] == job), None)
            expected = 0.0 if before else bench.expected_gb(job, points)
            if point:
                earlier.remove(point)
            elif expected > getattr(bench, "max_memory_gb", math.inf):
                error = f"skipped: about {expected:.3g} GB, see --max_memory_gb"
                point = {"job": job, "error": error}
            else:
                function, arguments = (
                    f"{bench.name}.measure",
                    {"folder": folder},
                )
                result = run(function, job | arguments, bench.device)
                point = {"job": job} | result
            points.append(point)
            print(results.progress(bench, point), flush=True)
            results.write(bench, file, written, earlier)
    written["finished"] = True
    results.write(bench, file, written, earlier)
    return written


def choose(bench: Bench) -> tuple[list[str], list[str]]:
    """Implementations to be measured; what those left out need, in words."""
    for name, value in dataclasses.asdict(bench).items():
        if name.endswith("_path") and value and not os.path.exists(value):
            raise exceptions.NotFound(
                f"--{name} must be a Python file or its folder, got {value}"
            )
    missing = {
        name: f"{name} needs {need}"
        for name, needs in bench.NEEDS.items()
        for need in needs
        if not (
            getattr(bench, need.removeprefix("--"))
            if need.startswith("--")
            else importlib.util.find_spec(need)
        )
    }
    if bench.implementations == ("all",):
        names = [name for name in bench.NEEDS if name not in missing]
        return names, list(missing.values())
    for name in bench.implementations:
        if name in missing:
            raise exceptions.MissingPackage(missing[name])
    return list(bench.implementations), []


def list_jobs(bench: Bench, names: list[str]) -> list[Job]:
    """All measurements in their order: case by case, round by round."""
    jobs = []
    for _, case_jobs in itertools.groupby(
        bench.jobs(names), lambda job: results.case_of(bench.AXES, job)
    ):
        jobs += [bench.shared() | job for job in case_jobs] * bench.rounds
    return jobs


def run(function: str, job: Job, device: str = "cpu") -> Point:
    """Runs a function ("loss.measure") in a fresh process; maybe an `error`."""
    program = pathlib.Path(__file__).with_name("measuring.py")
    hidden = {"CUDA_VISIBLE_DEVICES": "-1"} if device == "cpu" else {}
    process = subprocess.run(
        [sys.executable, str(program), function, json.dumps(job)],
        capture_output=True,
        text=True,
        env={
            **os.environ,
            **hidden,
            "OMP_NUM_THREADS": str(job["threads"]),
            "TF_CPP_MIN_LOG_LEVEL": "3",
            "TF_FORCE_GPU_ALLOW_GROWTH": "true",
        },
    )
    if process.returncode == 0:
        return json.loads(process.stdout.splitlines()[-1])
    reason = (process.stderr.strip().splitlines() or ["no message"])[-1]
    if process.returncode < 0:
        reason = f"ended by {signal.Signals(-process.returncode).name}"
    return {"error": f"failed: {reason}"}


def run_or_fail(function: str, job: Job) -> None:
    """The same of what all jobs need; raises RuntimeError."""
    error = run(function, job).get("error")
    if error:
        raise exceptions.Failed(f"could not prepare: {function} {error}")


def describe_machine(bench: Bench) -> Point:
    """Processor, or GPU, threads, load before the start and Python."""
    file = pathlib.Path("/proc/cpuinfo")
    text = file.read_text() if file.exists() else platform.processor()
    processor = re.split(r"model name\s*: ", text)[-1].split("\n")[0]
    smi = shutil.which("nvidia-smi")
    if bench.device == "gpu" and smi:
        query = [smi, "--query-gpu=name", "--format=csv,noheader"]
        names = subprocess.run(query, capture_output=True, text=True).stdout
        processor = names.partition("\n")[0] or processor
    return {
        "processor": processor,
        "threads": bench.threads or cores.usable(),
        "load": os.getloadavg()[0],
        "python": platform.python_version(),
    }


def _read(bench: Bench, file: pathlib.Path) -> list[Point]:
    """The measurements that an earlier benchmark left to go on from."""
    earlier = json.loads(file.read_text()) if file.exists() else {}
    if earlier.get("finished") and not bench.DETERMINISTIC:
        return []
    points = earlier.get("points", ())
    return [p for p in points if "job" in p and "error" not in p]
