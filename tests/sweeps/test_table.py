"""The table of a sweep, on results that were never measured."""

from __future__ import annotations

import pytest

from supcon_tf.sweeps import table
from tests.sweeps.results import make_results


def by_temperature(values):
    top_1 = 1 - abs(values["temperature"] - 0.1) - values.get("seed", 0) / 100
    return {"linear.top_1": top_1, "linear.ece": values["temperature"]}


def rows(results):
    lines = table.sweep_table(results).splitlines()
    return [
        [cell.strip() for cell in line.strip("|").split(" | ")]
        for line in lines
        if line.startswith("|")
    ]


def test_a_row_per_cell_and_the_best_marked():
    results = make_results(
        {"temperature": [0.05, 0.1, 0.5], "optimizer": ["lars"]}, by_temperature
    )
    assert rows(results)[0] == (
        ["temperature", "optimizer", "linear top-1", "linear ECE", "time"]
    )
    assert rows(results)[2:] == [
        ["0.05", "lars", "0.9500", "0.0500", "40 s"],
        ["0.1", "lars", "**1.0000**", "0.1000", "40 s"],
        ["0.5", "lars", "0.6000", "0.5000", "40 s"],
    ]
    lengths = map(len, table.sweep_table(results).split("\n"))
    assert len({*lengths}) == 1


def test_published_numbers_stand_beside_ours():
    results = make_results({"temperature": [0.05, 0.1]}, by_temperature)
    (head, _, *body) = rows(results | {"published": [78.7, 0.0]})
    assert head[:3] == ["temperature", "published", "linear top-1"]
    assert [row[1] for row in body] == ["78.7", "-"]


@pytest.mark.parametrize(
    ("metric", "title", "best"),
    [
        ("linear.ece", "linear ECE", "**0.0500**"),
        ("representations.alignment", "alignment", "0.0500"),  # no direction
    ],
)
def test_the_best_is_the_best_of_its_kind(metric, title, best):
    results = make_results(
        {"temperature": [0.5, 0.05]},
        lambda values: {metric: values["temperature"]},
        metric=metric,
    )
    assert rows(results)[0][1] == title
    assert [row[1] for row in rows(results)[2:]] == ["0.5000", best]


def test_seeds_are_one_row_of_mean_and_deviation():
    results = make_results(
        {"seed": [0, 1, 2], "temperature": [0.1, 0.2]},
        by_temperature,
        statuses={4: "pending"},
    )
    titles, _, first, second = rows(results)
    assert titles[:4] == ["temperature", "runs", "linear top-1", "to the first"]
    assert first[:4] == ["0.1", "2/3", "**0.9950 ± 0.0071**", "-"]
    # Two pairs: of four choices of signs, two are as far from zero.
    assert second[:4] == ["0.2", "3", "0.8900 ± 0.0100", "-0.1000, p 0.500"]
    assert second[-1] == "2 min 0 s"


def test_differences_are_of_pairs_and_their_p_is_by_signs():
    """Far smaller than the spread over draws, and yet no chance."""

    def metrics(values):
        gain = 0.01 * (values["objective"] == "supcon") * (values["draw"] != 4)
        return {"linear.top_1": values["draw"] / 10 + gain}

    results = make_results(
        {"draw": [*range(5)], "objective": ["ce", "supcon"]}, metrics
    )
    assert rows(results)[3][:3] == ["supcon", "5", "**0.2080 ± 0.1550**"]
    assert rows(results)[3][3] == "+0.0080, p 0.125"  # 2 of 2^4 choices


def test_means_that_differ_by_rounding_are_equally_large():
    """3, 5, 7 and -5 images of 10,000: 8 of 2^4 signs give 10 or more."""
    hits = {"ce": (8334, 7777, 7429, 7192), "supcon": (8337, 7782, 7436, 7187)}
    results = make_results(
        {"seed": [0, 1, 2, 3], "objective": [*hits]},
        lambda values: {
            "linear.top_1": hits[values["objective"]][values["seed"]] / 10_000
        },
    )
    assert rows(results)[3][3] == "+0.0003, p 0.500"


@pytest.mark.parametrize(
    ("gain", "text"), [(0, "+0.0000, p 1.000"), (1, "+1.0000, p < 0.001")]
)
def test_no_difference_is_one_that_was_measured(gain, text):
    """And no p is zero, be the pairs as many as they are."""
    results = make_results(
        {"seed": [*range(12)], "objective": ["ce", "supcon"]},
        lambda values: {
            "linear.top_1": gain * (values["objective"] == "supcon")
        },
    )
    assert [row[3] for row in rows(results)[2:]] == ["-", text]


def test_what_failed_is_listed_with_its_log():
    results = make_results(
        {"temperature": [0.1, 0.2, 0.3]},
        by_temperature,
        statuses={0: "failed", 1: "pending"},
    )
    _, _, failed, pending, finished = rows(results)
    assert failed == ["0.1", "-", "-", "failed"]
    assert pending[-1] == "pending"
    assert finished[1] == "**0.8000**"
    assert table.sweep_table(results).endswith(
        "1 failed:\n\n- temperature=0.1, pretraining: FloatingPointError: loss "
        "| nan; runs/s/cells/0/log.txt"
    )


def test_a_sweep_without_results_has_a_table():
    results = make_results(
        {"positives_cap": [None, 3], "flip": [True]},
        by_temperature,
        statuses={0: "pending", 1: "running"},
    )
    assert rows(results)[2:] == [
        ["none", "true", "-", "pending"],
        ["3", "true", "-", "running"],
    ]


def test_times_are_readable():
    texts = {0.4: "0 s", 59.6: "1 min 0 s", 3725: "1 h 2 min", 72: "1 min 12 s"}
    for seconds, text in texts.items():
        assert table.duration(seconds) == text
