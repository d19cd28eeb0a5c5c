"""What is timed of training steps, and what is refused."""

from __future__ import annotations

import pytest

from supcon_tf.benchmarks import step_implementations, step_point
from tests.clock import Clock

JOB = {
    "implementation": "ours",
    "steps": 3,
    "architecture": "resnet18",
    "batch_size": 4,
    "views": 2,
    "chunks": 1,
    "image_size": 8,
    "classes": 3,
    "temperature": 0.1,
    "path": None,
    "seed": 0,
    "threads": 1,
}


def test_steps_are_timed_after_a_warm_up(monkeypatch):
    clock, losses = Clock(), iter(range(9))
    monkeypatch.setattr(step_point, "time", clock)

    def step():
        loss = next(losses)
        clock.now += 0.25 if loss == 0 else 1 / 64  # Tracing: not counted.
        return loss

    durations, loss = step_point.time_steps(step, 4)
    assert loss == 5 and durations == [1 / 64] * 4


def test_a_measurement_is_of_one_step(monkeypatch):
    losses, given = iter([9.0, 9.0, 9.0, 9.0, 0.5, 1.0, 1.0, float("nan")]), []

    def make_step(name, work):
        given.append((name, work))
        return lambda: next(losses), 42

    monkeypatch.setattr(step_implementations, "import_library", lambda *_: None)
    monkeypatch.setattr(step_implementations, "make_step", make_step)
    measured = step_point.measure(JOB)
    assert measured["rows"] == 8 and measured["parameters"] == 42
    assert measured["loss"] == 0.5 and measured["steps"] == 3
    assert given[0][0] == "ours" and given[0][1].image_size == 8
    with pytest.raises(RuntimeError, match="the loss is nan"):
        step_point.measure(JOB | {"steps": 1})
