"""What the process of a measurement uses."""

from __future__ import annotations

import sys

import numpy as np

from benchmarks import measuring
from tests.clock import Clock


def test_messages_of_tensorflow_become_one_line():
    graph = RuntimeError(
        "Graph execution error:\n\nnode\nOOM when allocating x"
    )
    assert measuring.one_line(graph) == "RuntimeError: OOM when allocating x"
    autograph = ValueError("in user code:\n\n  File x\n\n    TypeError: bad\n")
    assert measuring.one_line(autograph) == "TypeError: bad"
    assert measuring.one_line(ValueError()) == "ValueError: "


def test_a_peers_file_finds_its_siblings(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    package = tmp_path / "peer_package"
    package.mkdir()
    (package / "constants.py").write_text("ANSWER = 42\n")
    (package / "json.py").write_text("")
    file = package / "losses.py"
    file.write_text(
        "import json\nfrom peer_package import constants\n"
        "text = json.dumps(constants.ANSWER)\n"
    )
    assert measuring.load_file(file).text == "42"
    assert sys.path[-1] == str(tmp_path)


def test_steps_are_timed_after_a_warm_up(monkeypatch):
    clock, results = Clock(), iter(range(99))
    monkeypatch.setattr(measuring, "time", clock)

    def step():
        result = next(results)
        clock.now += 0.25 if result < 2 else 1 / 64  # Tracing: not counted.
        return result

    assert measuring.time_steps(step, 4, 0.0) == (1 / 64, 5)
    # Two more to warm up, then half a second.
    assert measuring.time_steps(step, 4, 0.5) == (1 / 64, 7 + 32)


def test_peak_memory_outlives_its_release():
    before = measuring.reset_peak_mb()
    block = np.ones(30_000_000, np.uint8)
    del block
    if sys.platform == "linux":
        assert 25 < measuring.peak_mb() - before < 60
    assert measuring.peak_mb() >= before
