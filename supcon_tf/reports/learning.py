"""Learning curves of both stages, and augmented views of training images."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from supcon_tf.reports import contents, figures

# Title and note of each figure, by its key in metrics.jsonl, in their order.
_MAIN = {
    "loss": ("Loss", "what training lowers"),
    "accuracy": ("Accuracy", "on the training images"),
    "contrastive_accuracy": (
        "Contrastive accuracy",
        "share of views whose most similar view is of their own class",
    ),
    "knn_accuracy": (
        "k-NN accuracy",
        "on test images, by their nearest neighbours",
    ),
    "classifier_accuracy": (
        "Online accuracy",
        "of a classifier trained on the side, on augmented images",
    ),
    "classifier_loss": ("Online classifier's loss", "cross-entropy, in nats"),
    "learning_rate": ("Learning rate", "size of the training steps"),
}
_FOLDED = {  # figures that say little of a healthy run: on request
    "alignment": (
        "Alignment of projections",
        "squared distance between positives; falls as classes tighten",
    ),
    "uniformity": ("Uniformity of projections", "lower is spread more evenly"),
    "mean_cosine": (
        "Mean cosine",
        "of all pairs of projections; near 1 is a collapse",
    ),
    "positives_per_anchor": (
        "Positives per anchor",
        "other views in its batch that count as alike",
    ),
    "share_without_positives": (
        "Anchors without positives",
        "these teach nothing",
    ),
    "examples/s": ("Speed", "images or texts per second"),
    "data_wait": (
        "Waiting for data",
        "share of the time; above a quarter the input is the bottleneck",
    ),
}
_FIGURES = _MAIN | _FOLDED
_SHARES = {
    *("accuracy", "contrastive_accuracy", "knn_accuracy"),
    *("classifier_accuracy", "share_without_positives", "data_wait"),
}
_FROM_ZERO = {"learning_rate", "examples/s"}
_NOT_DRAWN = {"epoch", "loss/chance"}  # the figure of the loss has the second


def curves(runs: Sequence[contents.Run]) -> dict[str, object]:
    """Small multiples of metrics.jsonl of both stages, unknown figures last."""
    stages = []
    for title, epochs in (
        ("Pretraining", [run.epochs for run in runs]),
        ("Linear stage", [run.linear_epochs for run in runs]),
    ):
        legend = {i: run.name for i, run in enumerate(runs) if epochs[i]}
        logged = {name for lines in epochs for line in lines for name in line}
        names = [name for name in _FIGURES if name in logged]
        names += sorted(logged - _FIGURES.keys() - _NOT_DRAWN)
        panels = [_figure(title, name, epochs) for name in names]
        panels = [panel for panel in panels if panel]
        if legend:
            stages.append({"title": title, "legend": legend, "figures": panels})
    if not stages:
        return {}
    objectives = {run.settings.get("objective", "supcon") for run in runs}
    return {"stages": stages, "are_comparable": len(objectives) == 1}


def views(runs: Sequence[contents.Run]) -> list[dict[str, list]]:
    """Augmented views of training images, a row per image."""
    # Runs of the same images and augmentation show them once.
    groups: dict[tuple, dict[str, list]] = {}
    for run in runs:
        if "views" in run.samples:
            images, labels = run.samples["views"], run.samples["view_labels"]
            classes = [run.class_name(int(label)) for label in labels]
            group = groups.setdefault(
                (images.tobytes(), *classes),
                {"runs": [], "images": [*zip(classes, images, strict=True)]},
            )
            group["runs"].append(run.name)
    return [*groups.values()]


def _figure(
    stage: str, name: str, runs: Sequence[Sequence[Mapping]]
) -> dict[str, object] | None:
    """The figure of a metric, a line per run; None where no value is finite."""
    lines = {}
    for index, epochs in enumerate(runs):
        points = [
            (record["epoch"], record[name])
            for record in epochs
            if record.get(name) is not None
        ]
        if points:
            lines[index] = tuple(zip(*points, strict=True))
    if not lines:
        return None
    title, note = _FIGURES.get(name, (name, ""))
    # First and last values, for those who do not see the lines.
    summary = "; ".join(
        f"line {index + 1}: {values[0]:.3g} at first, {values[-1]:.3g} at last"
        for index, (_, values) in lines.items()
    )
    drawing = figures.plot_curves(
        lines,
        f"{stage}: {title.lower()} by epoch. {summary}",
        last_epoch=max(epochs[-1]["epoch"] for epochs in runs if epochs),
        chance=_chance_levels(runs) if name == "loss" else {},
        in_percent=name in _SHARES,
        from_zero=name in _FROM_ZERO,
    )
    return {
        "name": name,
        "title": title,
        "note": note,
        "is_folded": name not in _MAIN,
        "drawing": drawing,
    }


def _chance_levels(runs: Sequence[Sequence[Mapping]]) -> dict[int, float]:
    """Loss of equal projections of each run: loss / (loss / chance)."""
    levels = {}
    for index, epochs in enumerate(runs):
        losses = [
            record["loss"] / record["loss/chance"]
            for record in epochs
            if record.get("loss") and record.get("loss/chance")
        ]
        if losses:
            levels[index] = statistics.median(losses)
    return levels
