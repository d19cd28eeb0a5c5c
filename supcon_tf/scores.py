"""Every score of evaluation.json: its names, its meaning, which way is better.

One table for the text that tools print, the page of a report and the ranking
of a sweep; TensorFlow is not needed to read it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping


@dataclasses.dataclass(frozen=True)
class Score:
    """A number of evaluation.json.

    Attributes:
      path: where it stands there, keys with dots between.
      short: what a table of text calls it.
      title: what a page calls it.
      meaning: half a sentence for a newcomer; "" where the title says it.
      of: the classifier in a table of text, before `short`; "" for none.
      better: "higher" or "lower"; None where neither is better by itself.
      unit: "share" is in [0, 1], "percent" in percent, "number" has no unit.
      is_key: whether it is among the first that a reader looks for.
    """

    path: str
    short: str
    title: str
    meaning: str = ""
    of: str = ""
    better: str | None = "higher"
    unit: str = "share"
    is_key: bool = False

    @property
    def label(self) -> str:
        """What a table of text calls it where there are other classifiers."""
        return f"{self.of} {self.short}".strip()


def value_at(results: object, path: str) -> float | None:
    """The number at a path of keys with dots between, None where none is."""
    for key in path.split("."):
        results = results.get(key) if isinstance(results, Mapping) else None
    return results if isinstance(results, int | float) else None


def recall_at(k: int) -> Score:
    """Recall@k, which has a row for each k that was measured."""
    return Score(
        f"retrieval.recall_at.{k}",
        f"recall@{k}",
        f"Recall@{k}",
        "the most similar other test image is of the same class"
        if k == 1
        else f"one of the {k} most similar is",
    )


def find(path: str) -> Score:
    """The score at a path of evaluation.json, keys with dots between.

    The table lacks some, such as the ECE at one severity. Their names are the
    words of the path, the rest is that of scores with the same last key: any
    ECE is better lower. Where there is none, neither is better.
    """
    start, _, key = path.rpartition(".")
    if start == "retrieval.recall_at":
        return recall_at(int(key))
    same = [score for score in SCORES if score.path.endswith(f".{key}")]
    for score in same:
        if score.path == path:
            return score
    known = same[0] if same else Score("", key.replace("_", " "), "")
    where = start.replace(".", " ").replace("_", " ").replace("knn", "k-NN")
    words = f"{where} {known.short}".strip()
    better = known.better if same else None
    return Score(path, words, words, better=better, unit=known.unit)


def _both(path: str, *parts: str, **more: str | bool) -> tuple[Score, Score]:
    """A score of the linear classifier, and that of stage 1's classifier."""
    linear = Score(path.format("linear"), *parts, **more)
    return linear, dataclasses.replace(
        linear,
        path=path.format("pretrained"),
        title=f"{linear.title}, trained together",
        of="stage 1",
    )


_ERROR = {"better": "lower", "unit": "number"}
# In the order of a report.
SCORES = (
    *_both(
        "{}.top_1",
        "top-1",
        "Top-1 accuracy",
        "share of test images whose most probable class is the right one",
        "linear",
        is_key=True,
    ),
    Score(
        "knn.top_1",
        "top-1",
        "k-NN accuracy",
        "when the most similar training images vote on the class",
        "k-NN",
        is_key=True,
    ),
    *_both(
        "{}.ece",
        "ECE",
        "Calibration error (ECE)",
        "how far confidence is from accuracy on average; 0 is perfect",
        "linear",
        **_ERROR,
        is_key=True,
    ),
    *_both(
        "corruptions.{}.mean_corruption_error_unnormalized",
        "mean corruption error (plain)",
        "Error on corrupted images",
        "plain mean over all corruptions and severities, not an mCE",
        better="lower",
        is_key=True,
    ),
    *_both(
        "corruptions.{}.mce",
        "mCE (%)",
        "mCE",
        "mean over the corruptions of the error in percent of a reference's",
        better="lower",
        unit="percent",
        is_key=True,
    ),
    Score(
        "retrieval.map_at_r",
        "mAP@R",
        "Retrieval (mAP@R)",
        "how much of a test image's class comes first when the others are "
        "sorted by similarity",
        is_key=True,
    ),
    *_both(
        "{}.top_5",
        "top-5",
        "Top-5 accuracy",
        "share whose right class is among the five most probable",
        "linear",
    ),
    Score("knn.top_5", "top-5", "k-NN, top-5", of="k-NN"),
    Score(
        "knn_majority.top_1",
        "top-1",
        "k-NN, majority vote",
        "the neighbours' votes count the same, whatever their similarity",
        "k-NN majority",
    ),
    Score(
        "knn_leave_one_out.top_1",
        "top-1",
        "k-NN on the training images",
        "each classified by the others: to choose k by",
        "k-NN leave-one-out",
    ),
    Score(
        "prototype.top_1",
        "top-1",
        "Prototype accuracy",
        "when the nearest class mean decides",
        "prototype",
    ),
    *_both(
        "{}.nll",
        "NLL",
        "Negative log-likelihood",
        "in nats; grows with confident mistakes",
        "linear",
        **_ERROR,
    ),
    *_both(
        "{}.brier",
        "Brier",
        "Brier score",
        "squared error of the probabilities, 2 at most",
        "linear",
        **_ERROR,
    ),
    Score("knn.ece", "ECE", "k-NN ECE", of="k-NN", **_ERROR),
    *_both(
        "corruptions.{}.relative_mce",
        "relative mCE (%)",
        "Relative mCE",
        "as mCE, of what corruption adds to the error on clean images",
        better="lower",
        unit="percent",
    ),
    *_both(
        "corruptions.{}.mean_ece",
        "mean ECE, corrupted",
        "Calibration error on corrupted images",
        "mean ECE over all corruptions and severities",
        **_ERROR,
    ),
    *_both(
        "corruptions.{}.clean.top_1",
        "top-1, clean",
        "Accuracy on clean images",
        "the same test images, before corruption",
    ),
    # Either alone is at its best where the encoder learned nothing: all images
    # at one point, or spread regardless of class.
    Score(
        "representations.alignment",
        "alignment",
        "Alignment",
        "mean squared distance between images of a class; smaller is tighter",
        better=None,
        unit="number",
    ),
    Score(
        "representations.uniformity",
        "uniformity",
        "Uniformity",
        "how evenly all images spread over the sphere; lower is more even",
        better=None,
        unit="number",
    ),
)
