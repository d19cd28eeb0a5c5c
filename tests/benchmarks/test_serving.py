"""What of serving is measured: without measuring it, and once for real."""

from __future__ import annotations

import json

import pytest

from supcon_tf import config
from supcon_tf.benchmarks import (
    input_images,
    input_point,
    libraries,
    processes,
    serving,
    serving_comparison,
    serving_models,
    serving_point,
)


@pytest.fixture
def jobs(monkeypatch):
    """Answers in place of processes; the jobs they were given."""
    jobs = []

    def run(module, job):
        jobs.append((module, job))
        if module == "input_images":
            folder = input_images.link_directory(job["folder"])
            folder.mkdir(parents=True)
            (folder / "0.jpg").write_bytes(b"." * 7000)
            return {"distinct": 8}
        if module == "serving_models":
            return {"models": []}
        if job["implementation"] == "keras_resnet50":
            return {"error": "no more memory"}
        figures = dict.fromkeys(("p50_ms", "p99_ms", "cpu_ms"), 4.0)
        return {**figures, "images_per_second": 30.0, "difference": 2e-5}

    monkeypatch.setattr(processes, "run", run)
    return jobs


def test_rounds_of_every_case_are_written(tmp_path, jobs, capsys):
    chosen = config.BenchServingSettings(
        str(tmp_path / "run"), images=(1, 8), concurrency=(3,), rounds=2
    )
    results = serving.bench_serving(chosen)
    modules = [module for module, _ in jobs]
    assert (
        modules == ["input_images", "serving_models"] + ["serving_point"] * 10
    )
    assert jobs[0][1]["sizes"] == [224] and jobs[0][1]["paths"] == []
    names = [job["implementation"] for _, job in jobs[2:7]]
    assert names == [*config.SERVING_IMPLEMENTATIONS, *names[:2]]
    cases = [(job["images"], job["clients"]) for _, job in jobs[2:]]
    assert cases == [(1, 3)] * 5 + [(8, 3)] * 5
    statuses = [point["status"] for point in results["points"]]
    assert statuses == ["measured", "measured", "failed"] * 2
    assert len(results["disagreements"]) == 4
    assert results["images"] == (
        "8 JPEG files of scikit-learn's photographs, 7 kB on average"
    )
    told = capsys.readouterr().out
    assert "images 8, clients 3, images/s: ours_bytes 30.0, ours_i" in told
    assert "keras_resnet50 failed (no more memory)" in told
    (written,) = (tmp_path / "run").iterdir()
    assert written.name == "bench_serving.json"
    assert json.loads(written.read_text())["points"] == results["points"]


@pytest.mark.parametrize("module", ["input_images", "serving_models"])
def test_what_cannot_be_prepared_leaves_nothing(module, tmp_path, monkeypatch):
    monkeypatch.setattr(
        processes,
        "run",
        lambda of, _: {"error": "gone"} if of == module else {},
    )
    chosen = config.BenchServingSettings(str(tmp_path / "run"))
    with pytest.raises(RuntimeError, match="could not be .*: gone"):
        serving.bench_serving(chosen)
    assert not any(tmp_path.iterdir())


def test_a_small_model_from_files_to_the_table(tmp_path, monkeypatch):
    programs = {
        "input_images": input_images.prepare,
        "serving_models": serving_models.make,
        "serving_point": serving_point.measure,
    }
    monkeypatch.setattr(
        processes, "run", lambda module, job: programs[module](job)
    )
    # In this process, which has its threads and shares its cores.
    monkeypatch.setattr(libraries, "import_tensorflow", _tensorflow)
    monkeypatch.setattr(input_point, "pin", lambda threads: None)
    for name, value in (
        ("ARCHITECTURE", "vgg8"),
        ("IMAGE_SIZE", 32),
        ("CLASSES", 7),
    ):
        monkeypatch.setattr(serving_models, name, value)
    chosen = config.BenchServingSettings(
        str(tmp_path),
        implementations="ours_bytes,ours_images",
        images=(2,),
        concurrency=(2,),
        rounds=1,
        seconds=0.05,
    )
    results = serving.bench_serving(chosen)
    assert len(results["points"]) == 2 and not results["disagreements"]
    for point in results["points"]:
        assert point["status"] == "measured"
        assert point["requests"] >= 3 * point["clients"]
        assert 0 < point["p50_ms"] <= point["p99_ms"] and point["cpu_ms"] > 0
        assert ("difference" in point) == (
            point["implementation"] == "ours_bytes"
        )
    table = serving_comparison.serving_table(results)
    assert len(table.splitlines()) == 2 + 2


def _tensorflow(threads):
    """TensorFlow, whose threads cannot be set once it has run."""
    import tensorflow as tf

    return tf


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"implementations": "keras"}, "must be all, or some of ours_bytes, "),
        ({"images": ()}, "--images must be positive, got $"),
        ({"images": (1, 0)}, "--images must be positive, got 1,0"),
        ({"concurrency": (0,)}, "--concurrency must be positive, got 0"),
        ({"rounds": 0}, "--rounds must be"),
    ],
)
def test_broken_rules_are_named(overrides, message):
    with pytest.raises(ValueError, match=message):
        config.BenchServingSettings(**overrides)
