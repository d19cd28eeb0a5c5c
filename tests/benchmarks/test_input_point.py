"""Timing and checking of batches."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from supcon_tf.benchmarks import input_point
from tests.clock import Clock


def test_batches_are_timed_after_a_warm_up(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(input_point, "time", clock)

    def batches():
        clock.now += 0.25  # Tracing: not counted.
        for number in itertools.count(1):
            clock.now += 1 / 64
            yield number

    count, duration, last = input_point.time_batches(batches(), 0.5)
    assert (count, duration) == (32, 0.5)
    assert last == 1 + 32 + 32
    count, duration, _ = input_point.time_batches(batches(), 0.0)
    assert (count, duration) == (8, 8 / 64)


def test_only_pictures_pass():
    batch = np.zeros([2, 4, 4, 3], np.uint8)
    with pytest.raises(RuntimeError, match="pictures, got constant images"):
        input_point.check_batch(batch, 2, 4)
    batch[1] = 7  # Different, but each constant.
    with pytest.raises(RuntimeError, match="pictures, got constant images"):
        input_point.check_batch(batch, 2, 4)
    batch[1, 2, 2, 0] = 8
    input_point.check_batch(batch, 2, 4)
    with pytest.raises(RuntimeError, match=r"\[3, 4, 4, 3\] uint8, got \[2, 4"):
        input_point.check_batch(batch, 3, 4)
    with pytest.raises(RuntimeError, match=r"got \[2, 4, 4, 3\] float32"):
        input_point.check_batch(batch.astype(np.float32), 2, 4)


def test_every_implementation_of_the_settings_has_its_pipelines():
    from supcon_tf import config

    for name in config.INPUT_IMPLEMENTATIONS:
        for of in config.INPUTS:
            assert (name, of) in input_point._PIPELINES
