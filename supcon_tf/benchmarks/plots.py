"""Figures: the loss against rows, the input pipeline per case."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib import axes, figure, ticker

# Petroff 2021, https://arxiv.org/abs/2107.02270: colours that stay apart under
# the common colour-vision deficiencies; ours are red, orange and blue.
_STYLES = {
    "tiled": ("#bd1f01", "o"),
    "looped": ("#e76300", "P"),
    "dense": ("#3f90da", "s"),
    "floor": ("#717581", "_"),
    "official": ("#ffa90e", "^"),
    "supcontrast": ("#832db6", "D"),
    "pml": ("#a96b59", "v"),
}
_LABELS = {
    "tiled": "tiled (ours)",
    "looped": "tiled, looped (ours)",
    "dense": "dense (ours)",
    "floor": "floor: products and exp alone",
    "official": "google-research",
    "supcontrast": "SupContrast",
    "pml": "pytorch-metric-learning",
}
_INPUT_COLORS = {
    "ours": "#bd1f01",
    "tfm": "#ffa90e",
    "pil": "#832db6",
    "twice": "#717581",
}
_INPUT_LABELS = {
    "ours": "ours",
    "tfm": "tf-models-official",
    "pil": "torchvision, Pillow",
    "twice": "ours, two pipelines",
}


def plot_loss(points: Sequence[dict[str, object]]) -> figure.Figure:
    """Two log-log panels: time, and peak memory, against rows.

    Args:
      points: dicts with `implementation`, `rows`, `status`, and `ms` and
        `peak_mb` where the status is "measured"; others are not drawn.

    Returns:
      A figure outside pyplot with two axes.
    """
    drawn = figure.Figure(figsize=(11, 4), layout="constrained")
    panels = drawn.subplots(1, 2)
    measured = [p for p in points if p["status"] == "measured"]
    names = dict.fromkeys(p["implementation"] for p in measured)
    for name in names:
        color, marker = _STYLES[name]
        own = [p for p in measured if p["implementation"] == name]
        rows = [p["rows"] for p in own]
        style = {
            "color": color,
            "marker": marker,
            "label": _LABELS.get(name, name),
        }
        panels[0].plot(rows, [p["ms"] for p in own], **style)
        # A logarithm has no 0: what did not show is drawn at 1 MB.
        panels[1].plot(rows, [max(p["peak_mb"], 1) for p in own], **style)
    ticks = sorted({p["rows"] for p in measured})
    titles = ("time of forward + backward, ms", "peak memory growth, MB")
    for panel, title in zip(panels, titles, strict=True):
        panel.set(xscale="log", yscale="log", xlabel="rows (batch x views)")
        panel.set_title(title, fontsize="medium")
        panel.xaxis.set_major_locator(ticker.FixedLocator(ticks))
        panel.xaxis.set_minor_locator(ticker.NullLocator())
        panel.xaxis.set_major_formatter("{x:,.0f}")
        panel.yaxis.set_major_formatter("{x:,.6g}")
        panel.tick_params(axis="x", rotation=45)
        panel.grid(alpha=0.3)
        panel.spines[["top", "right"]].set_visible(False)
    if names:
        drawn.legend(
            *panels[0].get_legend_handles_labels(),
            loc="outside right upper",
            frameon=False,
        )
    return drawn


def plot_input(points: Sequence[dict[str, object]]) -> figure.Figure:
    """Bars of images per second: a panel per size, a group per case.

    Args:
      points: dicts with `implementation`, `size`, `input`, `policy`, `status`,
        and `images_per_second` where the status is "measured"; others are not
        drawn.

    Returns:
      A figure outside pyplot with an axis per size, at least one.
    """
    sizes = sorted({point["size"] for point in points})
    drawn = figure.Figure(figsize=(11, 4), layout="constrained")
    panels = drawn.subplots(1, max(len(sizes), 1), squeeze=False)[0]
    names = list(dict.fromkeys(point["implementation"] for point in points))
    for size, panel in zip(sizes, panels, strict=False):
        _draw_bars(panel, [p for p in points if p["size"] == size], names)
        panel.set_title(f"{size} pixels, images/s", fontsize="medium")
    if names:
        drawn.legend(
            *panels[0].get_legend_handles_labels(),
            loc="outside right upper",
            frameon=False,
        )
    return drawn


def _draw_bars(
    panel: axes.Axes, points: list[dict[str, object]], names: list[str]
) -> None:
    """Bars of one size, side by side within each case."""
    groups = list(dict.fromkeys((p["input"], p["policy"]) for p in points))
    width = 0.8 / len(names)
    for number, name in enumerate(names):
        own = [
            p
            for p in points
            if p["implementation"] == name and p["status"] == "measured"
        ]
        panel.bar(
            [
                groups.index((p["input"], p["policy"])) + width * number
                for p in own
            ],
            [p["images_per_second"] for p in own],
            width,
            align="edge",
            color=_INPUT_COLORS[name],
            label=_INPUT_LABELS[name],
        )
    panel.set_xticks(
        [at + 0.4 for at in range(len(groups))],
        [f"{policy}\n{of}" for of, policy in groups],
        fontsize="small",
    )
    panel.yaxis.set_major_formatter("{x:,.6g}")
    panel.grid(axis="y", alpha=0.3)
    panel.spines[["top", "right"]].set_visible(False)
