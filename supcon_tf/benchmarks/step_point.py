"""Measures one training step, in a process of its own.

  python -m supcon_tf.benchmarks.step_point '{"implementation": "ours", ...}'

Started by `benchmarks.step` through `benchmarks.processes`.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable

from supcon_tf.benchmarks import (
    libraries,
    loss_point,
    processes,
    step_implementations,
)

_WARM_UP = 2


def measure(job: processes.Point) -> processes.Point:
    """Time and peak memory of a step, loss and size of the network.

    Args:
      job: `steps` to be timed; `implementation`; all others are fields of
        `step_implementations.Work`.

    Returns:
      `ms` (median), `steps` timed, `rows` (batch times views), `peak_mb` since
      before the network was made, `memory` (how it was read), `loss` of the
      last step, `parameters` that are trained, and `libraries`.

    Raises:
      RuntimeError: the loss is not finite.
    """
    job = dict(job)
    name, steps = job.pop("implementation"), job.pop("steps")
    work = step_implementations.Work(**job)
    step_implementations.import_library(name, work.threads)
    peak = loss_point.PeakMemory()
    step, parameters = step_implementations.make_step(name, work)
    durations, loss = time_steps(step, steps)
    if not math.isfinite(loss):
        raise RuntimeError(f"the loss is {loss}")
    return {
        "ms": 1e3 * statistics.median(durations),
        "steps": steps,
        "rows": work.batch_size * work.views,
        "peak_mb": peak.growth_mb(),
        "memory": peak.source,
        "loss": loss,
        "parameters": parameters,
        "libraries": libraries.versions("tensorflow", "torch"),
    }


def time_steps(
    step: Callable[[], float], steps: int
) -> tuple[list[float], float]:
    """Seconds of each step after the warm-up, and the last loss."""
    for _ in range(_WARM_UP):
        step()
    durations = []
    for _ in range(steps):
        before = time.perf_counter()
        loss = step()  # A number, so it has waited for the result.
        durations.append(time.perf_counter() - before)
    return durations, loss


if __name__ == "__main__":
    processes.answer(measure)
