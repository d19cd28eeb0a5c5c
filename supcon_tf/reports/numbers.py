"""The format of numbers on the page, and the tables of scores."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from supcon_tf import scores
from supcon_tf.reports import contents


class Cell(NamedTuple):
    """A cell of a table of scores: a row per score, a column per run.

    Attributes:
      text: the value.
      is_best: whether no other run of the row is better, and some are worse.
      change: the difference to the first run, with its sign; "" for none.
    """

    text: str
    is_best: bool
    change: str


def number(value: float | None, digits: int = 3) -> str:
    """A number with a true minus; a dash for one that is absent."""
    if not _is_finite(value):
        return "–"
    return f"{value:,.{digits}f}".replace("-", "−")


def percent(share: float | None, digits: int = 1) -> str:
    """A share as a percentage."""
    if not _is_finite(share):
        return "–"
    return f"{number(100 * share, digits)}\N{NO-BREAK SPACE}%"


def score_text(score: scores.Score, value: float | None) -> str:
    """The value of a score in its unit."""
    if score.unit == "share":
        return percent(value)
    return number(value, 1 if score.unit == "percent" else 3)


def depths(runs: Sequence[contents.Run]) -> list[int]:
    """Every k of recall@k that was measured, rising."""
    measured = {
        int(k)
        for run in runs
        for k in run.evaluation.get("retrieval", {}).get("recall_at", {})
    }
    return sorted(measured)


def score_rows(
    runs: Sequence[contents.Run], table: Sequence[scores.Score]
) -> dict[scores.Score, list[Cell]]:
    """A row per score that some run has, a cell per run."""
    rows = {}
    for score in table:
        values = [scores.value_at(run.evaluation, score.path) for run in runs]
        if any(map(_is_finite, values)):
            rows[score] = _cells(score, values)
    return rows


def _is_finite(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def _cells(score: scores.Score, values: Sequence[float | None]) -> list[Cell]:
    texts = [score_text(score, value) for value in values]
    best = None
    # Texts are compared: values that round to the same text are equal.
    if score.better and len({*texts} - {"–"}) > 1:
        choose = max if score.better == "higher" else min
        best = score_text(score, choose(filter(_is_finite, values)))
    return [
        Cell(text, text == best, _change(score, value, values[0]) if i else "")
        for i, (text, value) in enumerate(zip(texts, values, strict=True))
    ]


def _change(
    score: scores.Score, value: float | None, base: float | None
) -> str:
    """`value - base` with its sign; for shares, in points."""
    if not _is_finite(value) or not _is_finite(base):
        return ""
    scale = 100 if score.unit == "share" else 1
    digits = 3 if score.unit == "number" else 1
    change = round(scale * (value - base), digits)
    sign = "+" if change > 0 else "" if change < 0 else "±"
    return f"{sign}{number(change + 0.0, digits)}"
