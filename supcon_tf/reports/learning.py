"""How the training went, and the views that it saw."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from supcon_tf.reports import contents, figures

# Of a figure of metrics.jsonl its title and a few words, in their order.
_SHOWN = {
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
_FOLDED = {  # they say little of a healthy run: on request
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
        "views of the anchor's class in its batch",
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
_CURVES = _SHOWN | _FOLDED
_SHARES = {
    *("accuracy", "contrastive_accuracy", "knn_accuracy"),
    *("classifier_accuracy", "share_without_positives", "data_wait"),
}
_FROM_ZERO = {"learning_rate", "examples/s"}
_NOT_DRAWN = {"epoch", "loss/chance"}  # the second is in the loss's figure


def curves(runs: Sequence[contents.Run]) -> dict[str, object]:
    """Small multiples of metrics.jsonl of both stages, unknown figures last."""
    stages = []
    for title, epochs in (
        ("Pretraining", [run.epochs for run in runs]),
        ("Linear stage", [run.linear_epochs for run in runs]),
    ):
        legend = {i: run.name for i, run in enumerate(runs) if epochs[i]}
        logged = {name for lines in epochs for line in lines for name in line}
        names = [name for name in _CURVES if name in logged]
        names += sorted(logged - _CURVES.keys() - _NOT_DRAWN)
        drawn = [x for name in names if (x := _figure(title, name, epochs))]
        if legend:
            stages.append({"title": title, "legend": legend, "figures": drawn})
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
    stage: str, name: str, stages: Sequence[Sequence[Mapping]]
) -> dict[str, object] | None:
    """A line per run; None where no value is finite."""
    lines = {}
    for index, epochs in enumerate(stages):
        known = [x for x in epochs if x.get(name) is not None]
        if known:
            x, y = [x["epoch"] for x in known], [x[name] for x in known]
            lines[index] = x, y
    if not lines:
        return None
    title, note = _CURVES.get(name, (name, ""))
    # First and last values, for those who do not see the lines.
    words = "; ".join(
        f"line {index + 1}: {y[0]:.3g} at first, {y[-1]:.3g} at last"
        for index, (_, y) in lines.items()
    )
    drawing = figures.plot_curves(
        lines,
        f"{stage}: {title.lower()} by epoch. {words}",
        last_epoch=max(x[-1]["epoch"] for x in stages if x),
        chance=_chance_levels(stages) if name == "loss" else {},
        in_percent=name in _SHARES,
        from_zero=name in _FROM_ZERO,
    )
    return {
        "name": name,
        "title": title,
        "note": note,
        "is_folded": name not in _SHOWN,
        "drawing": drawing,
    }


def _chance_levels(stages: Sequence[Sequence[Mapping]]) -> dict[int, float]:
    """Loss of equal projections, from the quotient that is recorded."""
    levels = {}
    for index, epochs in enumerate(stages):
        known = [
            x["loss"] / x["loss/chance"]
            for x in epochs
            if x.get("loss") and x.get("loss/chance")
        ]
        if known:
            levels[index] = statistics.median(known)
    return levels
