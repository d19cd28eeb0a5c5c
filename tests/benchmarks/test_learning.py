"""What of the training is compared, without training."""

from __future__ import annotations

import json

import pytest

from supcon_tf import benchmarks, config
from supcon_tf.benchmarks import learning, processes

ALL = list(config.LEARNING_IMPLEMENTATIONS)
ERRORS = {
    "ours": 2e-4,
    "theirs": 1e-5,
    "ours_whole": 5e-5,
    "theirs_whole": 4e-6,
}


@pytest.fixture
def jobs(monkeypatch):
    """Answers in place of processes; the jobs they were given."""
    jobs = []

    def run(module, job):
        jobs.append(job)
        assert module == "learning_point"
        name, seed = job["implementation"], job["seed"]
        if name == "supcontrast_published":
            return {"error": "no torchvision::nms"}
        knn = {"ours": 0.5, "supcontrast": 0.51}[name]
        return {
            "curve": [
                {"step": 10, "knn": knn + 0.02 * seed, "loss": 5.0},
                {"step": 20, "knn": 0.1 + knn * (1 + seed % 2), "loss": 4.0},
            ],
            "views_sha256": f"of {seed}",
            "gradients": [ERRORS, ERRORS] if name == "supcontrast" else [],
            "seconds": 3.0,
        }

    monkeypatch.setattr(processes, "run", run)
    return jobs


@pytest.fixture
def chosen(tmp_path):
    (tmp_path / "losses.py").touch()
    return config.BenchLearningSettings(
        str(tmp_path / "run"),
        implementations=",".join(ALL),
        supcontrast_path=str(tmp_path),
        data_dir="images",
        seeds=2,
        threads=1,
    )


@pytest.fixture(autouse=True)
def installed(monkeypatch):
    """Everything is."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)


def test_every_seed_trains_every_implementation(chosen, jobs, capsys):
    results = benchmarks.bench_learning(chosen)
    assert [(job["seed"], job["implementation"]) for job in jobs] == [
        (seed, name) for seed in (0, 1) for name in ALL
    ]
    assert jobs[0]["learning_rate"] == 0.0625 and jobs[0]["steps"] == 2000
    assert results["disagreements"] == []
    assert "published, seed 1: failed, no torchv" in capsys.readouterr().out
    text = benchmarks.learning_table(results)
    assert "0.510 (0.500-0.520)     0.520 (0.510-0.530)" in text
    assert "seed 0, off float64 by: ours 5.0e-05 (2.0e-04 in a" in text
    directory = list((jobs[0], chosen.run_dir))[1]
    with open(f"{directory}/bench_learning.json") as file:
        assert json.load(file)["points"] == results["points"]


def test_what_is_there_is_kept(chosen, jobs):
    first = benchmarks.bench_learning(chosen)
    jobs.clear()
    again = benchmarks.bench_learning(chosen)
    assert [job["implementation"] for job in jobs] == [ALL[2]] * 2  # failed
    assert again["points"] == first["points"]


def test_a_gap_beyond_the_seeds_and_other_views_are_told():
    def point(name, seed, knn, digest="same"):
        return {
            "job": {"implementation": name, "seed": seed},
            "curve": [{"step": 600, "knn": knn, "loss": 5.0}],
            "views_sha256": digest,
        }

    points = [
        point("ours", 0, 0.50),
        point("ours", 1, 0.52),
        point("supcontrast", 0, 0.53),
        point("supcontrast", 1, 0.54, "another"),
        point("supcontrast_published", 1, 0.9, "its own"),
    ]
    assert learning.find_disagreements(points) == [
        "seed 1: the views were not the same",
        "step 600: k-NN is 0.025 apart, seeds 0.020",
    ]
    # One seed has no spread, and what has failed no curve.
    assert learning.find_disagreements([points[0], points[2]]) == []
    failed = {"job": points[0]["job"], "error": "no more memory"}
    assert learning.curves_by_implementation([failed]) == {}


def test_all_is_what_is_installed_and_given(chosen, monkeypatch, tmp_path):
    def choose(**overrides):
        settings = config.BenchLearningSettings(**overrides)
        return learning.choose_implementations(settings)

    given = {"supcontrast_path": str(tmp_path)}
    assert choose() == ALL[:1]
    assert choose(**given) == ALL[:2]
    assert choose(**given, data_dir="images") == ALL
    with pytest.raises(FileNotFoundError, match="the folder of SupContrast's"):
        choose(supcontrast_path="nowhere")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert choose(**given, data_dir="images") == ALL[:1]
    with pytest.raises(ImportError, match="supcontrast needs torch, not inst"):
        learning.choose_implementations(chosen)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"implementations": "lightly"}, "must be all, or some of ours, supc"),
        (
            {"implementations": "supcontrast"},
            "--supcontrast_path must be given",
        ),
        (
            {"implementations": ALL[2], "supcontrast_path": "x"},
            "--data_dir must be given for supcontrast_published",
        ),
    ],
)
def test_broken_rules_are_named(overrides, message):
    with pytest.raises(ValueError, match=message):
        config.BenchLearningSettings(**overrides)
