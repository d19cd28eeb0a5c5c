"""How the training went, and the views that it saw."""

from __future__ import annotations

import dataclasses
import shlex
import statistics
from collections.abc import Mapping, Sequence

from supcon_tf.reports import (
    contents,
    figures,
    markup,
    overview,
    page,
    pictures,
)

_NOT_DRAWN = ("epoch", "loss/chance")  # the second is in the loss's figure


@dataclasses.dataclass(frozen=True)
class _Curve:
    """A figure of metrics.jsonl: its words and its vertical axis."""

    title: str
    note: str
    in_percent: bool = False
    from_zero: bool = False


_CURVES = {
    "loss": _Curve("Loss", "what training lowers"),
    "accuracy": _Curve("Accuracy", "on the training images", True),
    "contrastive_accuracy": _Curve(
        "Contrastive accuracy",
        "share of views whose most similar view is of their own class",
        True,
    ),
    "knn_accuracy": _Curve(
        "k-NN accuracy", "on test images, by their nearest neighbours", True
    ),
    "classifier_accuracy": _Curve(
        "Online accuracy",
        "of a classifier trained on the side, on augmented images",
        True,
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
    ),
    "uniformity": _Curve(
        "Uniformity of projections", "lower is spread more evenly"
    ),
    "mean_cosine": _Curve(
        "Mean cosine", "of all pairs of projections; near 1 is a collapse"
    ),
    "positives_per_anchor": _Curve(
        "Positives per anchor", "views of the anchor's class in its batch"
    ),
    "share_without_positives": _Curve(
        "Anchors without positives", "these teach nothing", True
    ),
    "images/s": _Curve("Speed", "images per second", from_zero=True),
    "data_wait": _Curve(
        "Waiting for data",
        "share of the time; above a quarter the input is the bottleneck",
        True,
    ),
}
# Figures of a healthy run that say little; shown on request.
_LATER = (
    "alignment",
    "uniformity",
    "mean_cosine",
    "positives_per_anchor",
    "share_without_positives",
    "images/s",
    "data_wait",
)


def curves_section(runs: Sequence[contents.Run]) -> page.Section:
    """Small multiples of metrics.jsonl, of both stages."""
    body = ""
    for title, stages in (
        ("Pretraining", [run.epochs for run in runs]),
        ("Linear stage", [run.linear_epochs for run in runs]),
    ):
        if any(stages):
            names = {i: run.name for i, run in enumerate(runs) if stages[i]}
            legend = markup.legend(names) if len(runs) > 1 else ""
            body += f"<h3>{title}</h3>{legend}" + _multiples(title, stages)
    explanation = (
        "One point per epoch, a pass over the training images. The loss "
        "should fall from its chance level, that of an encoder which has "
        "learned nothing, and settle; accuracies should rise."
    )
    # A run of no epochs, of random weights, has no curves.
    is_absent = [
        not run.epochs and run.settings.get("epochs") != "0" for run in runs
    ]
    objectives = {run.settings.get("objective", "supcon") for run in runs}
    if len(objectives) > 1:
        explanation += (
            " The runs have different objectives: the levels of their losses "
            "cannot be compared."
        )
    return page.Section(
        "curves",
        "Learning curves",
        explanation,
        body,
        overview.absent(runs, is_absent, _pretrain),
    )


def views_section(runs: Sequence[contents.Run]) -> page.Section:
    """Augmented views of training images, a row per image."""
    # Runs of the same images and augmentation show them once.
    groups: dict[str, list[str]] = {}
    for run in runs:
        if "views" in run.samples:
            groups.setdefault("".join(_view_rows(run)), []).append(run.name)
    body = ""
    for rows, names in groups.items():
        if len(runs) > 1:
            body += f"<h3>{', '.join(map(markup.name, names))}</h3>"
        body += f'<div class="views">{rows}</div>'
    return page.Section(
        "views",
        "Augmented views",
        "Training never sees an image as it is, but random augmentations of "
        "it. Each group shows views of one training image: a person should "
        "still recognise what it is, and the views should differ.",
        body,
        overview.absent(runs, ["views" not in run.samples for run in runs]),
    )


def _view_rows(run: contents.Run) -> list[str]:
    """The views of each image, under the name of its class."""
    rows = []
    views, labels = run.samples["views"], run.samples["view_labels"]
    for label, group in zip(labels, views, strict=True):
        name = run.class_name(int(label))
        images = "".join(
            pictures.pictured(pixels, f"view {index + 1} of an image of {name}")
            for index, pixels in enumerate(group)
        )
        rows.append(
            f'<div><h4>{markup.name(name)}</h4><div class="strip">{images}'
            "</div></div>"
        )
    return rows


def _multiples(title: str, stages: Sequence[Sequence[Mapping]]) -> str:
    """A figure per quantity that some run has."""
    logged = {name for epochs in stages for line in epochs for name in line}
    known = [name for name in _CURVES if name in logged]
    others = sorted(logged - {*known, *_NOT_DRAWN})
    first = [name for name in known if name not in _LATER]
    later = [name for name in known if name in _LATER] + others
    drawn = {name: _figure(title, name, stages) for name in (*first, *later)}
    text = markup.panels(drawn[name] for name in first)
    more = "".join(drawn[name] for name in later)
    if more:
        text += markup.details(
            "More: speed and the geometry of the projections"
            if "alignment" in later
            else "More: speed",
            markup.panels([more]),
        )
    return text


def _figure(title: str, name: str, stages: Sequence[Sequence[Mapping]]) -> str:
    """One quantity over the epochs, a line per run; "" if never finite."""
    curve = _CURVES.get(name, _Curve(name, ""))
    lines = {}
    for index, epochs in enumerate(stages):
        known = [x for x in epochs if x.get(name) is not None]
        if known:
            lines[index] = (
                [x["epoch"] for x in known],
                [x[name] for x in known],
            )
    if not lines:
        return ""
    drawing = figures.plot_curves(
        lines,
        f"{title}: {curve.title.lower()} by epoch. {_in_words(lines)}",
        last_epoch=max(x[-1]["epoch"] for x in stages if x),
        chance=_chance_levels(stages) if name == "loss" else None,
        in_percent=curve.in_percent,
        from_zero=curve.from_zero,
    )
    return markup.figure(markup.escape(curve.title), drawing, curve.note)


def _in_words(lines: Mapping) -> str:
    """First and last values, for those who do not see the lines."""
    return "; ".join(
        f"line {index + 1}: {y[0]:.3g} at first, {y[-1]:.3g} at last"
        for index, (_, y) in lines.items()
    )


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


def _pretrain(run: contents.Run) -> str:
    """The command that continues a pretraining."""
    flagfile = shlex.quote(str(run.path / "settings.flags"))
    return f"python tools/pretrain.py --flagfile={flagfile} --resume"
