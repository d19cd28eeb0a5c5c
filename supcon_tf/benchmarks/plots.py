"""Figure of time and memory against rows."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib import figure, ticker

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


def plot_loss(points: Sequence[dict[str, object]]) -> figure.Figure:
    """Two log-log panels: time, and peak memory, against rows.

    Args:
      points: dicts with `implementation`, `rows`, `status`, and `ms` and
        `peak_mb` where the status is "measured"; others are not drawn.

    Returns:
      A figure outside pyplot with two axes.
    """
    drawn = figure.Figure(figsize=(11, 4), layout="constrained")
    axes = drawn.subplots(1, 2)
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
        axes[0].plot(rows, [p["ms"] for p in own], **style)
        # A logarithm has no 0: what did not show is drawn at 1 MB.
        axes[1].plot(rows, [max(p["peak_mb"], 1) for p in own], **style)
    ticks = sorted({p["rows"] for p in measured})
    titles = ("time of forward + backward, ms", "peak memory growth, MB")
    for panel, title in zip(axes, titles, strict=True):
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
            *axes[0].get_legend_handles_labels(),
            loc="outside right upper",
            frameon=False,
        )
    return drawn
