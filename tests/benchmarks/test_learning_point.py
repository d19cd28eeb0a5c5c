"""A short training of ours, in this process."""

from __future__ import annotations

import math

import pytest

from supcon_tf.benchmarks import learning_point, libraries

JOB = {
    "implementation": "ours",
    "data_dir": None,
    "peer_path": None,
    "steps": 25,
    "knn_every": 15,
    "batch_size": 32,
    "width": 0.0625,
    "learning_rate": 0.01,
    "weight_decay": 1e-4,
    "temperature": 0.1,
    "seed": 0,
    "threads": 1,
}


def test_ours_is_tested_as_it_learns(monkeypatch):
    # Threads cannot be set once TensorFlow has run.
    monkeypatch.setattr(libraries, "import_tensorflow", lambda threads: None)
    measured = learning_point.measure(JOB)
    assert [test["step"] for test in measured["curve"]] == [15, 25]
    # Chance is 0.1, and log(63).
    assert measured["curve"][-1]["knn"] > 0.2
    assert measured["curve"][0]["loss"] == pytest.approx(math.log(63), rel=0.1)
    assert measured["gradients"] == []
    # The same views, whatever is trained on them.
    another = learning_point.measure(JOB | {"learning_rate": 0.001})
    assert another["views_sha256"] == measured["views_sha256"]
    assert another["curve"] != measured["curve"]


def test_the_rates_are_those_of_a_run():
    job = {name: JOB[name] for name in JOB if name != "implementation"}
    rates = learning_point.Work(
        **job | {"steps": 20, "learning_rate": 0.05}
    ).rates()
    assert rates[:3] == pytest.approx([0.025, 0.05, 0.05])
    assert rates[11] == pytest.approx(0.025) and rates[-1] < 0.001
