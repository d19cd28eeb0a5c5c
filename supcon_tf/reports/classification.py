"""Confusions, recall, calibration and mistakes of the classifiers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from supcon_tf.reports import contents, figures, numbers

_MAX_MATRIX = 30  # classes; more are a list of pairs
_NUM_PAIRS = 15
_NUM_PAIRS_BELOW_MATRIX = 3
_NUM_MISTAKES = 10
_MAX_RECALLS = 500  # classes that are listed
# Scores of belonging -> what the axis of their histogram says.
_BELONGING = {
    "neighbors": "cosine to the k-th neighbour",
    "mahalanobis": "minus the Mahalanobis distance",
    "max_softmax": "highest probability",
}
_RIGHT_COLOR = (63, 144, 218)  # of the palette: blue
_WRONG_COLOR = (231, 99, 0)  # orange


def confusions(run: contents.Run) -> dict[str, object]:
    """The confusion matrix and its largest errors.

    The matrix is empty where it has more than `_MAX_MATRIX` classes.
    """
    name = run.classifier("confusion_matrix") or run.classifier("confusions")
    results = run.evaluation[name]
    counts, pairs = _class_counts(results), _confused_pairs(results)
    rows = results.get("confusion_matrix", [])
    rows = rows if len(rows) <= _MAX_MATRIX else []
    num_pairs = _NUM_PAIRS_BELOW_MATRIX if rows else _NUM_PAIRS
    return {
        "classifier": contents.CLASSIFIERS[name],
        "classes": [run.test_class_name(index) for index in range(len(rows))],
        "matrix": [
            [_cell(n, n / max(sum(row), 1), i == j) for j, n in enumerate(row)]
            for i, row in enumerate(rows)
        ],
        "pairs": [
            (run.test_class_name(i), run.test_class_name(j), count, counts[i])
            for i, j, count in pairs[:num_pairs]
        ],
    }


def recall(runs: Sequence[contents.Run]) -> list[dict[str, object]]:
    """Recall of each class, the lowest first, `_MAX_RECALLS` at most."""
    # Runs of different classes have a list each.
    groups: dict[tuple[str, ...], dict[int, contents.Run]] = {}
    for index, run in enumerate(runs):
        if run.classifier("per_class_recall"):
            groups.setdefault(run.test_class_names, {})[index] = run
    return [
        {
            "legend": {index: run.name for index, run in group.items()},
            "lines": (lines := _recall_lines(group))[:_MAX_RECALLS],
            "num_others": len(lines[_MAX_RECALLS:]),
        }
        for group in groups.values()
    ]


def calibration(run: contents.Run) -> dict[str, object]:
    """The reliability diagram and the expected calibration error."""
    name = run.classifier("calibration_bins")
    ece = numbers.number(run.evaluation[name].get("ece"))
    drawing = figures.plot_reliability(
        run.evaluation[name]["calibration_bins"],
        f"Reliability diagram of {run.name}: accuracy against confidence; "
        f"calibration error {ece}",
    )
    return {
        "classifier": contents.CLASSIFIERS[name],
        "ece": ece,
        "drawing": drawing,
    }


def unknown(run: contents.Run) -> dict[str, object]:
    """Histograms of the scores of belonging, of test and of unknown images."""
    results = run.evaluation["unknown"]
    drawings = []
    for name, title in _BELONGING.items():
        if name not in results:
            continue
        note = f"FPR95 {numbers.percent(results[name]['fpr95'])}"
        drawing = figures.plot_histograms(
            results[name]["histogram"],
            f"{title} of the test images and of unknown images of {run.name}; "
            f"{note}",
            xlabel=title,
        )
        drawings.append((title[0].upper() + title[1:], note, drawing))
    return {"images": results["images"], "drawings": drawings}


def mistakes(run: contents.Run) -> dict[str, object]:
    """The most confident mistakes of a run, with images or texts if stored."""
    labels = run.predictions["labels"]
    probabilities = run.predictions["probabilities"]
    predicted = probabilities.argmax(axis=1)
    if "classes" in run.predictions:  # probabilities of some classes alone
        predicted = run.predictions["classes"][:, 0]
    confidence = probabilities.max(axis=1)
    wrong = np.flatnonzero(predicted != labels)
    order = wrong[np.argsort(-confidence[wrong], kind="stable")]
    order = order[:_NUM_MISTAKES]
    # A run without samples, or of an earlier version, stored no positions.
    stored = run.samples.get("mistake_positions", np.array([]))
    has_inputs = order.size and np.array_equal(stored, order)
    return {
        "classifier": contents.CLASSIFIERS[run.classifier("top_1") or "linear"],
        "num_wrong": len(wrong),
        "num_examples": len(labels),
        "inputs": [*run.samples["mistakes"]] if has_inputs else [],
        "examples": [
            (
                str(run.predictions["ids"][index]),
                run.test_class_name(int(labels[index])),
                run.test_class_name(int(predicted[index])),
                float(confidence[index]),
            )
            for index in order
        ],
    }


def _class_counts(results: Mapping) -> list[int] | None:
    """Test examples of each class."""
    if matrix := results.get("confusion_matrix"):
        return [sum(row) for row in matrix]
    return results.get("class_counts")


def _confused_pairs(results: Mapping) -> list[tuple[int, int, int]]:
    """(true class, predicted class, count), most frequent first."""
    if "confusion_matrix" not in results:
        return results["confusions"]
    # [classes, classes] counts; a row per true class.
    matrix = np.asarray(results["confusion_matrix"])
    wrong = matrix - np.diag(np.diag(matrix))
    order = np.argsort(-wrong, axis=None, kind="stable")[:_NUM_PAIRS]
    pairs = (divmod(int(index), len(matrix)) for index in order)
    return [(i, j, int(wrong[i, j])) for i, j in pairs if wrong[i, j]]


def _cell(count: int, share: float, is_right: bool) -> tuple[int, str]:
    """A count and its colour."""
    # The square root keeps an error of 1 % visible.
    opacity = share if is_right else 0.15 + 0.85 * share**0.5
    color = _RIGHT_COLOR if is_right else _WRONG_COLOR
    channels = [round(255 - opacity * (255 - channel)) for channel in color]
    return count, "#" + "".join(f"{channel:02x}" for channel in channels)


def _recall_lines(runs: dict[int, contents.Run]) -> list[dict[str, object]]:
    """A line per class that any run has test images of, the lowest first."""
    results = [
        run.evaluation[run.classifier("per_class_recall")]
        for run in runs.values()
    ]
    # [runs, classes], NaN for a class without test images
    recalls = np.array(
        [result["per_class_recall"] for result in results], float
    )
    has_examples = np.isfinite(recalls).any(axis=0)
    means = np.full(recalls.shape[1], np.inf)
    means[has_examples] = np.nanmean(recalls[:, has_examples], axis=0)
    counts, run = _class_counts(results[0]), next(iter(runs.values()))
    return [
        {
            "name": run.test_class_name(int(label)),
            "images": counts[label] if counts else None,
            "recalls": dict(zip(runs, recalls[:, label], strict=True)),
        }
        for label in np.argsort(means, kind="stable")[: has_examples.sum()]
    ]
