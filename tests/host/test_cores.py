"""Threads and processes go by the cores that are there for them."""

import os

from supcon_tf.host import cores


def test_only_cores_of_this_process_count(monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.setattr(
        os, "sched_getaffinity", lambda _: {1, 3}, raising=False
    )
    assert cores.usable() == 2
    monkeypatch.delattr(os, "sched_getaffinity")
    assert cores.usable() == 64
