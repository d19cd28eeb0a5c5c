"""The figures of a report: <svg> elements, and images as addresses.

A figure holds no class name: the page writes names, in fonts of all scripts.
The label of a figure describes its content for readers who do not see it.
"""

from __future__ import annotations

import base64
import contextlib
import io
import re
from collections.abc import Iterator, Mapping, Sequence

import markupsafe
import matplotlib
import numpy as np
from matplotlib import axes, figure, image, ticker

from supcon_tf.display import palette

# Pixels of the narrowest page, a phone of 390 less its margins; wider pages
# enlarge the figures.
WIDTH = 340
HEIGHT = 195
INK = "#3c434b"
SOFT = "#8a929c"
_STYLE = {
    "svg.fonttype": "none",  # the browser's fonts, which know all scripts
    "font.size": 11,
    "axes.edgecolor": SOFT,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e7eaee",
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "lines.linewidth": 1.8,
}
# Dashes tell lines apart for readers who do not see their colours.
_DASHES = ("-", (0, (5, 1.5)), (0, (2, 1.2)), (0, (6, 1.5, 1.5, 1.5)))
_STEPS = (1, 2, 2.5, 5, 10)
_MAX_MARKED = 15  # points of a line that have markers


def plot_curves(
    curves: Mapping[int, tuple[Sequence[float], Sequence[float]]],
    label: str,
    *,
    last_epoch: float,
    chance: Mapping[int, float] | None = None,
    in_percent: bool = False,
    from_zero: bool = False,
) -> markupsafe.Markup:
    """Lines over epochs, one per run.

    Args:
      curves: x and y values by the index of the run, which gives the colour.
      label: description of the figure, plain text.
      last_epoch: where the x axis ends, the same for all figures of a stage.
      chance: y value of a run that has learned nothing, by its index.
      in_percent: whether y values are shares.
      from_zero: whether the y axis begins at 0.
    """
    with drawing() as (fig, plot):
        for index, (epochs, values) in curves.items():
            marker = {} if len(epochs) <= _MAX_MARKED else {"marker": ""}
            plot.plot(epochs, values, **_style(index) | marker, markersize=4)
        _draw_chance(plot, chance or {})
        plot.set(xlabel="epoch", xlim=(0, 1.02 * last_epoch))
        plot.xaxis.set_major_locator(
            ticker.MaxNLocator(5, integer=True, steps=_STEPS)
        )
        if from_zero:
            plot.set_ylim(bottom=0)
        _set_y_ticks(plot, in_percent)
        return to_svg(fig, label)


def plot_reliability(
    bins: Mapping[str, Sequence[float]], label: str
) -> markupsafe.Markup:
    """Reliability diagram: accuracy of equal bins against their confidence."""
    count = np.asarray(bins["count"], float)
    filled = count > 0
    # Empty bins have no accuracy: null, in JSON.
    accuracy, confidence = (
        np.asarray(bins[name], float)[filled]
        for name in ("accuracy", "confidence")
    )
    width = 1 / len(count)
    lefts = np.arange(len(count))[filled] * width
    bar = {"width": width, "align": "edge", "lw": 0.8, "edgecolor": "white"}
    rows = {"nrows": 2, "sharex": True, "height_ratios": [3, 1]}
    with drawing(height=300, **rows) as (fig, (upper, lower)):
        upper.bar(lefts, accuracy, color=palette.COLORS[0], **bar)
        upper.bar(
            lefts,
            np.abs(confidence - accuracy),
            bottom=np.minimum(accuracy, confidence),
            color="#f3c6bd",
            **bar,
        )
        upper.hlines(accuracy, lefts, lefts + width, INK, lw=2.2)
        upper.plot([0, 1], [0, 1], color=INK, lw=1, ls=(0, (4, 3)))
        upper.set(ylim=(0, 1.02), xlim=(0, 1.005), ylabel="accuracy")
        lower.bar(lefts, count[filled], color=SOFT, **bar)
        lower.set(xlabel="confidence", ylabel="examples")
        lower.yaxis.set_major_locator(ticker.MaxNLocator(2, integer=True))
        for axis in (upper.xaxis, upper.yaxis):
            axis.set_major_formatter(_in_percent)
        fig.align_ylabels()
        return to_svg(fig, label)


def plot_histograms(
    histogram: Mapping[str, Sequence[float]], label: str, *, xlabel: str
) -> markupsafe.Markup:
    """Shares of known and of unknown images by their scores of belonging.

    Args:
      histogram: `edges` [bins + 1], counts of `known` and `unknown` [bins].
      label: description of the figure, plain text.
      xlabel: what the score is.
    """
    with drawing() as (fig, plot):
        for name, color in zip(
            ("known", "unknown"), palette.COLORS, strict=False
        ):
            counts = np.asarray(histogram[name], float)
            shares = counts / max(counts.sum(), 1)
            plot.stairs(
                shares,
                histogram["edges"],
                fill=True,
                color=color,
                alpha=0.55,
                label=name,
            )
        plot.set(xlabel=xlabel, ylabel="share of images")
        plot.legend(frameon=False, loc="upper left")
        plot.yaxis.set_major_formatter(_in_percent)
        return to_svg(fig, label)


def plot_severities(
    means: Mapping[int, Mapping[int, float]],
    singles: Mapping[int, Sequence[Mapping[int, float]]],
    label: str,
    *,
    in_percent: bool,
) -> markupsafe.Markup:
    """A measure against corruption severity, 0 for clean images.

    Args:
      means: by the index of the run and by severity.
      singles: the measure of every corruption, by the same; thin lines behind.
      label: description of the figure, plain text.
      in_percent: whether the measure is a share.
    """
    with drawing(height=250) as (fig, plot):
        for index, lines in singles.items():
            color = _style(index)["color"]
            for line in lines:
                plot.plot(*_points(line), color=color, lw=0.8, alpha=0.3)
        for index, line in means.items():
            plot.plot(*_points(line), **_style(index), lw=2.2, markersize=6)
        plot.set_xlabel("severity")
        severities = sorted(
            {level for line in means.values() for level in line}
        )
        tick_labels = [str(level) if level else "clean" for level in severities]
        plot.set_xticks(severities, tick_labels)
        plot.set_ylim(bottom=0)
        _set_y_ticks(plot, in_percent)
        return to_svg(fig, label)


def plot_plane(
    plane: np.ndarray, labels: np.ndarray, label: str
) -> markupsafe.Markup:
    """Points of the plane [examples, 2], a colour and mark per class."""
    with drawing(height=340) as (fig, plot):
        for class_id in np.unique(labels):
            plot.scatter(
                *plane[labels == class_id].T,
                **palette.style(class_id),
                s=9 if len(plane) > 500 else 16,
                linewidths=0,
            )
        plot.set(xticks=[], yticks=[])
        plot.spines[["top", "right"]].set_visible(True)
        plot.grid(False)
        return to_svg(fig, label)


@contextlib.contextmanager
def drawing(
    height: int = HEIGHT, **subplots: object
) -> Iterator[tuple[figure.Figure, axes.Axes]]:
    """A figure of WIDTH x `height` pixels and its axes, in the page's style.

    An SVG has 72 dots per inch, so a point is a pixel of the page. `subplots`
    are those of `Figure.subplots`, which then gives an array of axes.
    """
    size = WIDTH / 72, height / 72
    with matplotlib.rc_context(_STYLE):
        fig = figure.Figure(figsize=size, layout="constrained")
        yield fig, fig.subplots(**subplots)


def to_svg(fig: figure.Figure, label: str) -> markupsafe.Markup:
    """An <svg> element without fonts, metadata, or ids that nothing uses.

    Args:
      fig: a figure of `drawing`, inside of that context.
      label: plain text for readers who do not see the figure.
    """
    buffer = io.StringIO()
    # The salt makes ids differ between figures, and be equal for equal pages.
    matplotlib.rcParams["svg.hashsalt"] = label
    fig.savefig(buffer, format="svg", transparent=True)
    text = buffer.getvalue()
    content = text[text.index(">", text.index("<svg")) + 1 :]
    for part in ("<metadata>.*?</metadata>", "<style.*?</style>", "<!--.*?-->"):
        content = re.sub(part, "", content, flags=re.S)
    # A font shorthand or a family of matplotlib's would overrule the page's.
    content = re.sub(r"font: ([\d.]+px)[^;\"]*", r"font-size: \1", content)
    content = re.sub(r"font-family: [^;\"]*;?", "", content)
    # Coordinates inside of tags are rounded to hundredths of a pixel.
    content = re.sub(
        "<[^>]*>", lambda tag: re.sub(r"(\d+\.\d\d)\d+", r"\1", tag[0]), content
    )
    content = content.replace("xlink:href", "href")
    targets = set(re.findall(r'(?:href="|url\()#([^")]+)', content))
    content = re.sub(
        r' id="([^"]*)"',
        lambda id_: id_[0] if id_[1] in targets else "",
        content,
    )
    content = re.sub(r">\s+<", "><", content).strip()
    width, height = fig.get_size_inches() * 72
    # The only HTML of the page that no template writes.
    return markupsafe.Markup(
        f'<svg class="figure" xmlns="http://www.w3.org/2000/svg" role="img" '
        f'aria-label="{markupsafe.escape(label)}" width="{width:.0f}" '
        f'height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}">'
        f"{content}"
    )


def data_uri(pixels: np.ndarray) -> str:
    """[height, width, 3] uint8 as a `data:` address of a PNG."""
    buffer = io.BytesIO()
    image.imsave(buffer, np.ascontiguousarray(pixels), format="png")
    encoded = base64.b64encode(buffer.getvalue()).decode("ascii")
    return f"data:image/png;base64,{encoded}"


def _style(index: int) -> dict[str, object]:
    """Colour, dashes and mark of a run."""
    dashes = _DASHES[index % len(_DASHES)]
    return palette.style(index) | {"linestyle": dashes}


def _in_percent(share: float, _: int | None = None) -> str:
    """The label of a tick on an axis of shares, in few digits."""
    return f"{100 * share:.4g}%"


def _set_y_ticks(plot: axes.Axes, in_percent: bool) -> None:
    """Sets about five round numbers as ticks."""
    plot.yaxis.set_major_locator(ticker.MaxNLocator(5, steps=_STEPS))
    if in_percent:
        plot.yaxis.set_major_formatter(_in_percent)


def _points(line: Mapping[int, float]) -> tuple[list[int], list[float]]:
    """The severities in rising order, and their values."""
    levels = sorted(line)
    return levels, [line[level] for level in levels]


def _draw_chance(plot: axes.Axes, chance: Mapping[int, float]) -> None:
    """Draws the level of chance of each run, one line if all are equal."""
    levels = dict(chance)
    values = list(levels.values())
    is_shared = bool(values) and np.ptp(values) <= 0.01 * max(values)
    if is_shared:
        levels = {-1: float(np.mean(values))}
    for index, level in levels.items():
        color = INK if is_shared else _style(index)["color"]
        plot.axhline(level, color=color, lw=1, ls=(0, (1, 2)))
        plot.annotate(
            "chance",
            (1, level),
            xycoords=("axes fraction", "data"),
            xytext=(0, -3),
            textcoords="offset points",
            ha="right",
            va="top",
            fontsize=10,
            color=color,
        )
