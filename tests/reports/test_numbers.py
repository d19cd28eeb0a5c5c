from __future__ import annotations

import pytest

from supcon_tf import scores
from supcon_tf.reports import numbers
from tests.reports import run_files


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1234.5, "1,234.500"),
        (-0.25, "−0.250"),
        (None, "–"),
        (float("inf"), "–"),
    ],
)
def test_numbers(value, text):
    assert numbers.number(value) == text


def test_percentages_are_not_broken():
    assert numbers.percent(0.5) == "50.0\N{NO-BREAK SPACE}%"
    assert numbers.percent(float("nan")) == "–"


def cells(path, *values):
    """Cells of a score that runs have, or None; the best one ends in !."""
    part, key = path.rsplit(".", 1)
    runs = [
        run_files.bare_run(evaluation={part: {key: value}}) for value in values
    ]
    (row,) = numbers.score_rows(runs, [scores.find(path)])
    return [
        f"{cell.text}{'!' if cell.is_best else ''} {cell.change}".strip()
        for cell in row.cells
    ]


def test_the_better_run_is_marked_and_the_difference_stated():
    top_1 = cells("linear.top_1", 0.5, 0.625, None)
    assert top_1 == ["50.0\xa0%", "62.5\xa0%! +12.5", "–"]
    ece = cells("linear.ece", 0.1, 0.15, float("nan"))
    assert ece == ["0.100!", "0.150 +0.050", "–"]


def test_what_looks_the_same_is_not_marked():
    shown = cells("linear.top_1", 0.50001, 0.50002)
    assert shown == ["50.0\xa0%", "50.0\xa0% ±0.0"]


def test_one_run_has_no_best():
    assert cells("linear.top_1", 0.994) == ["99.4\xa0%"]


def test_a_score_without_a_direction_has_no_best():
    shown = cells("representations.alignment", 0.2, 0.1)
    assert shown == ["0.200", "0.100 −0.100"]


def test_what_no_run_has_is_no_row():
    assert not numbers.score_rows([run_files.bare_run()], scores.SCORES)


def test_recall_has_a_row_for_each_depth_in_their_order():
    runs = [
        run_files.bare_run(evaluation={"retrieval": {"recall_at": x}})
        for x in ({"10": 0.9}, {"2": 0.7, "10": 0.8})
    ]
    found = [score.title for score in numbers.recalls(runs)]
    assert found == ["Recall@2", "Recall@10"]


@pytest.mark.parametrize(
    ("share", "count", "low", "high"),
    # Wilson intervals as published in textbooks: 8 of 10, and 0 of 20.
    [(0.8, 10, 0.4902, 0.9433), (0.0, 20, 0.0, 0.1611)],
)
def test_uncertainty_is_half_of_wilsons_interval(share, count, low, high):
    half = numbers.uncertainty(share, count)
    assert half == pytest.approx((high - low) / 2, abs=2e-4)
