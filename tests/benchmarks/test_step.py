"""What of the training step is measured, without measuring it."""

from __future__ import annotations

import json

import pytest

from supcon_tf import config
from supcon_tf.benchmarks import processes, step

ALL = list(config.STEP_IMPLEMENTATIONS)


def test_all_is_what_is_installed(monkeypatch):
    chosen = config.BenchStepSettings()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)
    assert step.choose_implementations(chosen) == ALL
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert step.choose_implementations(chosen) == ["ours", "ours_bfloat16"]
    chosen = config.BenchStepSettings(implementations="ours,torch_nchw")
    with pytest.raises(ImportError, match="torch_nchw needs torch, not inst"):
        step.choose_implementations(chosen)
    chosen = config.BenchStepSettings(supcontrast_path="no.py")
    with pytest.raises(FileNotFoundError, match="path must be a Python file"):
        step.choose_implementations(chosen)


def test_chunks_are_those_asked_for_and_those_of_a_size():
    chosen = config.BenchStepSettings(
        batch_sizes=(64, 256), chunks=(1, 4), chunk_size=64
    )
    chunks = [
        step.list_chunks(chosen, name, size)
        for name in ("ours", "ours_bfloat16", "torch_nchw")
        for size in (64, 256)
    ]
    assert chunks == [[1, 4], [1, 4]] * 2 + [[1], [1]]
    chosen = config.BenchStepSettings(batch_sizes=(64, 256), chunk_size=32)
    assert step.list_chunks(chosen, "ours", 256) == [1, 8]


@pytest.fixture
def jobs(monkeypatch):
    """Answers in place of processes; the jobs they were given."""
    jobs = []

    def run(module, job):
        jobs.append((module, job))
        if job["implementation"] == "torch_nchw" and job["batch_size"] == 8:
            return {"error": "no more memory"}
        rows = job["batch_size"] * job["views"]
        return {
            "ms": 100.0 + len(jobs),
            "rows": rows,
            "peak_mb": 1e3 * rows / job["chunks"],
            "loss": 0.25,
            "parameters": 7 + (job["implementation"] == "ours_bfloat16"),
        }

    monkeypatch.setattr(processes, "run", run)
    monkeypatch.setattr(step, "choose_implementations", lambda _: [*ALL[:3]])
    return jobs


def test_rounds_of_every_case_are_written(tmp_path, jobs, capsys):
    chosen = config.BenchStepSettings(
        str(tmp_path / "run"),
        architectures="resnet34",
        batch_sizes=(4, 8),
        views=3,
        chunk_size=4,
        max_memory_gb=20,
        rounds=2,
        threads=3,
    )
    results = step.bench_step(chosen)
    assert {module for module, _ in jobs} == {"step_point"}
    of_jobs = [
        (job["batch_size"], job["implementation"], job["chunks"])
        for _, job in jobs
    ]
    # Of 8 images whole, 24 GB are expected from the 12 GB of 4.
    assert of_jobs == [
        *[(4, "ours", 1), (4, "ours_bfloat16", 1), (4, "torch_nchw", 1)] * 2,
        *[(8, "ours", 2), (8, "ours_bfloat16", 2)] * 2,
    ]
    assert all(job["threads"] == 3 and job["views"] == 3 for _, job in jobs)
    statuses = [point["status"] for point in results["points"]]
    assert statuses == ["measured"] * 3 + [
        *["skipped", "measured", "skipped", "measured", "skipped"]
    ]
    told = capsys.readouterr().out
    assert "resnet34, 8 images, ours: skipped, about 24 GB, see --max_m" in told
    assert "resnet34, 8 images, ours in 2 chunks: " in told
    assert len(results["disagreements"]) == 2
    assert results["left_out"] == ALL[3:]
    written = json.loads((tmp_path / "run" / "bench_step.json").read_text())
    assert written["points"] == results["points"]
    assert (tmp_path / "run" / "bench_step.png").exists()


def test_a_failure_is_tried_once_and_recorded(tmp_path, jobs):
    chosen = config.BenchStepSettings(
        str(tmp_path), architectures="resnet18", batch_sizes=(8,), rounds=3
    )
    points = step.bench_step(chosen)["points"]
    names = [job["implementation"] for _, job in jobs]
    assert names.count("torch_nchw") == 1 and names.count("ours") == 3
    assert [p["status"] for p in points] == ["measured", "measured", "failed"]
    assert points[2]["reason"] == "no more memory"


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"architectures": "vgg8"}, "--architectures must be some of resnet18"),
        ({"implementations": "torch"}, "must be all, or some of ours, ours_bf"),
        ({"batch_sizes": ()}, "--batch_sizes must be positive and rising, got"),
        ({"batch_sizes": (64, 8)}, "--batch_sizes must be positive and rising"),
        ({"chunks": (0,)}, "--chunks must be positive and rising, got 0"),
        ({"chunks": (1, 3)}, "--chunks must divide --batch_sizes, got 1,3 and"),
        ({"chunk_size": 48}, "--chunk_size must divide --batch_sizes, got 48"),
    ],
)
def test_broken_rules_are_named(overrides, message):
    with pytest.raises(ValueError, match=message):
        config.BenchStepSettings(**overrides)
