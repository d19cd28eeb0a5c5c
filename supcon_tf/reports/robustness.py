"""Accuracy and calibration on corrupted images, the paper's Fig. 3."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from supcon_tf import scores
from supcon_tf.reports import contents, figures, numbers


def robustness(runs: Sequence[contents.Run]) -> dict[str, object]:
    """Two figures against severity, and two tables."""
    results = {index: run.robustness() for index, run in enumerate(runs)}
    results = {index: result for index, result in results.items() if result}
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
    """The figure of a measure against severity."""
    means = {
        index: _values_by_severity(result, result["by_severity"], key)
        for index, result in results.items()
    }
    singles = {
        index: [
            _values_by_severity(result, severities, key)
            for severities in result["results"].values()
        ]
        for index, result in results.items()
    }
    summary = "; ".join(
        f"line {index + 1}: "
        + ", ".join(f"{level}: {y:.3f}" for level, y in sorted(line.items()))
        for index, line in means.items()
    )
    drawing = figures.plot_severities(
        means,
        singles,
        f"{title} by severity of corruption. {summary}",
        in_percent=key == "top_1",
    )
    return {"title": title, "note": note, "drawing": drawing}


def _values_by_severity(
    result: Mapping, severities: Mapping[str, Mapping], key: str
) -> dict[int, float]:
    """A measure by severity, with clean images at 0."""
    values = {int(s): measures.get(key) for s, measures in severities.items()}
    values[0] = scores.value_at(result, f"clean.{key}")
    return {s: value for s, value in values.items() if value is not None}


def _by_corruption(results: Sequence[Mapping]) -> dict[str, list[float | None]]:
    """Accuracy of each corruption and run, a mean over the severities."""
    rows = {name: [] for result in results for name in result["results"]}
    for name, means in rows.items():
        for result in results:
            severities = result["results"].get(name, {}).values()
            accuracies = [severity.get("top_1") for severity in severities]
            accuracies = [share for share in accuracies if share is not None]
            means.append(statistics.fmean(accuracies) if accuracies else None)
    return rows


def _means(results: Sequence[Mapping]) -> list[tuple[scores.Score, list[str]]]:
    """Scores over all corruptions, a text per run."""
    rows = []
    for score in scores.table("corruptions"):
        _, _, path = score.path.partition(".linear.")
        if not path:
            continue
        values = (scores.value_at(result, path) for result in results)
        texts = [numbers.score_text(score, value) for value in values]
        if {*texts} != {"–"}:
            rows.append((score, texts))
    return rows


def _conditions(runs: Sequence[contents.Run]) -> dict[str, list[str]]:
    """Sentences on corrupted images and corruptions, with names of runs."""
    lines: dict[str, list[str]] = {}
    for run in runs:
        corruptions = run.evaluation.get("corruptions", {})
        if "images" in corruptions:
            line = f"{corruptions['images']:,} test images, corruptions "
            line += corruptions.get("source", "unknown")
            if reference := corruptions.get("reference"):
                name = "AlexNet" if reference == "alexnet" else reference
                line += f", reference {name}"
            lines.setdefault(line, []).append(run.name)
    return lines
