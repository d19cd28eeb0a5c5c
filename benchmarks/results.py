"""What is shown of measurements: the table, disagreements and the figure.

Numbers are medians over rounds, ratios medians of those within a round.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import operator
import pathlib
import statistics
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from supcon_tf.disk import files
from supcon_tf.display import palette

if TYPE_CHECKING:
    from matplotlib import figure

    from benchmarks.harness import Bench

Job = dict[str, object]  # the arguments of a measurement, by name
Point = dict[str, object]  # its `job`, and what its process gave or the `error`
Case = dict[str, list[Point]]  # rounds of the jobs that are compared, by label


@dataclasses.dataclass(frozen=True)
class Column:
    """A number of the table."""

    title: str
    value: Callable[[Point], float | None]  # of a round
    form: str = ".2f"
    combine: Callable[[list[float]], float] = statistics.median  # the rounds
    plotted: bool = False  # and in the line of a measurement


IMAGES = Column("images/s", lambda p: 1 / p["seconds"], ".1f", plotted=True)
MEMORY = Column("MB", lambda p: p["peak_mb"], ".1f", max, plotted=True)
# Where it is far from 1, something else was using the machine.
SPREAD = Column(
    "spread", lambda p: p["seconds"], combine=lambda s: max(s) / min(s)
)


def case_of(axes: Iterable[str], job: Job) -> str:
    """What the jobs have in common that are compared."""
    return ", ".join(f"{axis} {job[axis]}" for axis in axes)


def label_of(job: Job) -> str:
    """The implementation, and how it is used."""
    return job.get("label", job["implementation"])


def cases_of(axes: Iterable[str], points: list[Point]) -> dict[str, Case]:
    """All cases, of jobs whose every round gave numbers."""
    failed = [point["job"] for point in points if "error" in point]
    cases = {}
    for point in points:
        job = point["job"]
        if job not in failed:
            case = cases.setdefault(case_of(axes, job), {})
            case.setdefault(label_of(job), []).append(point)
    return cases


def write(
    bench: Bench, file: pathlib.Path, written: Point, unused: list[Point]
) -> None:
    """Writes results, with their table, and the figure; whole files or none.

    `unused` are points of other jobs, or not reached yet, which stay in the
    file.
    """
    cases = bench.cases_of(written["points"])
    written["table"] = [
        {"case": name, "": label} | summarize(bench, row, case)
        for name, case in cases.items()
        for label, row in case.items()
    ]
    written["disagreements"] = bench.disagreements(written["points"])
    text = written | {"points": written["points"] + unused}
    files.write_atomically(file, json.dumps(text, indent=1) + "\n")
    files.write_figure(file.with_suffix(".png"), plot(bench, cases), dpi=120)


def summarize(bench: Bench, row: list[Point], case: Case) -> dict[str, str]:
    """Columns of a row and its ratios to its peers, by title."""
    line = {}
    for column in bench.COLUMNS:
        values = [column.value(point) for point in row]
        if None not in values:
            line[column.title] = f"{column.combine(values):{column.form}}"
    for peer in bench.PEERS:
        for what, key in (("time", "seconds"), ("memory", "peak_mb")):
            peers = [point[key] for point in case.get(peer, ()) if key in point]
            # Below 1 MB the allocator had all memory already: no ratio tells.
            if peers and (key != "peak_mb" or min(peers) >= 1):
                numbers = [point[key] for point in row]
                ratios = map(operator.truediv, numbers, peers)
                line[f"{what}/{peer}"] = f"{statistics.median(ratios):.2f}"
    return line


def disagreements(bench: Bench, cases: dict[str, Case]) -> list[str]:
    """A line per result that is not that of the first peer of its case.

    Without a peer, that of the first. Written so that NaN disagrees.
    """
    lines = []
    for (name, case), key in itertools.product(cases.items(), bench.AGREEING):
        numbers = [
            (label, point[key])
            for label in sorted(case, key=lambda name: name not in bench.PEERS)
            for point in case[label]
            if key in point
        ]
        for label, number in numbers[1:]:
            peer, expected = numbers[0]
            error = abs(number - expected)
            if not error <= bench.AGREEING[key] * abs(expected):
                lines.append(
                    f"{name} {label}: {key} {number}, but {peer} has {expected}"
                )
    return list(dict.fromkeys(lines))


def progress(bench: Bench, point: Point) -> str:
    """One line about a measurement."""
    text = point.get("error") or ", ".join(
        f"{column.title} {column.value(point):{column.form}}"
        for column in bench.COLUMNS
        if column.plotted
    )
    case = case_of(bench.AXES, point["job"])
    return f"{case}, {label_of(point['job'])}: {text}".removeprefix(", ")


def describe(bench: Bench, written: Point) -> str:
    """The table, what is wrong, and what is not there, as lines of text."""
    points, wrong = written["points"], written["disagreements"]
    agree = bench.AGREEING and not wrong
    return "\n".join(
        [
            markdown(written["table"]),
            "",
            overview(bench, bench.cases_of(points)),
            *bench.notes(points),
            *(progress(bench, point) for point in points if "error" in point),
            *(f"DISAGREES: {line}" for line in wrong),
            *([f"agree: {', '.join(bench.AGREEING)}"] if agree else []),
            *(f"left out: {line}" for line in written["left_out"]),
        ]
    )


def overview(bench: Bench, cases: dict[str, Case]) -> str:
    """A table in Markdown: a row for each case, a column for each label.

    A cell has the plotted numbers. Behind a median stands half of the range of
    the rounds, in percent.
    """
    columns = [column for column in bench.COLUMNS if column.plotted]
    units = ", ".join(column.title for column in columns)
    return markdown(
        [
            {units: name}
            | {
                label: ", ".join(_with_range(column, row) for column in columns)
                for label, row in case.items()
            }
            for name, case in cases.items()
        ]
    )


def _with_range(column: Column, row: list[Point]) -> str:
    """The number of a column, and where it is a median, the range."""
    values = list(map(column.value, row))
    number = column.combine(values)
    text = f"{number:,{column.form}}"
    if column.combine is statistics.median and len(values) > 1:
        text += f" ±{(max(values) - min(values)) / 2 / abs(number):.0%}"
    return text


def markdown(lines: list[dict[str, str]]) -> str:
    """A table in Markdown; texts by title, a dict per line."""
    titles = list(dict.fromkeys(name for line in lines for name in line))
    cells = [[line.get(name, "-") for name in titles] for line in lines]
    columns = zip(titles, *cells, strict=True)
    widths = [max(map(len, column)) for column in columns]
    rule = ["-" * (width - 1) + ":" for width in widths]
    return "\n".join(
        "| " + " | ".join(map(str.rjust, line, widths)) + " |"
        for line in (titles, rule, *cells)
    )


def plot(bench: Bench, cases: dict[str, Case]) -> figure.Figure:
    """A panel per column that is drawn: the table's numbers and ranges."""
    from matplotlib import figure

    canvas = figure.Figure(figsize=(11, 4.5), layout="constrained")
    columns = [column for column in bench.COLUMNS if column.plotted]
    panels = canvas.subplots(1, len(columns), squeeze=False)[0]
    curves, axes = {}, []
    for name, case in cases.items():
        parts = [part.partition(" ") for part in name.split(", ")]
        axes = [axis for axis, _, _ in parts]
        tick = "\n".join(value for _, _, value in parts)
        for label, row in case.items():
            curves.setdefault(label, {})[tick] = row
    count = len(palette.MARKERS)
    style = {"color": palette.COLORS[:count], "marker": [*palette.MARKERS]}
    for column, panel in zip(columns, panels, strict=True):
        panel.set_prop_cycle(**style)
        for label, curve in curves.items():
            values = [list(map(column.value, row)) for row in curve.values()]
            (line,) = panel.plot(
                list(curve),
                list(map(column.combine, values)),
                linestyle="none" if len(axes) > 1 else "solid",
                label=label,
            )
            lows, highs = list(map(min, values)), list(map(max, values))
            panel.vlines(list(curve), lows, highs, color=line.get_color())
        panel.set_yscale("log" if bench.LOGARITHMIC else "linear")
        panel.yaxis.set_major_formatter("{x:,.6g}")
        panel.set(title=column.title, xlabel=", ".join(axes))
        panel.tick_params(axis="x", labelsize="x-small")
        panel.grid(alpha=0.3)
    legend = panel.get_legend_handles_labels()
    canvas.legend(*legend, loc="outside right upper")
    return canvas
