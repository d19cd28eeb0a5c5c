"""What of the search is measured, without measuring it."""

from __future__ import annotations

import json

import pytest

from supcon_tf import config
from supcon_tf.benchmarks import knn, processes


@pytest.fixture
def jobs(monkeypatch):
    """Answers in place of processes; the jobs they were given."""
    jobs = []

    def run(module, job):
        jobs.append((module, job))
        if job["implementation"] == "sklearn_cosine":
            return {"error": "no more memory"}
        return {
            "seconds": float(len(jobs)),
            "peak_mb": 30.0,
            "agreement": 1.0,
            "similarity_error": 1e-6 if job["implementation"] == "ours" else 1,
        }

    monkeypatch.setattr(processes, "run", run)
    return jobs


def test_rounds_are_interleaved_and_written(tmp_path, jobs, capsys):
    directory = tmp_path / "run"
    chosen = config.BenchKnnSettings(
        str(directory), bank=30, queries=20, dim=4, k=3, rounds=2, threads=5
    )
    results = knn.bench_knn(chosen)
    assert [job["implementation"] for _, job in jobs] == [
        *config.KNN_IMPLEMENTATIONS,
        *config.KNN_IMPLEMENTATIONS[:2],
    ]
    assert jobs[0] == (
        "knn_point",
        {
            **{"bank": 30, "queries": 20, "dim": 4, "k": 3, "seed": 0},
            **{"implementation": "ours", "threads": 5},
        },
    )
    statuses = [point["status"] for point in results["points"]]
    assert statuses == ["measured", "measured", "failed"]
    assert len(results["disagreements"]) == 1
    assert results["machine"]["threads"] == 5
    assert "sklearn_cosine: failed, no more memory" in capsys.readouterr().out
    assert [path.name for path in directory.iterdir()] == ["bench_knn.json"]
    written = json.loads((directory / "bench_knn.json").read_text())
    assert written["points"] == results["points"]


def test_one_implementation_alone(tmp_path, jobs):
    chosen = config.BenchKnnSettings(
        str(tmp_path), implementations="sklearn_euclidean", rounds=1
    )
    assert len(knn.bench_knn(chosen)["points"]) == len(jobs) == 1


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"implementations": "faiss"}, "must be all, or some of ours, sklearn"),
        ({"k": 9, "bank": 8}, "--k must be at most --bank, 8, got 9"),
        ({"rounds": 0}, "--rounds must be"),
    ],
)
def test_broken_rules_are_named(overrides, message):
    with pytest.raises(ValueError, match=message):
        config.BenchKnnSettings(**overrides)
