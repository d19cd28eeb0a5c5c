"""Memory and messages of one measurement."""

from __future__ import annotations

import numpy as np

from supcon_tf.benchmarks import loss_point


def test_peak_memory_is_growth_and_outlives_its_release():
    peak = loss_point.PeakMemory()
    block = np.ones(30_000_000, np.uint8)
    del block
    if peak.source == "VmHWM":
        assert 25 < peak.growth_mb() < 60
    assert peak.growth_mb() >= 0
