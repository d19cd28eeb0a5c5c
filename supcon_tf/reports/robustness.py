"""Accuracy and calibration on corrupted images, the paper's Fig. 3."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from supcon_tf import scores
from supcon_tf.reports import contents, figures, numbers


def robustness(runs: Sequence[contents.Run]) -> dict[str, object]:
    """Two figures against severity, and two tables."""
    results = {i: x for i, run in enumerate(runs) if (x := run.robustness())}
    if not results:
        return {}
    return {
        "legend": {index: runs[index].name for index in results},
        "runs": [runs[index] for index in results],
        "curves": [
            _curve(results, "top_1", "Accuracy", "top-1; higher is better"),
            _curve(
                results, "ece", "Calibration error (ECE)", "lower is better"
            ),
        ],
        "by_corruption": _by_corruption([*results.values()]),
        "means": _means([*results.values()]),
        "conditions": _conditions(runs),
    }


def _curve(
    results: Mapping[int, Mapping], key: str, title: str, note: str
) -> dict[str, str]:
    """A measure against severity."""
    means = {
        index: _with_clean(of_run, of_run["by_severity"], key)
        for index, of_run in results.items()
    }
    singles = {
        index: [_with_clean(of_run, x, key) for x in of_run["results"].values()]
        for index, of_run in results.items()
    }
    words = "; ".join(
        f"line {index + 1}: "
        + ", ".join(f"{x}: {y:.3f}" for x, y in sorted(line.items()))
        for index, line in means.items()
    )
    drawing = figures.plot_severities(
        means,
        singles,
        f"{title} by severity of corruption. {words}",
        in_percent=key == "top_1",
    )
    return {"title": title, "note": note, "drawing": drawing}


def _with_clean(
    results: Mapping, line: Mapping[str, Mapping], key: str
) -> dict[int, float]:
    """A measure by severity, with clean images at 0."""
    values = {int(severity): x.get(key) for severity, x in line.items()}
    values[0] = scores.value_at(results, f"clean.{key}")
    return {x: y for x, y in values.items() if y is not None}


def _by_corruption(results: Sequence[Mapping]) -> dict[str, list[float | None]]:
    """Accuracy of each corruption and run, a mean over the severities."""
    rows = {name: [] for x in results for name in x["results"]}
    for name, means in rows.items():
        for of_run in results:
            single = of_run["results"].get(name, {}).values()
            known = [x["top_1"] for x in single if x.get("top_1") is not None]
            means.append(statistics.fmean(known) if known else None)
    return rows


def _means(results: Sequence[Mapping]) -> list[tuple[scores.Score, list[str]]]:
    """Scores over all corruptions, a text per run."""
    rows = []
    for score in scores.table("corruptions"):
        _, _, path = score.path.partition(".linear.")
        if not path:
            continue
        values = (scores.value_at(of_run, path) for of_run in results)
        texts = [numbers.score_text(score, value) for value in values]
        if {*texts} != {"–"}:
            rows.append((score, texts))
    return rows


def _conditions(runs: Sequence[contents.Run]) -> dict[str, list[str]]:
    """Which images were corrupted and by what, each with the runs' names."""
    lines: dict[str, list[str]] = {}
    for run in runs:
        known = run.evaluation.get("corruptions", {})
        if "images" in known:
            line = f"{known['images']:,} test images, corruptions "
            line += known.get("source", "unknown")
            if reference := known.get("reference"):
                name = "AlexNet" if reference == "alexnet" else reference
                line += f", reference {name}"
            lines.setdefault(line, []).append(run.name)
    return lines
