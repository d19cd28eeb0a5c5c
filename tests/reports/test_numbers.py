from __future__ import annotations

import pytest

from supcon_tf import scores
from supcon_tf.reports import numbers
from tests.reports import run_files


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (numbers.number(1234.5), "1,234.500"),
        (numbers.number(-0.25), "−0.250"),
        (numbers.number(None), "–"),
        (numbers.number(float("inf")), "–"),
        (numbers.percent(0.5), "50.0\N{NO-BREAK SPACE}%"),
        (numbers.percent(float("nan")), "–"),
    ],
)
def test_numbers_are_typeset(value, text):
    assert value == text


def cells(path, *values):
    """Cells of a score that runs have, or None; the best one ends in !."""
    part, key = path.rsplit(".", 1)
    runs = [
        run_files.bare_run(evaluation={part: {key: value}}) for value in values
    ]
    (cells,) = numbers.score_rows(runs, [scores.find(path)]).values()
    return [
        f"{cell.text}{'!' if cell.is_best else ''} {cell.change}".strip()
        for cell in cells
    ]


@pytest.mark.parametrize(
    ("path", "values", "texts"),
    [
        # The better run is marked, and the difference to the first stated.
        ("linear.top_1", (0.5, 0.625), ["50.0\xa0%", "62.5\xa0%! +12.5"]),
        ("linear.ece", (0.1, 0.15, None), ["0.100!", "0.150 +0.050", "–"]),
        ("linear.ece", (0.1, float("nan")), ["0.100", "–"]),
        # Not what looks the same, one run, or a score without a direction.
        ("linear.top_1", (0.50001, 0.50002), ["50.0\xa0%", "50.0\xa0% ±0.0"]),
        ("linear.top_1", (0.994,), ["99.4\xa0%"]),
        ("representations.alignment", (0.2, 0.1), ["0.200", "0.100 −0.100"]),
    ],
)
def test_a_row_of_scores(path, values, texts):
    assert cells(path, *values) == texts


def test_scores_of_no_run_have_no_row():
    assert not numbers.score_rows([run_files.bare_run()], scores.SCORES)


def test_recall_has_a_row_for_each_depth_in_their_order():
    runs = [
        run_files.bare_run(evaluation={"retrieval": {"recall_at": recalls}})
        for recalls in ({"10": 0.9}, {"2": 0.7, "10": 0.8})
    ]
    titles = [scores.recall_at(k).title for k in numbers.depths(runs)]
    assert titles == ["Recall@2", "Recall@10"]
