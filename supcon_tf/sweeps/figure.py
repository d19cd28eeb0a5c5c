"""The figure of a sweep, as Fig. 4 of the paper: a panel per setting."""

from __future__ import annotations

import collections
import math
import statistics
from collections.abc import Sequence

import numpy as np
from matplotlib import axes, figure, ticker

from supcon_tf import config, palette, scores
from supcon_tf.sweeps import table

_IN_A_ROW = 3  # panels
_LOG_FROM = 5  # largest value over smallest
_FEW = 30  # points of a box, to be drawn each
_SPREAD = 0.5  # width over which the points of a box are spread

# The values of all settings but the seeds, and the metric for each seed.
_Point = tuple[dict[str, object], list[float]]


def plot_sweep(results: dict[str, object]) -> figure.Figure:
    """One panel per setting that varies: the metric against its values.

    Names get a box per value over all other settings, and all points. Numbers
    get a line through the means, and the range from least to most; one line
    per value of the first named setting, if there is one. Repetitions over
    seeds are averaged first, their range stays visible; where nothing else
    varies, each is a point. With `boxes` there is one panel, of that setting.
    Published numbers are crosses, where there is one panel. Cells without the
    metric, such as those to come, are not drawn. `results` are those of
    `grid.describe`.

    Example:
      >>> from supcon_tf import config, sweeps
      >>> own = config.SweepSettings("runs/grid", sweep=("temperature=0.1,1",))
      >>> results = sweeps.grid.describe(own, sweeps.list_cells(own))
      >>> for cell, accuracy in zip(results["cells"], (0.75, 0.5)):
      ...     cell["metrics"] = {"linear.top_1": accuracy}
      >>> (panel,) = sweeps.plot_sweep(results).axes
      >>> panel.get_xlabel(), panel.get_ylabel()
      ('temperature', 'linear top-1')

    Returns:
      A figure outside pyplot, an axis per setting, at least one.
    """
    metric = results["metric"]
    varying = [axis for axis in results["axes"] if not axis["is_repetition"]]
    groups = table.group(results)
    points = [
        (one.values, numbers)
        for one in groups
        if (numbers := one.numbers(metric))
    ]
    if boxes := results.get("boxes"):
        varying, points = _by_setting(boxes, groups, metric)
    drawn = figure.Figure(layout="constrained")
    panels = _panels(drawn, max(len(varying), 1), scores.find(metric).label)
    count = sum(len(numbers) for _, numbers in points)
    drawn.suptitle(_caption(results, count), fontsize="medium")
    if not varying:
        varying = [{"name": "", "values": ["all runs"]}]
        points = [({"": "all runs"}, [x]) for _, runs in points for x in runs]
    split = next((axis for axis in varying if not _is_numeric(axis)), None)
    for axis, panel in zip(varying, panels, strict=True):
        if _is_numeric(axis):
            _draw_lines(panel, axis, split, points)
        else:
            colors = palette.COLORS if axis is split else palette.COLORS[:1]
            _draw_boxes(panel, axis, points, colors)
        panel.set_xlabel(_tied(axis)[0].replace("_", " "))
    if results.get("published") and len(varying) == 1 and not boxes:
        _draw_published(panels[0], varying[0], results["published"])
    lines = [x.get_legend_handles_labels() for x in panels]
    legend = next((x for x in lines if x[0]), None)
    if legend:
        has_lines = split and any(map(_is_numeric, varying))
        title = _tied(split)[0].replace("_", " ") if has_lines else None
        place = "outside right upper"
        drawn.legend(*legend, loc=place, title=title, frameon=False)
    return drawn


def _panels(drawn: figure.Figure, count: int, label: str) -> list[axes.Axes]:
    """`count` panels with one vertical axis."""
    columns = count if count <= _IN_A_ROW else math.ceil(math.sqrt(count))
    rows = math.ceil(count / columns)
    drawn.set_size_inches(1.5 + 4 * columns, 0.6 + 3.2 * rows)
    grid = drawn.subplots(rows, columns, squeeze=False, sharey=True)
    for panel in grid[:, 0]:
        panel.set_ylabel(label)
    for panel in grid.flat[count:]:
        panel.set_axis_off()
    for panel in grid.flat[:count]:
        panel.grid(alpha=0.3)
        panel.spines[["top", "right"]].set_visible(False)
    return [*grid.flat[:count]]


def _by_setting(
    name: str, groups: Sequence[table.Group], metric: str
) -> tuple[list[dict[str, object]], list[_Point]]:
    """An axis of one setting, and the points by its values alone."""
    points = []
    for one in groups:
        if numbers := one.numbers(metric):
            tools = one.cells[0]["settings"]
            of_tool = "linear" if name.startswith(config.LINEAR) else None
            own = tools[of_tool or next(iter(tools))]
            value = own[name.removeprefix(config.LINEAR)]
            points.append(({name: value}, numbers))
    values = [*dict.fromkeys(values[name] for values, _ in points)]
    return [{"name": name, "values": values or ["none"]}], points


def _draw_published(
    panel: axes.Axes, axis: dict[str, object], published: Sequence[float]
) -> None:
    """Published numbers, from percent, where their values are."""
    values = axis["values"]
    places = values if _is_numeric(axis) else range(len(values))
    known = [
        (place, number / 100)
        for place, number in zip(places, published, strict=True)
        if number
    ]
    panel.plot(*zip(*known, strict=True), "kx", label="published")


def _is_numeric(axis: dict[str, object]) -> bool:
    """Whether the values are several numbers, not names."""
    return len(axis["values"]) > 1 and all(
        isinstance(value, int | float) and not isinstance(value, bool)
        for value in axis["values"]
    )


def _caption(results: dict[str, object], measured: int) -> str:
    """How many cells are drawn, and what is taken together."""
    cells = results["cells"]
    failed = sum(cell["status"] == "failed" for cell in cells)
    of_all = "" if measured == len(cells) else f" of {len(cells)}"
    text = f"{measured}{of_all} cells"
    if failed:
        text += f", {failed} failed"
    repeats = [
        f"{len(axis['values'])} {axis['name']}s"
        for axis in results["axes"]
        if axis["is_repetition"] and len(axis["values"]) > 1
    ]
    if repeats and len(repeats) < len(results["axes"]):
        text += f"; means over {' and '.join(repeats)}"
    return text


def _text(value: object) -> str:
    return config.axis_text(value) or "none"


def _tied(axis: dict[str, object]) -> tuple[str, list[str]]:
    """Name and values; of tied settings those that vary, a line each."""
    texts = [_text(value) for value in axis["values"]]
    names = axis["name"].split(":")
    if len(names) == 1:
        return axis["name"], texts
    settings = [*zip(names, *(text.split(":") for text in texts), strict=True)]
    kept = [x for x in settings if len({*x[1:]}) > 1] or settings
    name, *values = map("\n".join, zip(*kept, strict=True))
    return name.replace("\n", ", "), values


def _draw_boxes(
    panel: axes.Axes,
    axis: dict[str, object],
    points: Sequence[_Point],
    colors: Sequence[str],
) -> None:
    """A box per value over all others; points, if few, with their ranges."""
    for place, value in enumerate(axis["values"]):
        own = [x for values, x in points if values[axis["name"]] == value]
        means = np.array([*map(statistics.fmean, own)])
        color = colors[place % len(colors)]
        if len(means) > 1:
            panel.boxplot(
                [means],
                positions=[place],
                widths=0.6,
                showfliers=len(means) > _FEW,
                flierprops={"marker": ".", "markeredgecolor": color},
                medianprops={"color": "black"},
                manage_ticks=False,
            )
        if 1 <= len(means) <= _FEW:
            shares = (np.arange(len(means)) + 0.5) / len(means) - 0.5
            panel.errorbar(
                place + shares * _SPREAD,
                means,
                [means - [*map(min, own)], [*map(max, own)] - means],
                fmt="o",
                markersize=4,
                linewidth=1,
                color=color,
                alpha=0.8,
            )
    labels = _tied(axis)[1]
    panel.set_xticks(range(len(labels)), labels)
    panel.set_xlim(-0.6, len(labels) - 0.4)
    if ":" not in axis["name"] and max(map(len, labels)) * len(labels) > 40:
        panel.tick_params(axis="x", rotation=30)


def _draw_lines(
    panel: axes.Axes,
    axis: dict[str, object],
    split: dict[str, object] | None,
    points: Sequence[_Point],
) -> None:
    """Means over all other settings against a number, one line per name."""
    for index, name in enumerate(split["values"] if split else [None]):
        known = collections.defaultdict(list)
        for values, numbers in points:
            if split is None or values[split["name"]] == name:
                known[values[axis["name"]]] += numbers
        if not known:
            continue
        places = sorted(known)
        groups = [known[place] for place in places]
        color = palette.COLORS[index % len(palette.COLORS)]
        means = [*map(statistics.fmean, groups)]
        label = _text(name) if split else None
        panel.plot(places, means, "o-", color=color, label=label, markersize=4)
        if any(len(numbers) > 1 for numbers in groups):
            ranges = [*map(min, groups)], [*map(max, groups)]
            panel.fill_between(
                places, *ranges, color=color, alpha=0.15, linewidth=0
            )
    ticks = sorted(axis["values"])
    if ticks[0] > 0 and ticks[-1] / ticks[0] >= _LOG_FROM:
        panel.set_xscale("log")
    panel.xaxis.set_major_locator(ticker.FixedLocator(ticks))
    panel.xaxis.set_minor_locator(ticker.NullLocator())
    panel.xaxis.set_major_formatter("{x:g}")
