"""What all benchmarks do, of a suite that measures nothing."""

from __future__ import annotations

import dataclasses
import json
import pathlib

import pytest

from benchmarks import harness, results
from supcon_tf import settings
from tests.tool_settings import BENCHMARKS


@dataclasses.dataclass(frozen=True)
class MadeUp(harness.Bench):
    """Settings of a benchmark that measures nothing."""

    NEEDS = {
        "ours": (),
        "peer": ("no_such_module",),
        "given": ("--peer_path", "json"),
    }
    AXES = {"rows": "rows"}
    COLUMNS = (results.Column("ms", lambda p: 1e3 * p["seconds"], drawn=True),)
    PEERS = ("ours",)
    AGREEING = {"loss": 1e-4}

    run_dir: str = harness.run_dir("made_up")
    rows: tuple[int, ...] = settings.setting((2, 8), "Sizes.")
    peer_path: str | None = settings.setting(None, "A file.")
    rounds: int = settings.setting(2, "Rounds.", at_least=1)
    max_memory_gb: float = settings.setting(8.0, "At most.", above=0)

    def expected_gb(self, job, points):
        return float(job["rows"])


@pytest.fixture
def asked(monkeypatch):
    """Answers in place of processes; the jobs they were given."""
    asked = []

    def run(function, job):
        assert function == "test_harness.measure"
        assert pathlib.Path(job.pop("folder")).is_dir()
        asked.append(job)
        if job["implementation"] == "given" and job["rows"] == 8:
            return {"error": "failed: gone"}
        return {"seconds": float(len(asked)), "loss": 0.5}

    monkeypatch.setattr(harness, "run", run)
    return asked


def order(jobs):
    return "".join(f"{job['implementation'][0]}{job['rows']}" for job in jobs)


def test_rounds_are_interleaved_and_failures_not_repeated(
    tmp_path, asked, capsys
):
    bench = MadeUp(str(tmp_path / "run"), rows=(2, 8, 9), peer_path=__file__)
    written = harness.measure_all(bench)
    assert order(asked) == "o2g2o2g2" + "o8g8o8"
    assert asked[0] == {
        **{"rows": 2, "implementation": "ours", "peer_path": __file__},
        "threads": harness.cores.usable(),
    }
    told = capsys.readouterr().out.splitlines()
    assert told[0] == "rows 2, ours: ms 1000.00"
    assert told[5] == "rows 8, given: failed: gone"
    assert told[-1].endswith("given: skipped: about 9 GB, see --max_memory_gb")
    assert written["left_out"] == ["peer needs no_such_module"]
    assert written["finished"] and written["prepared"] == ""
    # Of rounds 2/1 and 4/3, not of medians.
    assert written["table"][1]["time/ours"] == "1.67"
    assert [row["case"] for row in written["table"]] == ["rows 2"] * 2 + [
        "rows 8"
    ]
    on_disk = json.loads((tmp_path / "run/bench_test_harness.json").read_text())
    assert on_disk["points"] == written["points"]
    png = (tmp_path / "run/bench_test_harness.png").read_bytes()
    assert png.startswith(b"\x89PNG") and len(list(tmp_path.iterdir())) == 1


def test_an_unfinished_file_is_gone_on_from(tmp_path, asked, monkeypatch):
    bench = MadeUp(str(tmp_path), rows=(2,), peer_path=__file__)
    first = harness.measure_all(bench)
    # A finished one is not: times are measured anew.
    asked.clear()
    harness.measure_all(bench)
    assert order(asked) == "o2g2o2g2"
    file = tmp_path / "bench_test_harness.json"
    points = first["points"]
    other = {"job": points[0]["job"] | {"rows": 3}, "seconds": 1.0, "loss": 1.0}
    failed = {"job": points[1]["job"], "error": "failed: gone"}
    file.write_text(json.dumps({"points": [points[0], failed, other, {}]}))
    asked.clear()
    again = harness.measure_all(bench)
    assert order(asked) == "g2o2g2"
    assert again["points"][0] == points[0]
    # Jobs of other settings stay in the file, and are not of the table.
    assert json.loads(file.read_text())["points"][-1] == other
    assert len(again["table"]) == 2
    monkeypatch.setattr(MadeUp, "DETERMINISTIC", True)
    asked.clear()
    harness.measure_all(bench)
    assert order(asked) == ""


def test_what_is_asked_for_must_be_there(tmp_path):
    def choose(*names, **more):
        return harness.choose(MadeUp(implementations=names, **more))

    assert choose("all") == (
        ["ours"],
        ["peer needs no_such_module", "given needs --peer_path"],
    )
    assert choose("given", "ours", peer_path=__file__)[0] == ["given", "ours"]
    with pytest.raises(ImportError, match="peer needs no_such_module"):
        choose("peer")
    with pytest.raises(ImportError, match="given needs --peer_path"):
        choose("given")
    with pytest.raises(FileNotFoundError, match="path must be a Python file"):
        choose("ours", peer_path=str(tmp_path / "no.py"))


@pytest.mark.parametrize(
    ("name", "overrides", "message"),
    [
        ("loss", {"rows": (512, 513)}, "--rows must be multiples of --views"),
        ("loss", {"rows": ()}, "--rows must have values, numbers positive"),
        ("loss", {"implementations": ("dense", "fast")}, "all, or some of til"),
        ("loss", {"implementations": ("all", "pml")}, "must be all, or some"),
        ("input", {"sizes": (32, 0)}, "--sizes must have values, .* got 32,0"),
        ("input", {"policies": ("all",)}, "--policies must be one of identity"),
        ("input", {"inputs": ("png",)}, "must be one of memory, jpeg, got 'pn"),
        ("step", {"architectures": ("vgg8",)}, "must be one of resnet18, resn"),
        ("step", {"batch_sizes": ()}, "--batch_sizes must have values"),
        ("step", {"chunks": (0,)}, "--chunks must have values, .* got 0"),
        ("step", {"chunks": (1, 3)}, "--chunk_size must divide --batch_sizes"),
        ("step", {"chunk_size": 48}, "--chunk_size must divide --batch_sizes"),
        ("knn", {"k": 9, "bank": 8}, "--k must be at most --bank, 8, got 9"),
        (
            "serving",
            {"images": (1, 0)},
            "--images must have values, .* got 1,0",
        ),
        ("serving", {"concurrency": ()}, "--concurrency must have values"),
        ("learning", {"batch_size": 1}, "--batch_size must be at least 2"),
        ("knn", {"rounds": 0}, "--rounds must be at least 1, got 0"),
    ],
)
def test_broken_rules_are_named(name, overrides, message):
    with pytest.raises(ValueError, match=message):
        BENCHMARKS[name](**overrides)


def test_what_a_process_raises_is_its_result():
    done = harness.run("loss.measure", {"threads": 1})
    assert done["error"].startswith("failed: AttributeError: ")
    done = harness.run("nothing.measure", {"threads": 1})
    assert "No module named 'benchmarks.nothing'" in done["error"]
    with pytest.raises(RuntimeError, match="could not prepare: nothing.make "):
        harness.run_or_fail("nothing.make", {"threads": 1})


def test_the_machine_is_described():
    machine = harness.describe_machine(7)
    assert machine["threads"] == 7 and "\n" not in machine["processor"]
