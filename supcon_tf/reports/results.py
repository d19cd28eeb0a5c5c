"""The numbers of evaluation.json, each with its words, as tables."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from supcon_tf.reports import contents, markup


@dataclasses.dataclass(frozen=True)
class Measure:
    """A number of evaluation.json.

    Attributes:
      title: its name.
      keys: where it stands.
      meaning: half a sentence for a newcomer.
      better: 1 where more is better, -1 where less is, 0 for neither.
      unit: "share" is shown in percent, "number" as it is, "percent" is in
        percent already.
    """

    title: str
    keys: tuple[str, ...]
    meaning: str = ""
    better: int = 1
    unit: str = "share"

    def value(self, run: contents.Run) -> float | None:
        """The number of a run, None where it was not measured."""
        return contents.value_at(run.evaluation, *self.keys)

    def text(self, value: float | None) -> str:
        """The number as it is shown."""
        if self.unit == "share":
            return markup.percent(value)
        return markup.number(value, 1 if self.unit == "percent" else 3)

    def difference(self, value: float, base: float) -> str:
        """The number less another run's, with its sign."""
        scale = 100 if self.unit == "share" else 1
        digits = 3 if self.unit == "number" else 1
        change = round(scale * (value - base), digits)
        sign = "+" if change > 0 else "" if change < 0 else "±"
        return f"{sign}{markup.number(change + 0.0, digits)}"


TOP_1 = Measure(
    "Top-1 accuracy",
    ("linear", "top_1"),
    "share of test images whose most probable class is the right one",
)
PRETRAINED_TOP_1 = Measure(
    "Top-1 accuracy, trained together",
    ("pretrained", "top_1"),
    "of the classifier that was trained together with the encoder",
)
KNN_TOP_1 = Measure(
    "k-NN accuracy",
    ("knn", "top_1"),
    "when the most similar training images vote on the class",
)
TOP_5 = Measure(
    "Top-5 accuracy",
    ("linear", "top_5"),
    "share whose right class is among the five most probable",
)
ECE = Measure(
    "Calibration error (ECE)",
    ("linear", "ece"),
    "how far confidence is from accuracy on average; 0 is perfect",
    -1,
    "number",
)
PRETRAINED_ECE = dataclasses.replace(
    ECE,
    title="ECE, trained together",
    keys=("pretrained", "ece"),
    meaning="of the classifier that was trained together with the encoder",
)
MAP_AT_R = Measure(
    "Retrieval (mAP@R)",
    ("retrieval", "map_at_r"),
    "how much of a test image's class comes first when the others are "
    "sorted by similarity",
)
ALIGNMENT = Measure(
    "Alignment",
    ("representations", "alignment"),
    "mean squared distance between images of a class; smaller is tighter",
    0,
    "number",
)
UNIFORMITY = Measure(
    "Uniformity",
    ("representations", "uniformity"),
    "how evenly all images spread over the sphere; lower is more even",
    0,
    "number",
)
PROTOTYPE = Measure(
    "Prototype accuracy",
    ("prototype", "top_1"),
    "when the nearest class mean decides",
)
CORRUPTED = {
    name: Measure(
        title,
        ("corruptions", name, "mean_corruption_error_unnormalized"),
        "plain mean over all corruptions and severities",
        -1,
    )
    for name, title in {
        "linear": "Error on corrupted images",
        "pretrained": "Error on corrupted images, trained together",
    }.items()
}
MCE = {
    name: Measure(
        title,
        ("corruptions", name, "mce"),
        "the same errors in percent of a reference's, see Corrupted images",
        -1,
        "percent",
    )
    for name, title in {
        "linear": "mCE",
        "pretrained": "mCE, trained together",
    }.items()
}
KEY = (
    TOP_1,
    PRETRAINED_TOP_1,
    KNN_TOP_1,
    ECE,
    PRETRAINED_ECE,
    *CORRUPTED.values(),
    *MCE.values(),
    MAP_AT_R,
)
_OTHERS = (
    TOP_5,
    Measure("Top-5, trained together", ("pretrained", "top_5")),
    Measure("k-NN, top-5", ("knn", "top_5")),
    Measure(
        "k-NN, majority vote",
        ("knn_majority", "top_1"),
        "the neighbours' votes count the same, whatever their similarity",
    ),
    Measure(
        "k-NN on the training images",
        ("knn_leave_one_out", "top_1"),
        "each classified by the others: to choose k by",
    ),
    PROTOTYPE,
    Measure(
        "Negative log-likelihood",
        ("linear", "nll"),
        "linear classifier, nats; grows with confident mistakes",
        -1,
        "number",
    ),
    Measure(
        "Brier score",
        ("linear", "brier"),
        "linear classifier; squared error of the probabilities",
        -1,
        "number",
    ),
    Measure(
        "Negative log-likelihood, trained together",
        ("pretrained", "nll"),
        "",
        -1,
        "number",
    ),
    Measure(
        "Brier score, trained together",
        ("pretrained", "brier"),
        "",
        -1,
        "number",
    ),
    Measure("k-NN ECE", ("knn", "ece"), "", -1, "number"),
)


def all_measures(runs: Sequence[contents.Run]) -> tuple[Measure, ...]:
    """Everything that is a number, the key ones first."""
    recalls = recall_at(runs)
    return (*KEY, *_OTHERS, *recalls, ALIGNMENT, UNIFORMITY)


def recall_at(runs: Sequence[contents.Run]) -> tuple[Measure, ...]:
    """Recall@k for the k that were measured, in their order."""
    known = {
        int(k)
        for run in runs
        for k in run.evaluation.get("retrieval", {}).get("recall_at", {})
    }
    return tuple(
        Measure(
            f"Recall@{k}",
            ("retrieval", "recall_at", str(k)),
            "the most similar other test image is of the same class"
            if k == 1
            else f"one of the {k} most similar is",
        )
        for k in sorted(known)
    )


def results_table(
    runs: Sequence[contents.Run], measures: Sequence[Measure], label: str
) -> str:
    """A row per measure that some run has, a column per run.

    Of several runs the best is marked, and those after the first say their
    difference to it. Returns "" where no run has any.
    """
    rows = []
    for measure in measures:
        values = [measure.value(run) for run in runs]
        if all(value is None for value in values):
            continue
        note = f"<small>{measure.meaning}</small>" if measure.meaning else ""
        cells = (
            _cells(measure, values)
            if len(runs) > 1
            else [measure.text(values[0])]
        )
        rows.append([measure.title + note, *cells])
    if not rows:
        return ""
    head = ["", *(markup.name(run.name) for run in runs)]
    return markup.table(head, rows, label, "numbers")


def uncertainty(share: float, count: int) -> float:
    """Half the width of an accuracy's 95 % interval, by Wilson 1927.

    Args:
      share: the accuracy.
      count: positive, the images that it was measured on.
    """
    z = 1.96
    spread = share * (1 - share) / count + z**2 / (4 * count**2)
    return z * math.sqrt(spread) / (1 + z**2 / count)


def _cells(measure: Measure, values: Sequence[float | None]) -> list[str]:
    """Values of several runs: the best marked, differences to the first."""
    known = [value for value in values if value is not None]
    best = max(known, key=lambda value: measure.better * value)
    differ = len({measure.text(value) for value in known}) > 1
    cells = []
    for index, value in enumerate(values):
        text = measure.text(value)
        is_best = measure.better and differ and text == measure.text(best)
        cell = f'<span class="best">{text}</span>' if is_best else text
        if index and value is not None and values[0] is not None:
            change = measure.difference(value, values[0])
            cell += f"<small>{change}</small>"
        cells.append(cell)
    return cells
