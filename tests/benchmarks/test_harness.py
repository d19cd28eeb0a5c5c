"""What all benchmarks do, of a suite that measures nothing, and show."""

from __future__ import annotations

import dataclasses
import json
import math
import pathlib
import sys

import numpy as np
import pytest

from benchmarks import harness, measuring, results
from supcon_tf import settings
from tests import forks
from tests.clock import Clock
from tests.tool_settings import BENCHMARKS

ROOT = pathlib.Path(__file__).parent.parent.parent


@dataclasses.dataclass(frozen=True)
class MadeUp(harness.Bench):
    """Settings of a benchmark that measures nothing."""

    NEEDS = {
        "ours": (),
        "peer": ("no_such_module",),
        "given": ("--peer_path", "json"),
    }
    AXES = {"rows": "rows"}
    COLUMNS = (
        results.Column("ms", lambda p: 1e3 * p["seconds"], plotted=True),
    )
    PEERS = ("ours",)
    AGREEING = {"loss": 1e-4}

    run_dir: str = "runs/made_up"
    rows: tuple[int, ...] = (2, 8)
    """Sizes."""
    peer_path: str | None = None
    """A file."""
    rounds: int = settings.setting(2, at_least=1)
    """Rounds."""
    max_memory_gb: float = settings.setting(8.0, above=0)
    """At most."""

    def expected_gb(self, job, points):
        return float(job["rows"])


@pytest.fixture
def jobs(monkeypatch):
    """Answers in place of processes; the jobs they were given."""
    jobs = []

    def run(function, job, device):
        assert function == "test_harness.measure"
        assert pathlib.Path(job.pop("folder")).is_dir()
        jobs.append(job)
        if job["implementation"] == "given" and job["rows"] == 8:
            return {"error": "failed: gone"}
        return {"seconds": float(len(jobs)), "loss": 0.5}

    monkeypatch.setattr(harness, "run", run)
    return jobs


def order(jobs):
    return "".join(f"{job['implementation'][0]}{job['rows']}" for job in jobs)


def test_rounds_are_interleaved_failures_not_repeated(tmp_path, jobs, capsys):
    bench = MadeUp(str(tmp_path / "run"), rows=(2, 8, 9), peer_path=__file__)
    written = harness.measure_all(bench)
    assert order(jobs) == "o2g2o2g2" + "o8g8o8"
    assert jobs[0].keys() == {"rows", "implementation", "peer_path", "threads"}
    lines_printed = capsys.readouterr().out.splitlines()
    assert lines_printed[0] == "rows 2, ours: ms 1000.00"
    assert lines_printed[5] == "rows 8, given: failed: gone"
    assert lines_printed[-1].endswith(
        "given: skipped: about 9 GB, see --max_memory_gb"
    )
    assert written["left_out"] == ["peer needs no_such_module"]
    assert written["finished"] and written["prepared"] == ""
    # Of rounds 2/1 and 4/3, not of medians.
    assert written["table"][1]["time/ours"] == "1.67"
    cases = [row["case"] for row in written["table"]]
    assert cases == ["rows 2", "rows 2", "rows 8"]
    on_disk = json.loads((tmp_path / "run/bench_test_harness.json").read_text())
    assert on_disk["points"] == written["points"]
    png = (tmp_path / "run/bench_test_harness.png").read_bytes()
    assert png.startswith(b"\x89PNG") and len(list(tmp_path.iterdir())) == 1


def test_an_unfinished_file_is_gone_on_from(tmp_path, jobs, monkeypatch):
    # The figure, which takes longest, is in the test above.
    monkeypatch.setattr(results.files, "write_figure", lambda *_, **__: None)
    bench = MadeUp(str(tmp_path), rows=(2,), peer_path=__file__)
    first = harness.measure_all(bench)
    # A finished one is not: times are measured anew.
    jobs.clear()
    harness.measure_all(bench)
    assert order(jobs) == "o2g2o2g2"
    file = tmp_path / "bench_test_harness.json"
    points = first["points"]
    other = {"job": points[0]["job"] | {"rows": 3}, "seconds": 1.0, "loss": 1.0}
    failed = {"job": points[1]["job"], "error": "failed: gone"}
    file.write_text(json.dumps({"points": [points[0], failed, other, {}]}))
    jobs.clear()
    results_again = harness.measure_all(bench)
    assert order(jobs) == "g2o2g2"
    assert results_again["points"][0] == points[0]
    # Jobs of other settings stay in the file, and are not of the table.
    assert json.loads(file.read_text())["points"][-1] == other
    assert len(results_again["table"]) == 2
    monkeypatch.setattr(MadeUp, "DETERMINISTIC", True)
    jobs.clear()
    harness.measure_all(bench)
    assert order(jobs) == ""


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
        ("loss", {"implementations": ("dense", "fast")}, "all, or some of til"),
        ("input", {"sizes": (32, 0)}, "--sizes must have values, .* got 32,0"),
        ("input", {"policies": ("all",)}, "--policies must be one of identity"),
        (
            "input",
            {"inputs": ("png",)},
            "must be one of memory, jpeg, tfrecord, got 'pn",
        ),
        ("step", {"architectures": ("vgg8",)}, "must be one of resnet18, resn"),
        ("step", {"batch_sizes": ()}, "--batch_sizes must have values"),
        ("step", {"chunk_size": 48}, "--chunk_size must divide --batch_sizes"),
        ("knn", {"k": 9, "bank": (8,)}, "--k must be at most --bank, 8, got 9"),
        ("serving", {"images": (1, 0)}, "--images must .* positive, got 1,0"),
    ],
)
def test_broken_rules_are_named(name, overrides, message):
    with pytest.raises(ValueError, match=message):
        BENCHMARKS[name](**overrides)


def test_what_a_process_raises_is_its_result():
    result = harness.run("loss.measure", {"threads": 1})
    assert result["error"].startswith("failed: AttributeError: ")
    result = harness.run("nothing.measure", {"threads": 1})
    assert "No module named 'benchmarks.nothing'" in result["error"]
    with pytest.raises(RuntimeError, match="could not prepare: nothing.make f"):
        harness.run_or_fail("nothing.make", {"threads": 1})


@pytest.mark.parametrize(
    ("name", "argument", "message"),
    [
        ("loss", "--official_path=no.py", "must be a Python file"),
        ("input", "--data_dir=/nowhere", "--data_dir must be a folder"),
        ("learning", "--implementations=supcontrast", "supcontrast needs "),
    ],
)
def test_wrong_input_is_one_line_and_leaves_nothing(
    name, argument, message, tmp_path
):
    process = forks.run(ROOT / f"benchmarks/{name}.py", argument, cwd=tmp_path)
    assert process.returncode == 1
    line = process.stderr.strip().splitlines()[-1]
    assert line.startswith("error: ") and message in line
    assert "Traceback" not in process.stderr and not any(tmp_path.iterdir())


class Shown(MadeUp):
    """The same with all that a table may have."""

    ERROR = results.Column("error", lambda p: p.get("error of"), ".1e")
    COLUMNS = (*MadeUp.COLUMNS, results.SPREAD, results.MEMORY, ERROR)
    PEERS = ("tiled", "dense")
    AGREEING = {"loss": 1e-4, "norm": 1e-4}

    def notes(self, points):
        return ["a note"]


BENCH = Shown()


def rounds(name, *times, rows=512, peak_mb=10.0, **more):
    return [
        {
            "job": {"rows": rows, "implementation": name},
            **{"seconds": seconds, "peak_mb": peak_mb + index},
            **more,
        }
        for index, seconds in enumerate(times)
    ]


def table(*points):
    cases = results.cases_of(BENCH.AXES, [p for of in points for p in of])
    return [
        {"case": name, "": of} | results.summarize(BENCH, row, case)
        for name, case in cases.items()
        for of, row in case.items()
    ]


def test_ratios_are_taken_within_rounds():
    tiled, dense = table(
        rounds("tiled", 1.0, 10.0, 2.0),
        rounds("dense", 3.0, 10.0, 10.0, peak_mb=60.0),
    )
    assert tiled["ms"] == "2000.00" and tiled["spread"] == "10.00"
    assert tiled["time/tiled"] == tiled["memory/tiled"] == "1.00"
    # Of 3, 1 and 5; not 10 / 2 of the medians. Of memory 60 / 10, 61 / 11, ...
    assert dense["time/tiled"] == "3.00" and dense["MB"] == "62.0"
    assert dense["memory/tiled"] == "5.55" and dense["time/dense"] == "1.00"


def test_an_overview_has_half_the_range_behind_medians():
    points = [
        *rounds("tiled", 1.0, 1.2, 1.5),
        *rounds("dense", 3.0),
        *rounds("tiled", 2.0, rows=64),
    ]
    text = results.overview(BENCH, results.cases_of(BENCH.AXES, points))
    cells = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in text.splitlines()
    ]
    assert cells[0] == ["ms, MB", "tiled", "dense"]
    # (1.5 - 1) / 2 / 1.2; memory is the largest of all rounds.
    assert cells[2] == ["rows 512", "1,200.00 ±21%, 12.0", "3,000.00, 10.0"]
    assert cells[3] == ["rows 64", "2,000.00, 10.0", "-"]


def test_no_memory_ratio_over_nothing_and_none_without_the_peer():
    _, dense = table(rounds("tiled", 1.0, peak_mb=0.0), rounds("dense", 2.0))
    assert dense["time/tiled"] == "2.00" and "memory/tiled" not in dense
    (gone,) = rounds("tiled", 1.0)
    failed = {"job": gone["job"], "error": "failed: ended by SIGKILL"}
    (dense,) = table([gone, failed], rounds("dense", 2.0))
    assert "time/tiled" not in dense
    # At another size it is no peer.
    first, _ = table(rounds("dense", 2.0), rounds("tiled", 1.0, rows=64))
    assert "time/tiled" not in first


def test_what_disagrees_with_the_first_peer_is_named():
    points = [
        *rounds("floor", 1.0),
        *rounds("supcontrast", 1.0, loss=0.50004),
        *rounds("official", 1.0, loss=0.5001, norm=math.nan),
        *rounds("tiled", 1.0, 1.0, loss=0.5, norm=0.2),
        *rounds("dense", 1.0, rows=64, loss=9.0),
    ]
    cases = results.cases_of(BENCH.AXES, points)
    assert results.disagreements(BENCH, cases) == [
        "rows 512 official: loss 0.5001, but tiled has 0.5",
        "rows 512 official: norm nan, but tiled has 0.2",
    ]


def test_the_description_has_it_all():
    points = rounds("tiled", 1.0, **{"error of": 4e-7}) + rounds("dense", 2.0)
    job = {"rows": 512, "implementation": "pml"}
    points.append({"job": job, "error": "skipped: about 12 GB"})
    written = {"points": points, "table": table(points)}
    written |= {"disagreements": [], "left_out": ["official needs it"]}
    lines = results.describe(BENCH, written).splitlines()
    assert len({len(line) for line in lines[:4]}) == 1
    row = "rows 512|tiled|1000.00|1.00|10.0|4.0e-07|1.00|1.00|0.50|1.00"
    assert lines[2].replace(" ", "") == f"|{row}|".replace(" ", "")
    assert [cell.strip() for cell in lines[3].split("|")][6:8] == ["-", "2.00"]
    assert lines[4] == "" and "tiled" in lines[5] and "dense" in lines[5]
    assert lines[8:10] == ["a note", "rows 512, pml: skipped: about 12 GB"]
    assert lines[10:] == ["agree: loss, norm", "left out: official needs it"]
    written["disagreements"] = ["one is another"]
    assert "DISAGREES: one is another" in results.describe(BENCH, written)


def test_a_peers_file_finds_its_siblings(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "peers").mkdir()
    (tmp_path / "peers" / "constants.py").write_text("ANSWER = 42\n")
    file = tmp_path / "peers" / "losses.py"
    file.write_text("from peers.constants import ANSWER\n")
    assert measuring.load_file(file).ANSWER == 42


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
    # Too large for what the allocator keeps of freed memory.
    block = np.ones(100_000_000, np.uint8)
    del block
    if sys.platform == "linux":
        assert 95 < measuring.peak_mb() - before < 130
