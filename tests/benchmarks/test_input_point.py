"""Timing and checking of batches."""

from __future__ import annotations

import itertools
import time

import numpy as np
import pytest

from supcon_tf.benchmarks import input_point


def test_batches_are_timed_after_a_warm_up():
    taken = []

    def batches():
        time.sleep(0.2)  # Tracing: not counted.
        for number in itertools.count():
            time.sleep(0.005)
            taken.append(number)
            yield number

    count, duration, last = input_point.time_batches(batches(), 0.1)
    assert 8 <= count <= 20 and 0.1 <= duration < 0.5
    assert last == taken[-1] and len(taken) >= 1 + 8 + count
    count, duration, _ = input_point.time_batches(batches(), 0.0)
    assert count == 8 and duration < 0.2


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
