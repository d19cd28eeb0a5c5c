from __future__ import annotations

import re

import pytest

from supcon_tf.reports import results
from tests.reports import run_files


def run_of(top_1, ece, name="run"):
    linear = {"top_1": top_1, "ece": ece}
    return run_files.bare_run(name, evaluation={"linear": linear})


def cells_of(table):
    """Rows of cells as text; the best one ends in !."""
    rows = re.findall("<tr>(.*?)</tr>", table)
    text = table and [
        [
            re.sub("<[^>]*>", " ", x.replace("</span>", "!")).split()
            for x in re.findall("<t[hd].*?</t[hd]>", row)
        ]
        for row in rows
    ]
    return [[" ".join(cell) for cell in row] for row in text]


def test_one_run():
    table = results.results_table([run_of(0.994, 0.02449)], results.KEY, "x")
    rows = cells_of(table)
    assert rows[0] == ["", "run"]
    assert rows[1][1] == "99.4 %"
    assert rows[2][0].startswith("Calibration error (ECE)")
    assert rows[2][1] == "0.024"
    assert len(rows) == 3  # nothing else was measured


def test_the_better_run_is_marked_and_the_difference_stated():
    runs = [run_of(0.5, 0.1, "a"), run_of(0.625, 0.15, "b")]
    runs.append(run_of(None, float("nan"), "c"))
    rows = cells_of(results.results_table(runs, results.KEY, "x"))
    assert rows[1][1:] == ["50.0 %", "62.5 %! +12.5", "–"]
    assert rows[2][1:] == ["0.100!", "0.150 +0.050", "–"]


def test_what_looks_the_same_is_not_marked():
    runs = [run_of(0.50001, 0.1, "a"), run_of(0.50002, 0.1, "b")]
    rows = cells_of(results.results_table(runs, results.KEY, "x"))
    assert rows[1][1:] == ["50.0 %", "50.0 % ±0.0"]


def test_a_measure_without_a_direction_has_no_best():
    runs = [
        run_files.bare_run(n, evaluation={"representations": {"alignment": v}})
        for n, v in (("a", 0.2), ("b", 0.1))
    ]
    rows = cells_of(results.results_table(runs, [results.ALIGNMENT], "x"))
    assert rows[1][1:] == ["0.200", "0.100 −0.100"]


def test_no_results_are_no_table():
    assert not results.results_table(
        [run_files.bare_run()], results.all_measures([]), "x"
    )


@pytest.mark.parametrize(
    ("share", "count", "low", "high"),
    # Wilson intervals as published in textbooks: 8 of 10, and 0 of 20.
    [(0.8, 10, 0.4902, 0.9433), (0.0, 20, 0.0, 0.1611)],
)
def test_uncertainty_is_half_of_wilsons_interval(share, count, low, high):
    half = results.uncertainty(share, count)
    assert half == pytest.approx((high - low) / 2, abs=2e-4)
