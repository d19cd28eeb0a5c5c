"""How the training went, and the views that it saw."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Mapping, Sequence

from supcon_tf.reports import contents, figures


@dataclasses.dataclass(frozen=True)
class _Curve:
    """A figure of metrics.jsonl: its words and its vertical axis.

    `is_folded` where it says little of a healthy run: shown on request.
    """

    title: str
    note: str = ""
    in_percent: bool = False
    from_zero: bool = False
    is_folded: bool = False


_CURVES = {
    "loss": _Curve("Loss", "what training lowers"),
    "accuracy": _Curve("Accuracy", "on the training images", in_percent=True),
    "contrastive_accuracy": _Curve(
        "Contrastive accuracy",
        "share of views whose most similar view is of their own class",
        in_percent=True,
    ),
    "knn_accuracy": _Curve(
        "k-NN accuracy",
        "on test images, by their nearest neighbours",
        in_percent=True,
    ),
    "classifier_accuracy": _Curve(
        "Online accuracy",
        "of a classifier trained on the side, on augmented images",
        in_percent=True,
    ),
    "classifier_loss": _Curve(
        "Online classifier's loss", "cross-entropy, in nats"
    ),
    "learning_rate": _Curve(
        "Learning rate", "size of the training steps", from_zero=True
    ),
    "alignment": _Curve(
        "Alignment of projections",
        "squared distance between positives; falls as classes tighten",
        is_folded=True,
    ),
    "uniformity": _Curve(
        "Uniformity of projections",
        "lower is spread more evenly",
        is_folded=True,
    ),
    "mean_cosine": _Curve(
        "Mean cosine",
        "of all pairs of projections; near 1 is a collapse",
        is_folded=True,
    ),
    "positives_per_anchor": _Curve(
        "Positives per anchor",
        "views of the anchor's class in its batch",
        is_folded=True,
    ),
    "share_without_positives": _Curve(
        "Anchors without positives",
        "these teach nothing",
        in_percent=True,
        is_folded=True,
    ),
    "images/s": _Curve(
        "Speed", "images per second", from_zero=True, is_folded=True
    ),
    "data_wait": _Curve(
        "Waiting for data",
        "share of the time; above a quarter the input is the bottleneck",
        in_percent=True,
        is_folded=True,
    ),
}
_NOT_DRAWN = {"epoch", "loss/chance"}  # the second is in the loss's figure


def are_drawn(run: contents.Run) -> bool:
    """Whether a run has its curves; one of no epochs has none to have."""
    return bool(run.epochs) or run.settings.get("epochs") == "0"


def curves(runs: Sequence[contents.Run]) -> dict[str, object]:
    """Small multiples of metrics.jsonl, of both stages."""
    stages = []
    for title, epochs in (
        ("Pretraining", [run.epochs for run in runs]),
        ("Linear stage", [run.linear_epochs for run in runs]),
    ):
        if any(epochs):
            stages.append(
                {
                    "title": title,
                    "legend": {
                        index: run.name
                        for index, run in enumerate(runs)
                        if epochs[index]
                    },
                    "figures": _multiples(title, epochs),
                }
            )
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


def _multiples(
    title: str, stages: Sequence[Sequence[Mapping]]
) -> list[dict[str, object]]:
    """A figure per quantity that some run has, unknown ones folded, last."""
    logged = {name for epochs in stages for line in epochs for name in line}
    others = sorted(logged - _CURVES.keys() - _NOT_DRAWN)
    known = {name: x for name, x in _CURVES.items() if name in logged}
    known |= {name: _Curve(name, is_folded=True) for name in others}
    drawn = (_figure(title, x, name, stages) for name, x in known.items())
    return [one for one in drawn if one]


def _figure(
    stage: str, curve: _Curve, name: str, stages: Sequence[Sequence[Mapping]]
) -> dict[str, object] | None:
    """A line per run; None where no value is finite."""
    lines = {}
    for index, epochs in enumerate(stages):
        known = [x for x in epochs if x.get(name) is not None]
        if known:
            lines[index] = (
                [x["epoch"] for x in known],
                [x[name] for x in known],
            )
    if not lines:
        return None
    # First and last values, for those who do not see the lines.
    words = "; ".join(
        f"line {index + 1}: {y[0]:.3g} at first, {y[-1]:.3g} at last"
        for index, (_, y) in lines.items()
    )
    drawing = figures.plot_curves(
        lines,
        f"{stage}: {curve.title.lower()} by epoch. {words}",
        last_epoch=max(x[-1]["epoch"] for x in stages if x),
        chance=_chance_levels(stages) if name == "loss" else {},
        in_percent=curve.in_percent,
        from_zero=curve.from_zero,
    )
    return {"name": name, "curve": curve, "drawing": drawing}


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
