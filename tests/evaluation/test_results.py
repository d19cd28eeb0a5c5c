"""The text of evaluation.json, and the table of the tools."""

import json

from supcon_tf import evaluation, scores

LINEAR = {"top_1": 0.5, "top_5": 0.75, "ece": 0.1, "nll": 1.25}
FULL = {
    "dataset": "digits",
    "linear": LINEAR,
    "knn": {"top_1": 0.25},
    "prototype": {"top_1": 0.125},
    "retrieval": {"recall_at": {"1": 0.4}, "map_at_r": 0.3},
    "corruptions": {
        "linear": {"mean_corruption_error_unnormalized": 0.6, "mce": 87.5}
    },
}


def test_json_has_a_line_per_part_and_loses_nothing():
    text = scores.to_json(FULL)
    assert json.loads(text) == FULL
    assert len(text.splitlines()) == len(FULL) + 2


def test_table_is_side_by_side():
    table = evaluation.results_table({"first": FULL, "second": FULL})
    header, *rows = table.splitlines()
    assert header.split() == ["first", "second"]
    assert len({len(line) for line in [header, *rows]}) == 1
    rows = [" ".join(row.split()) for row in rows]
    assert rows[0] == "linear top-1 0.5000 0.5000"
    # Plain means and mCE have rows of their own.
    assert "mean corruption error (plain) 0.6000 0.6000" in rows
    assert "mCE (%) 87.5000 87.5000" in rows
    assert "relative mCE (%)" not in table  # of no run


def test_scores_not_run_are_said_and_scores_of_no_run_left_out():
    only_knn = {"knn": {"top_1": 0.25}}
    table = evaluation.results_table({"run": only_knn})
    assert "linear top-1 not run" in " ".join(table.split())
    assert "stage 1" not in table and "mCE" not in table
    comparison = evaluation.results_table({"run": only_knn, "other": FULL})
    assert "mCE (%) not run 87.5000" in " ".join(comparison.split())
