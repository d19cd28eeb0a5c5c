"""Measures of probabilities where an example has several labels, or none."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from supcon_tf import exceptions
from supcon_tf.measures import metrics, neighbors

_RECALL_LEVELS = np.arange(11) / 10  # of VOC 2007
_LEAST_PROBABILITY = 1e-12  # in a logarithm


def multi_label_summary(
    probabilities: npt.ArrayLike,
    labels: npt.ArrayLike,
    num_bins: int = 15,
    threshold: float = 0.5,
) -> dict[str, object]:
    """Precision, F1, calibration and likelihood of label probabilities.

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
    scores, truth = _check_scores(probabilities, labels)  # [examples, classes]
    precisions = [*map(average_precisions, scores.T, truth.T)]
    defined_precisions = np.array(  # [classes with an example, 2]
        [pair for pair in precisions if pair is not None]
    ).reshape(-1, 2)
    exceptions.require(
        len(defined_precisions) > 0,
        "`labels` must have an example of some label",
        "none",
    )
    # As an export compares them: float32 0.7 reaches a threshold of 0.7, and
    # 0.2 is on the edge of two bins, 1/5.
    given_scores = scores.astype(_precision_of(probabilities))
    is_predicted = given_scores >= threshold
    hits = (is_predicted & truth).sum(axis=0)  # [classes]
    label_counts = truth.sum(axis=0)
    predicted_counts = is_predicted.sum(axis=0)
    f1 = 2 * hits / np.maximum(label_counts + predicted_counts, 1)
    micro_divisor = max(label_counts.sum() + predicted_counts.sum(), 1)
    likelihoods = np.where(truth, scores, 1 - scores)  # [examples, classes]
    likelihoods = np.maximum(likelihoods, _LEAST_PROBABILITY)
    decisions = metrics.count_bins(
        given_scores.ravel(), truth.ravel(), num_bins
    )
    return {
        "map": float(defined_precisions[:, 0].mean()),
        "map_11_point": float(defined_precisions[:, 1].mean()),
        "average_precision": [pair and float(pair[0]) for pair in precisions],
        "per_class_recall": metrics.shares(hits, label_counts),
        "micro_f1": float(2 * hits.sum() / micro_divisor),
        "macro_f1": float(f1[label_counts > 0].mean()),
        "exact_match": float((is_predicted == truth).all(axis=1).mean()),
        "ece": metrics.calibration_gap(decisions),
        "nll": float(-np.log(likelihoods).sum(axis=1).mean()),
    }


def share_of_neighbors(
    similarities: npt.NDArray[np.float32],
    indices: npt.NDArray[np.integer],
    bank_labels: npt.NDArray[np.integer],
    temperature: float,
) -> npt.NDArray[np.float32]:
    """The share of neighbours that have each label, weighted as in `vote`.

    Takes similarities and indices [Q, k], as `nearest_neighbors` returns them,
    and labels [N, classes] 0 or 1; returns [Q, classes] in [0, 1].

    Example:
      >>> import numpy as np
      >>> from supcon_tf import measures
      >>> near = measures.nearest_neighbors([[1, 1]], np.eye(2), k=2)
      >>> labels = np.array([[1, 0], [1, 1]])
      >>> measures.share_of_neighbors(*near, labels, temperature=0.1).tolist()
      [[1.0, 0.5]]
    """
    neighbors.check_positive(temperature=temperature)
    # Relative to the nearest, as in `vote`: no exponential overflows.
    gaps = similarities - similarities[:, :1]  # [Q, k]
    weights = np.exp(gaps.astype(np.float64) / temperature)
    weights /= weights.sum(axis=1, keepdims=True)
    shares = [  # Q of [classes]
        query_weights @ bank_labels[rows]
        for query_weights, rows in zip(weights, indices, strict=True)
    ]
    return np.minimum(shares, 1.0).astype(np.float32)


def _check_scores(
    probabilities: npt.ArrayLike, labels: npt.ArrayLike
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
    """Returns probabilities and labels, [examples, classes] both."""
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


def _precision_of(probabilities: npt.ArrayLike) -> np.dtype:
    """The type of floats, float64 of integers and Python's numbers."""
    return np.result_type(np.asarray(probabilities).dtype, np.float16)


def average_precisions(
    scores: npt.NDArray[np.float64], truth: npt.NDArray[np.bool_]
) -> tuple[float, float] | None:
    """Returns both average precisions of a label; None without an example.

    The first is the area under precision against recall, the second the mean of
    11 points of VOC 2007.

    Examples of equal score enter the curve together, whatever their order.
    Letters in the shapes: N examples, S different scores.
    """
    if not truth.any():
        return None
    order = np.argsort(-scores, kind="stable")  # [N]
    is_last_of_score = np.append(np.diff(scores[order]) != 0, True)  # [N]
    hits = np.cumsum(truth[order])[is_last_of_score]  # [S]
    precision = hits / (1 + np.flatnonzero(is_last_of_score))  # [S]
    recall = hits / hits[-1]  # [S]
    average_precision = np.sum(np.diff(recall, prepend=0) * precision)
    # The highest precision at this recall or a higher one.
    envelope = np.maximum.accumulate(precision[::-1])[::-1]
    # 1e-9, lest rounding miss the first score that has the recall.
    first_scores = np.searchsorted(recall, _RECALL_LEVELS - 1e-9)  # [11]
    return average_precision, envelope[first_scores].mean()
