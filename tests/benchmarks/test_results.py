"""Table, disagreements and figure, from made-up measurements."""

from __future__ import annotations

import math
import types

import pytest

from benchmarks import results

BENCH = types.SimpleNamespace(
    AXES={"rows": "rows"},
    COLUMNS=(
        results.Column("ms", lambda p: 1e3 * p["seconds"], drawn=True),
        results.SPREAD,
        results.MEMORY,
        results.Column("error", lambda p: p.get("error of"), ".1e"),
    ),
    PEERS=("tiled", "dense"),
    AGREEING={"loss": 1e-4, "norm": 1e-4},
    LOGARITHMIC=True,
    notes=lambda points: ["a note"],
)


def rounds(name, *times, rows=512, peak_mb=10.0, **more):
    return [
        {
            "job": {"rows": rows, "implementation": name},
            "seconds": seconds,
            "peak_mb": peak_mb + index,
            **more,
        }
        for index, seconds in enumerate(times)
    ]


def table(*points):
    cases = results.cases_of(BENCH.AXES, [p for of in points for p in of])
    return [
        results.summarize(BENCH, row, case)
        for case in cases.values()
        for row in case.values()
    ]


def test_ratios_are_taken_within_rounds():
    tiled, dense = table(
        rounds("tiled", 1.0, 10.0, 2.0),
        rounds("dense", 3.0, 10.0, 10.0, peak_mb=60.0),
    )
    assert tiled["ms"] == "2000.00" and tiled["spread"] == "10.00"
    assert tiled["time/tiled"] == tiled["memory/tiled"] == "1.00"
    assert "error" not in tiled
    # Of 3, 1 and 5; not 10 / 2 of the medians. Of memory 60 / 10, 61 / 11, ...
    assert dense["time/tiled"] == "3.00" and dense["MB"] == "62.0"
    assert dense["memory/tiled"] == "5.55" and dense["time/dense"] == "1.00"


def test_no_memory_ratio_over_nothing_and_none_without_the_peer():
    _, dense = table(rounds("tiled", 1.0, peak_mb=0.0), rounds("dense", 2.0))
    assert dense["time/tiled"] == "2.00" and "memory/tiled" not in dense
    gone = rounds("tiled", 1.0)[0]
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
    points = rounds("tiled", 1.0) + rounds("dense", 2.0)
    points[0]["error of"] = 4e-7
    job = {"rows": 512, "implementation": "pml"}
    points.append({"job": job, "error": "skipped: about 12 GB"})
    cases = results.cases_of(BENCH.AXES, points)
    written = {
        "points": points,
        "table": [
            {"case": case, "": name} | results.summarize(BENCH, row, of_case)
            for case, of_case in cases.items()
            for name, row in of_case.items()
        ],
        "disagreements": [],
        "left_out": ["official needs --official_path"],
    }
    lines = results.describe(BENCH, written).splitlines()
    cells = [[cell.strip() for cell in line.split("|")] for line in lines]
    assert len({len(line) for line in lines[:4]}) == 1
    assert cells[0][1:-1] == [
        *("case", "", "ms", "spread", "MB", "error"),
        *("time/tiled", "memory/tiled", "time/dense", "memory/dense"),
    ]
    assert set(cells[1][1:-1]) <= {"-" * n + ":" for n in range(30)}
    assert cells[2][1:7] == "rows 512|tiled|1000.00|1.00|10.0|4.0e-07".split(
        "|"
    )
    assert cells[3][6] == "-"
    assert lines[4:] == [
        *("a note", "rows 512, pml: skipped: about 12 GB", "agree: loss, norm"),
        "left out: official needs --official_path",
    ]
    written["disagreements"] = ["one is another"]
    assert "DISAGREES: one is another" in results.describe(BENCH, written)
    assert "agree:" not in results.describe(BENCH, written)


def test_every_implementation_is_drawn(tmp_path):
    points = [
        point
        for rows in (512, 2048)
        for name in ("tiled", "dense")
        for point in rounds(name, 1.0, 3.0, 2.0, rows=rows, peak_mb=0.0)
    ]
    cases = results.cases_of(BENCH.AXES, points[:-3])
    drawn = results.plot(BENCH, cases)
    assert [axes.get_title() for axes in drawn.axes] == ["ms", "MB"]
    time = drawn.axes[0]
    assert [line.get_label() for line in time.lines] == ["tiled", "dense"]
    assert list(time.lines[0].get_xdata()) == ["rows 512", "rows 2048"]
    assert list(time.lines[0].get_ydata()) == [2000.0, 2000.0]
    assert time.collections[0].get_segments()[0][:, 1] == pytest.approx(
        [1000.0, 3000.0]
    )
    assert time.get_yscale() == "log" and len(time.lines[1].get_xdata()) == 1
    drawn.savefig(tmp_path / "figure.png")
    results.plot(BENCH, {}).savefig(tmp_path / "figure.png")
