"""The figure of a sweep, as Fig. 4 of the paper: a panel per setting."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence

from matplotlib import axes, figure, ticker

from supcon_tf import config, palette, scores
from supcon_tf.sweeps import table

_IN_A_ROW = 3  # panels
_LOG_FROM = 5  # largest value over smallest
_FEW = 30  # points of a box, to be drawn each
_JITTER = 0.25  # width over which the points of a box are spread

Point = tuple[object, float]  # (value of the setting, metric)


def plot_sweep(results: dict[str, object]) -> figure.Figure:
    """One panel per setting that varies: the metric against its values.

    Names get a box per value over all other settings, and all points. Numbers
    get a line through the means, and the range from least to most; one line
    per value of the first named setting, if there is one. Repetitions over
    seeds are averaged first, their range stays visible. Cells without the
    metric, such as those to come, are not drawn.

    Args:
      results: what sweep.json holds, see `records.describe`.

    Returns:
      A figure outside pyplot, an axis per setting, at least one.
    """
    metric = results["metric"]
    varying = [axis for axis in results["axes"] if not axis["is_repetition"]]
    groups = [one for one in table.group(results) if one.numbers(metric)]
    split = next((axis for axis in varying if not _is_numeric(axis)), None)
    drawn, panels = _panels(max(len(varying), 1), scores.find(metric).label)
    for axis, panel in zip(varying, panels, strict=False):
        if _is_numeric(axis):
            _draw_lines(panel, axis, split, groups, metric)
        else:
            _draw_boxes(panel, axis, groups, metric, in_colors=axis is split)
        panel.set_xlabel(axis["name"].replace("_", " "))
    if not varying:
        _draw_repetitions(panels[0], groups, metric)
    drawn.suptitle(_caption(results, groups), fontsize="medium")
    _add_legend(drawn, panels, split)
    return drawn


def _panels(count: int, label: str) -> tuple[figure.Figure, list[axes.Axes]]:
    """A figure of `count` panels with one vertical axis."""
    columns = count if count <= _IN_A_ROW else math.ceil(math.sqrt(count))
    rows = math.ceil(count / columns)
    drawn = figure.Figure(
        figsize=(1.5 + 4 * columns, 0.6 + 3.2 * rows), layout="constrained"
    )
    grid = drawn.subplots(rows, columns, squeeze=False, sharey=True)
    for panel in grid[:, 0]:
        panel.set_ylabel(label)
    for panel in grid.flat[count:]:
        panel.set_axis_off()
    for panel in grid.flat[:count]:
        panel.grid(alpha=0.3)
        panel.spines[["top", "right"]].set_visible(False)
    return drawn, [*grid.flat[:count]]


def _add_legend(
    drawn: figure.Figure,
    panels: Sequence[axes.Axes],
    split: dict[str, object] | None,
) -> None:
    """What the colours of the lines stand for, beside the panels."""
    for panel in panels:
        handles, labels = panel.get_legend_handles_labels()
        if handles:
            drawn.legend(
                handles,
                labels,
                loc="outside right upper",
                title=split["name"].replace("_", " "),
                frameon=False,
            )
            return


def _is_numeric(axis: dict[str, object]) -> bool:
    """Whether the values are several numbers, not names."""
    return len(axis["values"]) > 1 and all(
        isinstance(value, int | float) and not isinstance(value, bool)
        for value in axis["values"]
    )


def _caption(results: dict[str, object], groups: Sequence[table.Group]) -> str:
    """How many cells are drawn, and what is taken together."""
    cells = results["cells"]
    measured = sum(len(one.numbers(results["metric"])) for one in groups)
    failed = sum(cell["status"] == "failed" for cell in cells)
    text = f"{measured} of {len(cells)} cells"
    if measured == len(cells):
        text = f"{measured} cells"
    if failed:
        text += f", {failed} failed"
    repeats = [
        f"{len(axis['values'])} {axis['name']}s"
        for axis in results["axes"]
        if axis["is_repetition"]
    ]
    if repeats and len(repeats) < len(results["axes"]):
        text += f"; means over {' and '.join(repeats)}"
    return text


def _draw_boxes(
    panel: axes.Axes,
    axis: dict[str, object],
    groups: Sequence[table.Group],
    metric: str,
    in_colors: bool,
) -> None:
    """A box per value over all other settings, with its points."""
    colors = itertools.cycle(
        palette.COLORS if in_colors else palette.COLORS[:1]
    )
    for number, value in enumerate(axis["values"]):
        own = [one for one in groups if one.values[axis["name"]] == value]
        _draw_box(panel, number, own, metric, next(colors))
    labels = [config.axis_text(value) or "none" for value in axis["values"]]
    panel.set_xticks(range(len(labels)), labels)
    panel.set_xlim(-0.6, len(labels) - 0.4)
    if max(map(len, labels)) * len(labels) > 40:
        panel.tick_params(axis="x", rotation=30)


def _draw_box(
    panel: axes.Axes,
    position: float,
    groups: Sequence[table.Group],
    metric: str,
    color: str,
) -> None:
    """One box; its points, if few, with their ranges over seeds."""
    means = [statistics.fmean(one.numbers(metric)) for one in groups]
    if not means:
        return
    if len(means) > 1:
        panel.boxplot(
            [means],
            positions=[position],
            widths=0.6,
            showfliers=len(means) > _FEW,
            flierprops={"marker": ".", "markeredgecolor": color},
            medianprops={"color": "black"},
            manage_ticks=False,
        )
    if len(means) > _FEW:
        return
    for number, (mean, one) in enumerate(zip(means, groups, strict=True)):
        share = (number + 0.5) / len(means) - 0.5
        numbers = one.numbers(metric)
        panel.errorbar(
            position + share * 2 * _JITTER,
            mean,
            [[mean - min(numbers)], [max(numbers) - mean]],
            fmt="o",
            markersize=4,
            linewidth=1,
            color=color,
            alpha=0.8,
        )


def _draw_lines(
    panel: axes.Axes,
    axis: dict[str, object],
    split: dict[str, object] | None,
    groups: Sequence[table.Group],
    metric: str,
) -> None:
    """Means over all other settings against a number, one line per name."""
    if split is None:
        _draw_line(panel, axis, groups, metric, palette.COLORS[0], None)
    else:
        for value, color in zip(
            split["values"], itertools.cycle(palette.COLORS), strict=False
        ):
            own = [g for g in groups if g.values[split["name"]] == value]
            label = config.axis_text(value) or "none"
            _draw_line(panel, axis, own, metric, color, label)
    values = axis["values"]
    if min(values) > 0 and max(values) / min(values) >= _LOG_FROM:
        panel.set_xscale("log")
    panel.xaxis.set_major_locator(ticker.FixedLocator(values))
    panel.xaxis.set_minor_locator(ticker.NullLocator())
    panel.xaxis.set_major_formatter("{x:g}")


def _draw_line(
    panel: axes.Axes,
    axis: dict[str, object],
    groups: Sequence[table.Group],
    metric: str,
    color: str,
    label: str | None,
) -> None:
    """One line through the means, in its range from least to most."""
    numbers = {
        value: [
            number
            for one in groups
            if one.values[axis["name"]] == value
            for number in one.numbers(metric)
        ]
        for value in sorted(axis["values"])
    }
    numbers = {value: found for value, found in numbers.items() if found}
    if not numbers:
        return
    means = [statistics.fmean(found) for found in numbers.values()]
    panel.plot([*numbers], means, "o-", color=color, label=label, markersize=4)
    if any(len(found) > 1 for found in numbers.values()):
        panel.fill_between(
            [*numbers],
            [min(found) for found in numbers.values()],
            [max(found) for found in numbers.values()],
            color=color,
            alpha=0.15,
            linewidth=0,
        )


def _draw_repetitions(
    panel: axes.Axes, groups: Sequence[table.Group], metric: str
) -> None:
    """All runs of one combination, where nothing but seeds varies."""
    runs = [
        table.Group({}, [cell])
        for one in groups
        for cell in one.cells
        if metric in cell["metrics"]
    ]
    _draw_box(panel, 0, runs, metric, palette.COLORS[0])
    panel.set_xticks([0], ["all runs"])
    panel.set_xlim(-1, 1)
