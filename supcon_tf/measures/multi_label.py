"""Measures of scores where an example may have several labels, or none."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from supcon_tf import exceptions
from supcon_tf.measures import neighbors

_POINTS = np.arange(11) / 10  # levels of recall of VOC 2007
_LEAST = 1e-12  # probability in a logarithm


def multi_label_summary(
    probabilities: npt.ArrayLike,
    labels: npt.ArrayLike,
    num_bins: int = 15,
    threshold: float = 0.5,
) -> dict[str, object]:
    """Every measure of the probabilities of labels.

    Args:
      probabilities: [examples, classes] real, each in [0, 1].
      labels: [examples, classes] 0 or 1.
      num_bins: of the calibration error.
      threshold: a label is predicted from this probability on.

    Example:
      >>> from supcon_tf import measures
      >>> probabilities = [[0.9, 0.8], [0.2, 0.6]]  # 0.6 after 0.8, yet > 0.5
      >>> labels = [[1, 1], [0, 0]]
      >>> summary = measures.multi_label_summary(probabilities, labels)
      >>> summary["map"], summary["exact_match"]
      (1.0, 0.5)

    Returns:
      `map` and `map_11_point`, means of the average precision over the labels
      that an example has (area under precision against recall; mean of the
      highest precision at recalls of 0, 0.1, ..., 1, of VOC 2007);
      `average_precision`, of each label, None without an example;
      `per_class_recall`, `micro_f1`, `macro_f1` and `exact_match` (all labels
      of an example right) by the threshold; `ece`, of all decisions together,
      the distance of their mean probability to how often the label is there,
      over bins of equal width, weighted by their size; `nll`, the negative
      log-likelihood of the labels of an example, a sum over them, in nats, of
      probabilities kept 1e-12 from 0 and 1.

    Raises:
      ValueError: the shapes differ, or a value is out of its range.

    Reference: Everingham et al. 2010, https://doi.org/10.1007/s11263-009-0275-4,
    Sec. 4.2.
    """
    scores, truth = _checked(probabilities, labels)
    precisions = [*map(_average_precisions, scores.T, truth.T)]
    known = np.array([x for x in precisions if x is not None]).reshape(-1, 2)
    exceptions.require(
        len(known) > 0, "`labels` must have an example of some label", "none"
    )
    predicted = scores >= threshold
    hits = (predicted & truth).sum(axis=0)
    has, guessed = truth.sum(axis=0), predicted.sum(axis=0)
    own = np.where(truth, scores, 1 - scores)
    f1 = 2 * hits / np.maximum(has + guessed, 1)
    return {
        "map": float(known[:, 0].mean()),
        "map_11_point": float(known[:, 1].mean()),
        "average_precision": [x and float(x[0]) for x in precisions],
        "per_class_recall": [
            float(hit / of) if of else None
            for hit, of in zip(hits, has, strict=True)
        ],
        "micro_f1": float(2 * hits.sum() / max(has.sum() + guessed.sum(), 1)),
        "macro_f1": float(f1[has > 0].mean()),
        "exact_match": float((predicted == truth).all(axis=1).mean()),
        "ece": _calibration_error(scores.ravel(), truth.ravel(), num_bins),
        "nll": float(-np.log(np.maximum(own, _LEAST)).sum(axis=1).mean()),
    }


def share_of_neighbors(
    similarities: npt.NDArray[np.float32],
    indices: npt.NDArray[np.integer],
    bank_labels: npt.NDArray[np.integer],
    temperature: float,
) -> npt.NDArray[np.float32]:
    """The share of neighbours that have each label, weighted as `vote`'s.

    Takes similarities and indices [Q, k], as `nearest_neighbors` returns them,
    and labels [N, classes] 0 or 1; returns [Q, classes] in [0, 1].

    Example:
      >>> import numpy as np
      >>> from supcon_tf import measures
      >>> found = measures.nearest_neighbors([[1, 1]], np.eye(2), k=2)
      >>> labels = np.array([[1, 0], [1, 1]])
      >>> measures.share_of_neighbors(*found, labels, temperature=0.1).tolist()
      [[1.0, 0.5]]
    """
    neighbors.check_positive(temperature=temperature)
    gaps = similarities - similarities[:, :1]
    weights = np.exp(gaps.astype(np.float64) / temperature)
    weights /= weights.sum(axis=1, keepdims=True)
    shares = [
        own @ bank_labels[rows]
        for own, rows in zip(weights, indices, strict=True)
    ]
    return np.minimum(shares, 1.0).astype(np.float32)


def _checked(
    probabilities: npt.ArrayLike, labels: npt.ArrayLike
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
    scores, truth = np.asarray(probabilities, np.float64), np.asarray(labels)
    exceptions.require(
        scores.ndim == 2 and scores.shape == truth.shape and scores.size > 0,
        "`probabilities` and `labels` must be [examples, classes], not empty",
        f"{scores.shape} and {truth.shape}",
    )
    exceptions.require(
        bool(((scores >= 0) & (scores <= 1)).all()),
        "`probabilities` must be in [0, 1]",
        f"{scores.min()} to {scores.max()}",
    )
    exceptions.require(
        bool(np.isin(truth, (0, 1)).all()), "`labels` must be 0 or 1", truth
    )
    return scores, truth.astype(bool)


def _average_precisions(
    scores: npt.NDArray[np.float64], truth: npt.NDArray[np.bool_]
) -> tuple[float, float] | None:
    """Area, and mean of 11 points; None where nothing has the label.

    Examples of one score come together, whatever their order.
    """
    if not truth.any():
        return None
    order = np.argsort(-scores, kind="stable")
    is_last = np.append(np.diff(scores[order]) != 0, True)
    hits = np.cumsum(truth[order])[is_last]
    precision = hits / (1 + np.flatnonzero(is_last))
    recall = hits / hits[-1]
    area = np.sum(np.diff(recall, prepend=0) * precision)
    best = np.maximum.accumulate(precision[::-1])[::-1]
    # The first place that has the recall; rounding is not to miss it.
    places = np.searchsorted(recall, _POINTS - 1e-9)
    return area, best[places].mean()


def _calibration_error(
    scores: npt.NDArray[np.float64], truth: npt.NDArray[np.bool_], bins: int
) -> float:
    edges = np.arange(1, bins) / bins
    place = np.searchsorted(edges, scores, side="left")
    gaps = np.bincount(place, scores - truth, bins)
    return float(np.abs(gaps).sum() / len(scores))
