"""The scores of evaluation.json: names, meanings, and the better direction.

The text that tools print, the page of a report and the ranking of a sweep read
this table, which needs no TensorFlow.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable, Mapping


@dataclasses.dataclass(frozen=True)
class Score:
    """A number of evaluation.json.

    Attributes:
      path: of the score in evaluation.json, keys with dots between.
      title: name on a page.
      meaning: half a sentence for a newcomer; "" where the title says it.
      classifier: in a table of text, before `short`; "" for none.
      short: name in a table of text.
      better: "higher" or "lower"; None where neither is better by itself.
      unit: "share" is in [0, 1], "percent" in percent, "number" has no unit.
      tables: names of the tables that have it, beside the page of a report,
        which has all scores: "text" is printed by tools; "space", of the
        representations, and "corruptions" are parts of the page; "one",
        "several" and "unseen" are model cards of runs with one label per
        example, with several, or with classes unseen in training.
    """

    path: str
    title: str
    meaning: str
    classifier: str
    short: str
    better: str | None
    unit: str
    tables: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """Classifier and short name, for a table of several classifiers."""
        return f"{self.classifier} {self.short}".strip()


# `short`, `better` and `unit` of a measure, by the keys at the end of a path.
# Tables have the measures of a classifier in this order.
_MEASURES = {
    "map": ("mAP", "higher", "share"),
    "map_11_point": ("mAP, 11 points", "higher", "share"),
    "micro_f1": ("micro F1", "higher", "share"),
    "exact_match": ("exact match", "higher", "share"),
    "clean.top_1": ("top-1, clean", "higher", "share"),
    "top_1": ("top-1", "higher", "share"),
    "top_5": ("top-5", "higher", "share"),
    "shots.many": ("many-shot", "higher", "share"),
    "shots.medium": ("medium-shot", "higher", "share"),
    "majority_top_1": ("majority top-1", "higher", "share"),
    "shots.few": ("few-shot", "higher", "share"),
    "shots.mean": ("mean of classes", "higher", "share"),
    "parent_top_1": ("parent top-1", "higher", "share"),
    "mistakes_inside_parent": ("mistakes inside parent", "higher", "share"),
    "ece": ("ECE", "lower", "number"),
    "nll": ("NLL", "lower", "number"),
    "brier": ("Brier", "lower", "number"),
    "macro_f1": ("macro F1", "higher", "share"),
    "mcc": ("MCC", "higher", "number"),
    "average_precision": ("AP", "higher", "share"),
    "auroc": ("AUROC", "higher", "share"),
    "fpr95": ("FPR95", "lower", "share"),
    "aupr": ("AUPR", "higher", "share"),
    "recall_at": ("recall@k", "higher", "share"),
    "r_precision": ("R-precision", "higher", "share"),
    "map_at_r": ("mAP@R", "higher", "share"),
    "mean_corruption_error_unnormalized": (
        "mean corruption error (plain)",
        "lower",
        "share",
    ),
    "mean_ece": ("mean ECE, corrupted", "lower", "number"),
    "mce": ("mCE (%)", "lower", "percent"),
    "relative_mce": ("relative mCE (%)", "lower", "percent"),
    # An encoder that learned nothing can have the best of either: all examples
    # at one point, or spread regardless of class.
    "alignment": ("alignment", None, "number"),
    "uniformity": ("uniformity", None, "number"),
}
# First keys of paths, in the order of tables.
_PARTS = (
    *("validation", "linear", "pretrained", "knn", "prototype"),
    *("knn_among_test", "retrieval", "unknown", "corruptions"),
    "representations",
)
# The part of evaluation.json with the measures of users.
USER_MEASURES = "measures"


def to_json(results: dict[str, object]) -> str:
    """Results of an evaluation or a transfer as JSON, a line per top key."""
    lines = [f" {json.dumps(k)}: {json.dumps(v)}" for k, v in results.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def value_at(results: object, path: str) -> float | None:
    """The number at a path of keys with dots between, or None."""
    for key in path.split("."):
        results = results.get(key) if isinstance(results, Mapping) else None
    return results if isinstance(results, int | float) else None


def recall_at(k: int) -> Score:
    """Recall@k, which has a row for each k that was measured."""
    path, name = f"retrieval.recall_at.{k}", f"recall@{k}"
    meaning = f"one of the {k} most similar is"
    if k == 1:
        meaning = "the most similar other test example is of the same class"
    score = _score(path, name.title(), meaning, tables="text one unseen space")
    return dataclasses.replace(score, short=name)


def table(name: str, recalls: Iterable[int] = (1,)) -> list[Score]:
    """The scores of one of `Score.tables`, by classifier and measure.

    `recalls` are the k of recall@k that are among them.
    """
    rows = (*SCORES, *map(recall_at, recalls))
    return sorted((row for row in rows if name in row.tables), key=_rank)


def _rank(score: Score) -> tuple[int, int]:
    """The rank of a score in a table; parts that are not in _PARTS are last."""
    order = [*_PARTS, score.path.partition(".")[0]]
    measures = [*_MEASURES, _measure(score.path)]
    return order.index(order[-1]), measures.index(measures[-1])


def user_scores(results: Iterable[Mapping[str, object]]) -> list[Score]:
    """The scores of the measures of users in some evaluations."""
    names = (
        name for result in results for name in result.get(USER_MEASURES, ())
    )
    return [find(f"{USER_MEASURES}.{name}") for name in dict.fromkeys(names)]


def find(path: str) -> Score:
    """The score at a path of evaluation.json, keys with dots between.

    The table lacks some scores, such as the ECE at one severity. Their names
    are the words of the path, and other fields are those of the measure: any
    ECE is better lower. Neither is better if the measure has no row. A measure
    of a user is a number with its own name.
    """
    start, _, key = path.rpartition(".")
    if start == "retrieval.recall_at" and key.isdecimal():
        return recall_at(int(key))
    if start == USER_MEASURES:
        return Score(path, key, "", "", key, None, "number")
    for score in SCORES:
        if score.path == path:
            return score
    words = start.replace(".", " ").replace("_", " ").replace("knn", "k-NN")
    score = _score(path, "", classifier=words)
    return dataclasses.replace(score, title=score.label)


def _measure(path: str) -> str | None:
    """The key of a path's measure in _MEASURES, or None."""
    return next((key for key in _MEASURES if f".{key}." in f".{path}."), None)


def _score(
    path: str,
    title: str,
    meaning: str = "",
    classifier: str = "",
    tables: str = "text",
) -> Score:
    """A score whose other fields are those of the measure in its path."""
    short = path.rpartition(".")[2].replace("_", " ")
    traits = _MEASURES.get(_measure(path), (short, None, "share"))
    names = tuple(tables.split())
    return Score(path, title, meaning, classifier, *traits, names)


def _classifier_scores(
    path: str, title: str, meaning: str, tables: str = "linear"
) -> tuple[Score, Score]:
    """The scores of the linear classifier and of stage 1's classifier.

    In `tables`, "linear" and "pretrained" are the table "text" of that
    classifier alone.
    """
    name = "linear" if path.startswith("{}") else ""
    linear, pretrained = path.format("linear"), path.format("pretrained")
    stage_1 = f"{title}, trained together", meaning, "stage 1"
    return (
        _score(linear, title, meaning, name, tables.replace("linear", "text")),
        _score(pretrained, *stage_1, tables.replace("pretrained", "text")),
    )


# The scores that a reader looks for first.
KEY_SCORES = (
    *_classifier_scores(
        "{}.top_1",
        "Top-1 accuracy",
        "share of test examples whose most probable class is the right one",
        "text one",
    ),
    *_classifier_scores(
        "{}.map",
        "Mean average precision",
        "of the labels, each by the ranking of its probabilities",
        "text several",
    ),
    _score(
        "knn.top_1",
        "k-NN accuracy",
        "when the most similar training examples vote on the class",
        "k-NN",
        tables="text one space",
    ),
    _score(
        "knn_among_test.top_1",
        "k-NN among the test examples",
        "when the other test examples vote, of classes that training never saw",
        "k-NN among test",
        tables="text unseen",
    ),
    *_classifier_scores(
        "{}.ece",
        "Calibration error (ECE)",
        "how far confidence is from accuracy on average; 0 is perfect",
        "text one several",
    ),
    *_classifier_scores(
        "corruptions.{}.mean_corruption_error_unnormalized",
        "Error on corrupted images",
        "plain mean over all corruptions and severities, not an mCE",
        "linear one corruptions",
    ),
    *_classifier_scores(
        "corruptions.{}.mce",
        "mCE",
        "mean over the corruptions of the error in percent of a reference's",
        "linear one corruptions",
    ),
    _score(
        "retrieval.r_precision",
        "Retrieval (R-precision)",
        "share of a test example's class among as many most similar examples "
        "as the class has others",
        tables="unseen",
    ),
    _score(
        "retrieval.map_at_r",
        "Retrieval (mAP@R)",
        "how much of a test example's class comes first when the others are "
        "sorted by similarity",
        tables="text one unseen space",
    ),
)
# Scores of belonging, and what tells how well they find unknown images.
_UNKNOWN_SCORES = tuple(
    _score(
        f"unknown.{name}.{measure}",
        f"Unknown images by {title}, {label}",
        meaning,
        f"unknown by {title}",
    )
    for name, title in (
        ("neighbors", "neighbours"),
        ("mahalanobis", "Mahalanobis distance"),
        ("max_softmax", "softmax"),
    )
    for measure, label, meaning in (
        (
            "auroc",
            "AUROC",
            "probability that a test image scores higher than an unknown one",
        ),
        (
            "fpr95",
            "FPR95",
            "share of unknown images above 95 % of the test images' scores",
        ),
        (
            "aupr",
            "AUPR",
            "average precision of the unknown images, least belonging first",
        ),
    )
)
# In the order of a report.
SCORES = (
    *KEY_SCORES,
    _score(
        "validation.top_1",
        "Validation accuracy",
        "of the examples by which the best epoch is chosen",
        "validation",
    ),
    *_classifier_scores(
        "{}.top_5",
        "Top-5 accuracy",
        "share whose right class is among the five most probable",
        "linear one",
    ),
    _score("knn.top_5", "k-NN, top-5", classifier="k-NN", tables=""),
    _score(
        "knn_among_test.majority_top_1",
        "k-NN among the test examples, by majority",
        classifier="k-NN among test",
        tables="",
    ),
    _score(
        "knn.map",
        "k-NN, mean average precision",
        classifier="k-NN",
        tables="text several",
    ),
    *_classifier_scores(
        "{}.map_11_point",
        "Mean average precision of VOC 2007",
        "the highest precision at eleven levels of recall",
    ),
    *_classifier_scores(
        "{}.micro_f1",
        "Micro F1",
        "of all labels of all examples together, predicted from 0.5 on",
        "linear several",
    ),
    *_classifier_scores(
        "{}.exact_match",
        "Exact match",
        "share of test examples whose labels are all right, and no others",
        "several",
    ),
    _score(
        "knn_majority.top_1",
        "k-NN, majority vote",
        "the neighbours' votes count the same, whatever their similarity",
        "k-NN majority",
        tables="",
    ),
    _score(
        "knn_leave_one_out.top_1",
        "k-NN on the training examples",
        "each classified by the others: to choose k by",
        "k-NN leave-one-out",
        tables="",
    ),
    _score(
        "prototype.top_1",
        "Prototype accuracy",
        "when the nearest class mean decides",
        "prototype",
        tables="text one space",
    ),
    *_classifier_scores(
        "{}.shots.mean",
        "Mean accuracy of the classes",
        "each class weighs the same, however many training images it has",
    ),
    *_classifier_scores(
        "{}.shots.many",
        "Accuracy, many-shot classes",
        "classes with more than 100 training images, or as --shots says",
    ),
    *_classifier_scores(
        "{}.shots.medium",
        "Accuracy, medium-shot classes",
        "classes between the two",
    ),
    *_classifier_scores(
        "{}.shots.few",
        "Accuracy, few-shot classes",
        "classes with fewer than 20 training images, or as --shots says",
    ),
    *_classifier_scores(
        "{}.hierarchy.parent_top_1",
        "Accuracy of the parent",
        "share whose predicted class is inside the right parent",
    ),
    *_classifier_scores(
        "{}.hierarchy.mistakes_inside_parent",
        "Mistakes inside the parent",
        "share of the wrong predictions that are inside the right parent",
    ),
    *_classifier_scores(
        "{}.nll",
        "Negative log-likelihood",
        "in nats; grows with confident mistakes",
    ),
    *_classifier_scores(
        "{}.brier",
        "Brier score",
        "squared error of the probabilities, 2 at most",
        "",
    ),
    *_classifier_scores(
        "{}.macro_f1",
        "Macro F1",
        "mean over the classes of the harmonic mean of precision and recall",
        "pretrained",
    ),
    *_classifier_scores(
        "{}.mcc",
        "Matthews correlation (MCC)",
        "between labels and predictions; 0 is chance, 1 is perfect",
        "pretrained",
    ),
    *_classifier_scores(
        "{}.average_precision",
        "Average precision",
        "of the rarer one of two classes, by the ranking of its probability",
    ),
    _score("knn.ece", "k-NN ECE", classifier="k-NN", tables=""),
    *_classifier_scores(
        "corruptions.{}.relative_mce",
        "Relative mCE",
        "as mCE, of what corruption adds to the error on clean images",
        "linear corruptions",
    ),
    *_classifier_scores(
        "corruptions.{}.mean_ece",
        "Calibration error on corrupted images",
        "mean ECE over all corruptions and severities",
        "corruptions",
    ),
    *_classifier_scores(
        "corruptions.{}.clean.top_1",
        "Accuracy on clean images",
        "the same test images, before corruption",
        "corruptions",
    ),
    *_UNKNOWN_SCORES,
    _score(
        "representations.alignment",
        "Alignment",
        "mean squared distance between examples of a class; smaller is tighter",
        tables="space",
    ),
    _score(
        "representations.uniformity",
        "Uniformity",
        "how evenly all examples spread over the sphere; lower is more even",
        tables="space",
    ),
)


def linear_results(results: Mapping[str, object]) -> dict[str, object]:
    """The results of a run of tools/finetune.py, with "linear" as classifier.

    The classifier of such a run is a linear one, fitted to the representations
    of the chosen network. evaluation.json calls it "pretrained", as classifiers
    that train together with an encoder. Beside a linear stage it keeps that
    name.
    """
    if "linear" in results:
        return dict(results)
    parts = dict(results)
    if "corruptions" in parts:
        parts["corruptions"] = linear_results(parts["corruptions"])
    return {"linear" if k == "pretrained" else k: v for k, v in parts.items()}


def interval(share: float, count: int) -> tuple[float, float]:
    """The 95 % interval of a share of `count` examples; Wilson 1927."""
    z = 1.96
    scale = 1 + z**2 / count
    middle = (share + z**2 / (2 * count)) / scale
    spread = share * (1 - share) / count + z**2 / (4 * count**2)
    half = z * math.sqrt(spread) / scale
    return max(middle - half, 0.0), min(middle + half, 1.0)
