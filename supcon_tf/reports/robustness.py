"""Accuracy and calibration on corrupted images, the paper's Fig. 3."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence

from supcon_tf import scores
from supcon_tf.reports import contents, figures, numbers

_MEANS = (
    "clean.top_1",
    "mean_corruption_error_unnormalized",
    "mean_ece",
    "mce",
    "relative_mce",
)


def robustness(runs: Sequence[contents.Run]) -> dict[str, object]:
    """Two figures against severity, and two tables."""
    found = {
        index: results
        for index, run in enumerate(runs)
        if (results := run.robustness())
    }
    if not found:
        return {}
    return {
        "legend": {index: runs[index].name for index in found},
        "runs": [runs[index] for index in found],
        "curves": [*_curves(found)],
        "by_corruption": _by_corruption([*found.values()]),
        "means": _means([*found.values()]),
        "conditions": _conditions(runs),
    }


def _curves(found: Mapping[int, Mapping]) -> Iterator[dict[str, str]]:
    """Accuracy and ECE against severity."""
    for key, title, note in (
        ("top_1", "Accuracy", "top-1; higher is better"),
        ("ece", "Calibration error (ECE)", "lower is better"),
    ):
        means = {
            index: _with_clean(results, results["by_severity"], key)
            for index, results in found.items()
        }
        singles = {
            index: [
                _with_clean(results, single, key)
                for single in results["results"].values()
            ]
            for index, results in found.items()
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
        yield {"title": title, "note": note, "drawing": drawing}


def _with_clean(
    results: Mapping, line: Mapping[str, Mapping], key: str
) -> dict[int, float]:
    """A measure by severity, with clean images at 0."""
    values = {int(severity): x.get(key) for severity, x in line.items()}
    values[0] = scores.value_at(results, f"clean.{key}")
    return {x: y for x, y in values.items() if y is not None}


def _by_corruption(
    found: Sequence[Mapping],
) -> dict[str, list[float | None]]:
    """Accuracy of each corruption and run, a mean over the severities."""
    names = dict.fromkeys(name for x in found for name in x["results"])
    rows = {name: [] for name in names}
    for name, means in rows.items():
        for results in found:
            single = results["results"].get(name, {}).values()
            known = [x["top_1"] for x in single if x.get("top_1") is not None]
            means.append(statistics.fmean(known) if known else None)
    return rows


def _means(found: Sequence[Mapping]) -> list[tuple[scores.Score, list[str]]]:
    """Scores over all corruptions, a text per run."""
    rows = []
    for path in _MEANS:
        score = scores.find(f"corruptions.linear.{path}")
        texts = [
            numbers.score_text(score, scores.value_at(results, path))
            for results in found
        ]
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
            reference = known.get("reference")
            if reference:
                name = "AlexNet" if reference == "alexnet" else reference
                line += f", reference {name}"
            lines.setdefault(line, []).append(run.name)
    return lines
