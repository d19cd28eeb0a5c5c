"""The figure of a sweep, as Fig. 4 of the paper: a panel per setting."""

from __future__ import annotations

import collections
import math
import statistics
from collections.abc import Sequence

import numpy as np
from matplotlib import axes, figure, ticker

from supcon_tf import config, scores
from supcon_tf.display import palette
from supcon_tf.sweeps import table

_ROW_PANELS = 3  # at most
_LEAST_LOG_RATIO = 5  # of the largest value to the smallest
_MOST_POINTS = 30  # of a box, to be drawn one by one
_POINTS_WIDTH = 0.5  # over which the points of a box are spread

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
      >>> grid = "temperature=0.1,1"
      >>> sweep = config.SweepSettings("runs/grid", sweep=(grid,))
      >>> results = sweeps.grid.describe(sweep, sweeps.list_cells(sweep))
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
        (group.values, numbers)
        for group in groups
        if (numbers := group.numbers(metric))
    ]
    if boxes := results.get("boxes"):
        varying, points = _points_by_setting(boxes, groups, metric)
    fig = figure.Figure(layout="constrained")
    panels = _panels(fig, max(len(varying), 1), scores.find(metric).label)
    count = sum(len(numbers) for _, numbers in points)
    fig.suptitle(_caption(results, count), fontsize="medium")
    if not varying:
        varying = [{"name": "", "values": ["all runs"]}]
        points = [
            ({"": "all runs"}, [number])
            for _, runs in points
            for number in runs
        ]
    line_axis = next((axis for axis in varying if not _is_numeric(axis)), None)
    for axis, panel in zip(varying, panels, strict=True):
        if _is_numeric(axis):
            _draw_lines(panel, axis, line_axis, points)
        else:
            colors = palette.COLORS if axis is line_axis else palette.COLORS[:1]
            _draw_boxes(panel, axis, points, colors)
        panel.set_xlabel(_axis_texts(axis)[0].replace("_", " "))
    if results.get("published") and len(varying) == 1 and not boxes:
        _draw_published(panels[0], varying[0], results["published"])
    legends = [panel.get_legend_handles_labels() for panel in panels]
    legend = next(((lines, names) for lines, names in legends if lines), None)
    if legend:
        has_lines = line_axis and any(map(_is_numeric, varying))
        title = (
            _axis_texts(line_axis)[0].replace("_", " ") if has_lines else None
        )
        corner = "outside right upper"
        fig.legend(*legend, loc=corner, title=title, frameon=False)
    return fig


def _panels(fig: figure.Figure, count: int, label: str) -> list[axes.Axes]:
    """Draws `count` empty panels with one vertical axis, and returns them."""
    columns = count if count <= _ROW_PANELS else math.ceil(math.sqrt(count))
    rows = math.ceil(count / columns)
    fig.set_size_inches(1.5 + 4 * columns, 0.6 + 3.2 * rows)
    grid = fig.subplots(rows, columns, squeeze=False, sharey=True)
    for panel in grid[:, 0]:
        panel.set_ylabel(label)
    for panel in grid.flat[count:]:
        panel.set_axis_off()
    for panel in grid.flat[:count]:
        panel.grid(alpha=0.3)
        panel.spines[["top", "right"]].set_visible(False)
    return [*grid.flat[:count]]


def _points_by_setting(
    name: str, groups: Sequence[table.Group], metric: str
) -> tuple[list[dict[str, object]], list[_Point]]:
    """Returns the axis of one setting, and the points by its values alone."""
    points = []
    for group in groups:
        if numbers := group.numbers(metric):
            tools = group.cells[0]["settings"]
            is_linear = name.startswith(config.LINEAR)
            settings = tools["linear" if is_linear else next(iter(tools))]
            value = settings[name.removeprefix(config.LINEAR)]
            points.append(({name: value}, numbers))
    values = [*dict.fromkeys(values[name] for values, _ in points)]
    return [{"name": name, "values": values or ["none"]}], points


def _draw_published(
    panel: axes.Axes, axis: dict[str, object], published: Sequence[float]
) -> None:
    """Draws published numbers, in percent, at the values of their axis."""
    values = axis["values"]
    positions = values if _is_numeric(axis) else range(len(values))
    crosses = [
        (position, percent / 100)
        for position, percent in zip(positions, published, strict=True)
        if percent
    ]
    panel.plot(*zip(*crosses, strict=True), "kx", label="published")


def _is_numeric(axis: dict[str, object]) -> bool:
    """Whether the values are several numbers, not names."""
    return len(axis["values"]) > 1 and all(
        isinstance(value, int | float) and not isinstance(value, bool)
        for value in axis["values"]
    )


def _caption(results: dict[str, object], num_drawn: int) -> str:
    """Returns a caption: the number of cells, and the repetitions of means."""
    cells = results["cells"]
    failed = sum(cell["status"] == "failed" for cell in cells)
    total_text = "" if num_drawn == len(cells) else f" of {len(cells)}"
    text = f"{num_drawn}{total_text} cells"
    if failed:
        text += f", {failed} failed"
    repetitions = [
        f"{len(axis['values'])} {axis['name']}s"
        for axis in results["axes"]
        if axis["is_repetition"] and len(axis["values"]) > 1
    ]
    if repetitions and len(repetitions) < len(results["axes"]):
        text += f"; means over {' and '.join(repetitions)}"
    return text


def _text(value: object) -> str:
    return config.axis_text(value) or "none"


def _axis_texts(axis: dict[str, object]) -> tuple[str, list[str]]:
    """Returns the texts of an axis, with a line for each tied setting."""
    texts = [_text(value) for value in axis["values"]]
    names = axis["name"].split(":")
    if len(names) == 1:
        return axis["name"], texts
    columns = [*zip(names, *(text.split(":") for text in texts), strict=True)]
    varying = [
        (name, *values) for name, *values in columns if len({*values}) > 1
    ]
    name, *values = map("\n".join, zip(*(varying or columns), strict=True))
    return name.replace("\n", ", "), values


def _draw_boxes(
    panel: axes.Axes,
    axis: dict[str, object],
    points: Sequence[_Point],
    colors: Sequence[str],
) -> None:
    """Draws a box per value over all others, and few points with ranges."""
    for position, value in enumerate(axis["values"]):
        repetitions = [
            numbers
            for values, numbers in points
            if values[axis["name"]] == value
        ]
        means = np.array([*map(statistics.fmean, repetitions)])
        color = colors[position % len(colors)]
        if len(means) > 1:
            panel.boxplot(
                [means],
                positions=[position],
                widths=0.6,
                showfliers=len(means) > _MOST_POINTS,
                flierprops={"marker": ".", "markeredgecolor": color},
                medianprops={"color": "black"},
                manage_ticks=False,
            )
        if 1 <= len(means) <= _MOST_POINTS:
            offsets = (np.arange(len(means)) + 0.5) / len(means) - 0.5
            ranges = np.array(
                [
                    means - [*map(min, repetitions)],
                    [*map(max, repetitions)] - means,
                ]
            )
            panel.errorbar(
                position + offsets * _POINTS_WIDTH,
                means,
                # The mean of equal numbers may differ in its last bit.
                np.maximum(ranges, 0),
                fmt="o",
                markersize=4,
                linewidth=1,
                color=color,
                alpha=0.8,
            )
    labels = _axis_texts(axis)[1]
    panel.set_xticks(range(len(labels)), labels)
    panel.set_xlim(-0.6, len(labels) - 0.4)
    if ":" not in axis["name"] and max(map(len, labels)) * len(labels) > 40:
        panel.tick_params(axis="x", rotation=30)


def _draw_lines(
    panel: axes.Axes,
    axis: dict[str, object],
    line_axis: dict[str, object] | None,
    points: Sequence[_Point],
) -> None:
    """Draws means over all other settings against a number, a line per name."""
    for index, name in enumerate(line_axis["values"] if line_axis else [None]):
        numbers_by_value = collections.defaultdict(list)
        for values, numbers in points:
            if line_axis is None or values[line_axis["name"]] == name:
                numbers_by_value[values[axis["name"]]] += numbers
        if not numbers_by_value:
            continue
        positions = sorted(numbers_by_value)
        groups = [numbers_by_value[position] for position in positions]
        color = palette.COLORS[index % len(palette.COLORS)]
        means = [*map(statistics.fmean, groups)]
        label = _text(name) if line_axis else None
        panel.plot(
            positions, means, "o-", color=color, label=label, markersize=4
        )
        if any(len(numbers) > 1 for numbers in groups):
            ranges = [*map(min, groups)], [*map(max, groups)]
            panel.fill_between(
                positions, *ranges, color=color, alpha=0.15, linewidth=0
            )
    ticks = sorted(axis["values"])
    if ticks[0] > 0 and ticks[-1] / ticks[0] >= _LEAST_LOG_RATIO:
        panel.set_xscale("log")
    panel.xaxis.set_major_locator(ticker.FixedLocator(ticks))
    panel.xaxis.set_minor_locator(ticker.NullLocator())
    panel.xaxis.set_major_formatter("{x:g}")
