"""Accuracy and calibration on corrupted images, the paper's Fig. 3."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from supcon_tf.reports import contents, figures, markup, overview, page


def robustness_section(runs: Sequence[contents.Run]) -> page.Section:
    """Two figures against severity, and a table by corruption."""
    found = {
        index: run.robustness()
        for index, run in enumerate(runs)
        if run.robustness()
    }
    body = ""
    if found:
        names = {index: runs[index].name for index in found}
        body = markup.legend(names) if len(runs) > 1 else ""
        body += _curves(found) + _table(runs, found) + _conditions(runs)
    return page.Section(
        "robustness",
        "Corrupted images",
        "The same test images with noise, blur, weather and compression "
        "added, from severity 1, slight, to 5, heavy. The bold line is the "
        "mean over the corruptions, the thin ones are single corruptions: a "
        "flatter line is a more robust model.",
        body,
        overview.absent(
            runs,
            [index not in found for index in range(len(runs))],
            extra="--corruptions=generated",
        ),
    )


def _curves(found: Mapping[int, Mapping]) -> str:
    """Accuracy and ECE against severity."""
    drawn = []
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
        drawn.append(markup.figure(title, drawing, note))
    return f'<div class="panels few">{"".join(drawn)}</div>'


def _with_clean(
    results: Mapping, line: Mapping[str, Mapping], key: str
) -> dict[int, float]:
    """A measure by severity, with clean images at 0."""
    values = {int(x): contents.value_at(y, key) for x, y in line.items()}
    values[0] = contents.value_at(results, "clean", key)
    return {x: y for x, y in values.items() if y is not None}


def _table(runs: Sequence[contents.Run], found: Mapping[int, Mapping]) -> str:
    """Mean top-1 by corruption and run, then the means and mCE."""
    corruptions = [
        *dict.fromkeys(
            name for results in found.values() for name in results["results"]
        )
    ]
    rows = [
        [
            markup.escape(name.replace("_", " ").capitalize()),
            *(
                markup.percent(_mean_top_1(results, name))
                for results in found.values()
            ),
        ]
        for name in corruptions
    ]
    head = ["Top-1, mean over severities"]
    head += [markup.name(runs[index].name) for index in found]
    single = markup.table(head, rows, "Accuracy by corruption", "numbers")
    return markup.panels([single, _summary(head[1:], found, _reference(runs))])


def _summary(
    head: Sequence[str], found: Mapping[int, Mapping], reference: str
) -> str:
    """Numbers over all corruptions, each named for what it is."""
    rows = []
    for title, note, text in (
        (
            "Accuracy on clean images",
            "the same images, before corruption",
            lambda x: markup.percent(contents.value_at(x, "clean", "top_1")),
        ),
        (
            "Plain mean error",
            "100 % less the mean accuracy, divided by nothing: not an mCE",
            lambda x: markup.percent(
                contents.value_at(x, "mean_corruption_error_unnormalized")
            ),
        ),
        (
            "Mean ECE",
            "over all corruptions and severities",
            lambda x: markup.number(contents.value_at(x, "mean_ece")),
        ),
        (
            "mCE",
            f"error of each corruption divided by that of {reference}, then "
            f"the mean; {reference} has 100, lower is better",
            lambda x: markup.number(contents.value_at(x, "mce"), 1),
        ),
        (
            "Relative mCE",
            "the same of what corruption adds to the error on clean images",
            lambda x: markup.number(contents.value_at(x, "relative_mce"), 1),
        ),
    ):
        cells = [text(results) for results in found.values()]
        if any(cell != "–" for cell in cells):
            rows.append([f"{title}<small>{note}</small>", *cells])
    label = "Means over all corruptions"
    return markup.table(["Over all corruptions", *head], rows, label, "numbers")


def _mean_top_1(results: Mapping, corruption: str) -> float | None:
    """Mean accuracy over the severities of a corruption."""
    single = results["results"].get(corruption, {})
    values = [contents.value_at(x, "top_1") for x in single.values()]
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _reference(runs: Sequence[contents.Run]) -> str:
    """What errors were divided by, HTML."""
    names = {
        run.evaluation.get("corruptions", {}).get("reference") for run in runs
    } - {None}
    return " or ".join(
        "AlexNet" if name == "alexnet" else markup.name(name)
        for name in sorted(names)
    )


def _conditions(runs: Sequence[contents.Run]) -> str:
    """Which images were corrupted, and by what."""
    lines: dict[str, list[str]] = {}
    for run in runs:
        known = run.evaluation.get("corruptions", {})
        if "images" in known:
            source = markup.escape(known.get("source", "unknown"))
            line = f"{known['images']:,} test images, corruptions {source}"
            lines.setdefault(line, []).append(markup.name(run.name))
    if len(lines) == 1:
        text = f"Measured on {next(iter(lines))}."
    else:
        text = "<br>".join(f"{', '.join(x)}: {y}." for y, x in lines.items())
    return f'<p class="quiet">{text}</p>'
