"""Figures: loss over rows, learning over steps, input and step per case."""

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
_STEP_COLORS = {
    "ours": "#bd1f01",
    "ours_bfloat16": "#e76300",
    "torch_nchw": "#832db6",
    "torch_channels_last": "#a96b59",
    "torch_channels_last_bf16": "#717581",
}
_STEP_LABELS = {
    "ours": "ours",
    "ours_bfloat16": "ours, bfloat16",
    "torch_nchw": "PyTorch, NCHW",
    "torch_channels_last": "PyTorch, channels last",
    "torch_channels_last_bf16": "PyTorch, channels last, bfloat16",
}
_LEARNING_STYLES = {
    "ours": ("#bd1f01", "ours"),
    "supcontrast": ("#832db6", "SupContrast, our weights and views"),
    "supcontrast_published": ("#717581", "SupContrast, its own"),
}
_HATCHES = ("//", "..", "xx", "--")


# By implementation and step, the values of all seeds.
Curves = dict[str, dict[int, list[float]]]


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
    styles = {
        name: {"color": _INPUT_COLORS[name], "label": _INPUT_LABELS[name]}
        for name in names
    }
    for size, panel in zip(sizes, panels, strict=False):
        bars = [
            (
                f"{point['policy']}\n{point['input']}",
                point["implementation"],
                _height(point, "images_per_second"),
            )
            for point in points
            if point["size"] == size
        ]
        _draw_bars(panel, bars, styles)
        panel.set_title(f"{size} pixels, images/s", fontsize="medium")
    _add_legend(drawn, panels[0])
    return drawn


def plot_step(points: Sequence[dict[str, object]]) -> figure.Figure:
    """Two panels of bars, a group per case: views per second, peak memory.

    Args:
      points: dicts with `implementation`, `chunks`, `architecture`,
        `batch_size`, `status`, and `views_per_second` and `peak_mb` where the
        status is "measured"; others are not drawn.

    Returns:
      A figure outside pyplot with two axes.
    """
    drawn = figure.Figure(figsize=(11, 4), layout="constrained")
    panels = drawn.subplots(1, 2)
    styles = _step_styles(points)
    titles = {
        "views_per_second": "training, views/s",
        "peak_mb": "peak memory growth, MB",
    }
    for (key, title), panel in zip(titles.items(), panels, strict=True):
        bars = [
            (
                f"{point['architecture']}\n{point['batch_size']} images",
                _series(point),
                _height(point, key),
            )
            for point in points
        ]
        _draw_bars(panel, bars, styles)
        panel.set_title(title, fontsize="medium")
    _add_legend(drawn, panels[0])
    return drawn


def _height(point: dict[str, object], key: str) -> float | None:
    """What a bar is drawn for; None where nothing was measured."""
    return point[key] if point["status"] == "measured" else None


def _series(point: dict[str, object]) -> tuple[str, int]:
    """Implementation, and images of a chunk; 0 for the whole batch."""
    chunks = point["chunks"]
    size = point["batch_size"] // chunks if chunks > 1 else 0
    return point["implementation"], size


def _step_styles(
    points: Sequence[dict[str, object]],
) -> dict[tuple[str, int], dict[str, object]]:
    """Series to its bars' style: a color per implementation, chunks hatched."""
    series = sorted(
        {_series(point) for point in points},
        key=lambda of: (list(_STEP_COLORS).index(of[0]), of[1]),
    )
    sizes = sorted({size for _, size in series if size})
    styles = {}
    for name, size in series:
        label, hatch = _STEP_LABELS[name], None
        if size:
            label += f", {size} at a time"
            hatch = _HATCHES[sizes.index(size) % len(_HATCHES)]
        styles[name, size] = {
            "color": _STEP_COLORS[name],
            "label": label,
            "hatch": hatch,
            "edgecolor": "white",
        }
    return styles


def _add_legend(drawn: figure.Figure, panel: axes.Axes) -> None:
    """The legend of one panel, beside all, where it has any bars."""
    handles, labels = panel.get_legend_handles_labels()
    if handles:
        drawn.legend(handles, labels, loc="outside right upper", frameon=False)


def plot_learning(curves: dict[str, Curves]) -> figure.Figure:
    """Two panels over steps: k-NN accuracy, and the loss over tau.

    Args:
      curves: of "knn" and "loss", by implementation and step, the values of
        all seeds: a line through their means in a band over their range.

    Returns:
      A figure outside pyplot with two axes.
    """
    drawn = figure.Figure(figsize=(9, 4), layout="constrained")
    titles = {
        "knn": "k-NN accuracy of test images",
        "loss": "loss / temperature",
    }
    for panel, (name, title) in zip(
        drawn.subplots(1, 2), titles.items(), strict=True
    ):
        for implementation, values in curves[name].items():
            color, label = _LEARNING_STYLES[implementation]
            seeds = [values[step] for step in values]
            panel.plot(
                list(values),
                [sum(of_step) / len(of_step) for of_step in seeds],
                color=color,
                label=label,
                marker="o",
                markersize=3,
            )
            panel.fill_between(
                list(values),
                [min(of_step) for of_step in seeds],
                [max(of_step) for of_step in seeds],
                color=color,
                alpha=0.2,
                linewidth=0,
            )
        panel.set_title(title, fontsize="medium")
        panel.set_xlabel("steps")
        panel.grid(alpha=0.3)
        panel.spines[["top", "right"]].set_visible(False)
    if panel.lines:
        panel.legend(frameon=False)
    return drawn


def _draw_bars(
    panel: axes.Axes,
    bars: list[tuple[str, object, float | None]],
    styles: dict[object, dict[str, object]],
) -> None:
    """Bars side by side within each group.

    Args:
      panel: to draw in.
      bars: (group, series, height); None has no bar.
      styles: arguments of `Axes.bar` of each series, in order.
    """
    groups = list(dict.fromkeys(group for group, _, _ in bars))
    width = 0.8 / max(len(styles), 1)
    for number, (series, style) in enumerate(styles.items()):
        own = [
            (groups.index(group) + width * number, height)
            for group, of, height in bars
            if of == series and height is not None
        ]
        panel.bar(
            [at for at, _ in own],
            [height for _, height in own],
            width,
            align="edge",
            **style,
        )
    panel.set_xticks(
        [at + 0.4 for at in range(len(groups))], groups, fontsize="small"
    )
    panel.yaxis.set_major_formatter("{x:,.6g}")
    panel.grid(axis="y", alpha=0.3)
    panel.spines[["top", "right"]].set_visible(False)
