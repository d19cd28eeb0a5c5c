"""What of the input pipelines is measured, without measuring it."""

from __future__ import annotations

import json

import pytest

from supcon_tf import config
from supcon_tf.benchmarks import input as bench
from supcon_tf.benchmarks import input_peers, processes


def test_cases_are_inputs_sizes_and_policies():
    chosen = config.BenchInputSettings(
        sizes=(32, 64), policies="simclr,identity", inputs="jpeg", views=True
    )
    cases = [tuple(case.values()) for case in bench.list_cases(chosen)]
    assert cases == [
        (of, size, policy)
        for of in ("jpeg", "views")
        for size in (32, 64)
        for policy in ("simclr", "identity")
    ]


def test_all_is_what_is_installed(monkeypatch):
    monkeypatch.setattr(
        "importlib.util.find_spec",
        lambda name: None if name in ("torchvision", "official") else name,
    )
    chosen = config.BenchInputSettings()
    assert bench.choose_implementations(chosen) == ["ours"]
    chosen = config.BenchInputSettings(implementations="ours,pil")
    with pytest.raises(ImportError, match="pil needs torchvision, not inst"):
        bench.choose_implementations(chosen)
    chosen = config.BenchInputSettings(implementations="tfm")
    with pytest.raises(ImportError, match="tfm needs tf-models-official"):
        bench.choose_implementations(chosen)


@pytest.fixture
def jobs(monkeypatch):
    """Answers in place of processes; the jobs they were given."""
    jobs = []

    def run(module, job):
        jobs.append((module, job))
        if module == "input_images":
            return {"distinct": 8}
        if job["name"] == "pil":
            return {"error": "no more memory"}
        return {"images_per_second": 300.0 + len(jobs)}

    monkeypatch.setattr(processes, "run", run)
    monkeypatch.setattr(
        bench, "choose_implementations", lambda _: ["ours", "tfm", "pil"]
    )
    return jobs


def test_rounds_of_every_case_are_written(tmp_path, jobs, capsys):
    chosen = config.BenchInputSettings(
        str(tmp_path / "run"),
        sizes=(32,),
        policies="randaugment,simaugment",
        inputs="memory",
        views=True,
        rounds=2,
        threads=3,
    )
    results = bench.bench_input(chosen)
    assert jobs[0][1]["paths"] == [] and jobs[0][1]["sizes"] == (32,)
    of_jobs = [(job["name"], job["input"]) for _, job in jobs[1:]]
    assert of_jobs == [
        *[("ours", "memory"), ("tfm", "memory"), ("pil", "memory")],
        *[("ours", "memory"), ("tfm", "memory")],
        *[("ours", "memory")] * 2,  # Peers have no simaugment.
        *[("ours", "views"), ("twice", "views")] * 4,
    ]
    assert all(job["workers"] == job["threads"] == 3 for _, job in jobs[1:])
    statuses = [point["status"] for point in results["points"]]
    assert statuses == ["measured"] * 2 + ["failed"] + ["measured"] * 5
    written = json.loads((tmp_path / "run" / "bench_input.json").read_text())
    assert written["points"] == results["points"]
    assert (tmp_path / "run" / "bench_input.png").exists()
    assert "in memory, randaugment: ours 304, " in capsys.readouterr().out


def test_one_worker_more_or_less(tmp_path, jobs):
    chosen = config.BenchInputSettings(
        str(tmp_path), sizes=(32,), policies="identity", threads=3, workers=1
    )
    bench.bench_input(chosen)
    assert jobs[-1][1]["workers"] == 1 and jobs[-1][1]["threads"] == 3


def test_images_that_cannot_be_read_leave_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "run", lambda *_: {"error": "not a JPEG"})
    chosen = config.BenchInputSettings(str(tmp_path / "run"))
    with pytest.raises(RuntimeError, match="could not be read: not a JPEG"):
        bench.bench_input(chosen)
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("policy", config.INPUT_POLICIES)
def test_shared_policies_are_those_the_peer_makes(policy, monkeypatch):
    class Peer:
        class AutoAugment:
            distort = "autoaugment"

        class RandAugment:
            distort = "randaugment"

            def __init__(self, layers, magnitude):
                assert (layers, magnitude) == (2, 10.0)

    monkeypatch.setattr(input_peers.libraries, "load_file", lambda _: Peer)
    if policy in bench._SHARED["tfm"]:
        assert input_peers.tfm_distort(policy)
    else:
        with pytest.raises(ValueError, match=f"tfm has no {policy}"):
            input_peers.tfm_distort(policy)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"sizes": ()}, "--sizes must be positive numbers of pixels, got $"),
        ({"sizes": (32, 0)}, "--sizes must be positive .*, got 32,0"),
        ({"policies": "all"}, "--policies must be some of identity, auto"),
        ({"policies": ""}, "--policies must be some of identity, auto"),
        ({"inputs": "memory,png"}, "some of memory, jpeg, got memory,png"),
        ({"implementations": "all,pil"}, "must be all, or some of ours, tfm"),
        ({"implementations": "torch"}, "must be all, or some of ours, tfm, p"),
    ],
)
def test_broken_rules_are_named(overrides, message):
    with pytest.raises(ValueError, match=message):
        config.BenchInputSettings(**overrides)
