"""Measures one implementation at one size, in a process of its own.

  python -m supcon_tf.benchmarks.loss_point '{"name": "dense", ...}'

Started by `benchmarks.loss` through `benchmarks.processes`.
"""

from __future__ import annotations

import contextlib
import pathlib
import re
import resource
import statistics
import sys
import time

import numpy as np

from supcon_tf.benchmarks import libraries, loss_implementations, processes

_WARM_UP = 2
_LEAST_STEPS = 3


def measure(job: dict[str, object]) -> dict[str, object]:
    """Time, peak memory, loss and gradient of one step.

    Args:
      job: `name` of the implementation; `seconds` of timed steps, at least
        three steps; `accuracy`, whether to compare with the float64 oracle;
        all others are arguments of `loss_implementations.make_problem`.

    Returns:
      `ms` (median), `steps` timed, `peak_mb`, `memory` (how it was read),
      `loss`, `gradient_norm`, `tangent_norm` (without the part along the
      projections, which a loss that normalises inside does not have),
      `libraries` and, where asked, `gradient_error` over the oracle's largest.
    """
    job = dict(job)
    name, seconds = job.pop("name"), job.pop("seconds")
    accuracy = job.pop("accuracy", False)
    problem = loss_implementations.make_problem(**job)
    step = loss_implementations.make_step(name, problem)
    peak = PeakMemory()
    for _ in range(_WARM_UP):
        float(step()[0])
    durations, started = [], time.perf_counter()
    while (
        len(durations) < _LEAST_STEPS or time.perf_counter() - started < seconds
    ):
        before = time.perf_counter()
        loss, gradient = step()
        loss = float(loss)  # Waits for the result.
        durations.append(time.perf_counter() - before)
    peak_mb = peak.growth_mb()
    measured = {
        "ms": 1e3 * statistics.median(durations),
        "steps": len(durations),
        "peak_mb": peak_mb,
        "memory": peak.source,
        "loss": loss,
        "libraries": libraries.versions(
            "tensorflow", "torch", "pytorch_metric_learning"
        ),
    }
    g = np.asarray(gradient).reshape(problem.projections.shape)
    return measured | _gradient_figures(g, problem, accuracy)


def _gradient_figures(
    g: np.ndarray, problem: loss_implementations.Problem, accuracy: bool
) -> dict[str, float]:
    """Norms of the gradient and, where asked, its largest error."""
    z = problem.projections
    tangent = g - np.sum(g * z, axis=2, keepdims=True) * z
    figures = {
        "gradient_norm": float(np.linalg.norm(g)),
        "tangent_norm": float(np.linalg.norm(tangent)),
    }
    if accuracy:
        oracle = loss_implementations.oracle_gradient(problem)
        error = np.abs(g - oracle).max() / np.abs(oracle).max()
        figures["gradient_error"] = float(error)
    return figures


class PeakMemory:
    """Growth of this process's peak resident memory since construction.

    Linux can reset the peak (`source` is "VmHWM"); elsewhere it is that since
    the process began ("ru_maxrss"), and growth below an earlier peak, such as
    that of an import, does not show.
    """

    def __init__(self):
        with contextlib.suppress(OSError):
            pathlib.Path("/proc/self/clear_refs").write_text("5")
        self.source = "ru_maxrss" if _high_water() is None else "VmHWM"
        self._before = self._peak()

    def growth_mb(self) -> float:
        """MB, 10^6 bytes."""
        return (self._peak() - self._before) / 1e6

    def _peak(self) -> int:
        """Bytes."""
        if self.source == "VmHWM":
            return _high_water()
        # Kilobytes, but on macOS bytes.
        unit = 1 if sys.platform == "darwin" else 1024
        return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _high_water() -> int | None:
    """Linux's peak resident bytes; None where it is not kept."""
    status = pathlib.Path("/proc/self/status")
    if not status.exists():
        return None
    found = re.search(r"VmHWM:\s+(\d+) kB", status.read_text())
    return 1024 * int(found[1]) if found else None


if __name__ == "__main__":
    processes.answer(measure)
