"""Accuracy and calibration of class scores, in NumPy.

The numbers of the paper's tables: top-1 and top-5 accuracy (Tables 2 and 3) and
the expected calibration error (Suppl. Table 2).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from supcon_tf import exceptions

# Float32 softmax rows sum to 1 within 1e-6, float16 rows within 1e-3; logits
# given by mistake miss by far more.
_SUM_TOLERANCE = 2e-3


class CalibrationBins(NamedTuple):
    """What `calibration_bins` returns: one entry per bin of confidence.

    Bin b of B holds the examples with b/B < confidence <= (b+1)/B; the first
    bin also holds confidence 0.

    Attributes:
      count: [num_bins] int64, examples in the bin.
      confidence: [num_bins] float64, their mean confidence; 0 where count is 0.
      accuracy: [num_bins] float64, the share of them predicted correctly; 0
        where count is 0.
    """

    count: npt.NDArray[np.int64]
    confidence: npt.NDArray[np.float64]
    accuracy: npt.NDArray[np.float64]


def check_labels(
    labels: npt.ArrayLike,
    num_examples: int,
    num_classes: int,
    name: str = "labels",
) -> npt.NDArray[np.int64]:
    """Class ids as an array, once they are known to be usable as indices.

    Args:
      labels: [num_examples] integers in [0, num_classes).
      num_examples: the length that `labels` must have.
      num_classes: the number of classes.
      name: what an error calls the labels.

    Returns:
      [num_examples] int64.

    Raises:
      ValueError: `labels` has another shape (one-hot labels have), is not of an
        integer dtype, or leaves [0, num_classes).
    """
    array = np.asarray(labels)
    if array.shape != (num_examples,):
        raise exceptions.InvalidValue(
            f"`{name}` must have shape ({num_examples},), one class id per "
            f"example, got {array.shape}"
        )
    if array.dtype.kind not in "iu":
        raise exceptions.InvalidValue(
            f"`{name}` must be integers, got {array.dtype}"
        )
    outside = array[(array < 0) | (array >= num_classes)]
    if outside.size:
        raise exceptions.InvalidValue(
            f"`{name}` must lie in [0, {num_classes}), got {outside[0]}; drop "
            "unlabelled examples first"
        )
    return array.astype(np.int64)


def check_predictions(
    probabilities: npt.ArrayLike, labels: npt.ArrayLike
) -> tuple[np.ndarray, npt.NDArray[np.int64]]:
    """Probabilities and labels as arrays, once they fit each other.

    Args:
      probabilities: [examples, num_classes] real, each row sums to 1.
      labels: [examples] integers in [0, num_classes).

    Returns:
      The probabilities in their own precision, and the labels as int64.

    Raises:
      ValueError: `probabilities` is not a non-empty matrix of distributions, or
        `labels` does not fit it.
    """
    probabilities = _check_matrix("probabilities", probabilities)
    labels = check_labels(labels, *probabilities.shape)
    _check_distributions(probabilities)
    return probabilities, labels


def top_k_accuracy(
    scores: npt.ArrayLike, labels: npt.ArrayLike, k: int
) -> float:
    """Share of the examples whose label is among the k highest scores.

    Ties count against the example: it is correct when fewer than k *other*
    classes score at least as high as its label. Constant scores thus give 0
    below `k = num_classes`, on any platform, and never a lucky hit. With
    `k >= num_classes` the result is 1.

    Args:
      scores: [examples, num_classes] real; logits, probabilities or votes.
      labels: [examples] integers in [0, num_classes).
      k: positive int; 1 and 5 in the paper.

    Returns:
      A share in [0, 1].

    Raises:
      ValueError: `scores` is not a non-empty matrix or holds NaN, `labels` does
        not fit it, or `k` is not positive.
    """
    scores = _check_matrix("scores", scores)
    labels = check_labels(labels, *scores.shape)
    if k < 1:
        raise exceptions.InvalidValue(f"`k` must be at least 1, got {k}")
    if np.isnan(scores).any():
        # Every comparison with NaN is false: it would count as a hit.
        raise exceptions.InvalidValue("`scores` must be numbers, got NaN")
    own = np.take_along_axis(scores, labels[:, None], axis=1)  # [examples, 1]
    # The label itself is one of those that score at least as high.
    others = np.sum(scores >= own, axis=1) - 1
    return float(np.mean(others < k))


def calibration_bins(
    probabilities: npt.ArrayLike, labels: npt.ArrayLike, num_bins: int = 15
) -> CalibrationBins:
    """Confidence and accuracy of the top label, in bins of equal width.

    The confidence of an example is its highest probability, its prediction the
    class that has it (the lower class id of equal ones).

    Args:
      probabilities: [examples, num_classes] real, each row sums to 1.
      labels: [examples] integers in [0, num_classes).
      num_bins: positive int.

    Returns:
      `CalibrationBins`; its counts sum to the number of examples.

    Raises:
      ValueError: `probabilities` is not a non-empty matrix of distributions,
        `labels` does not fit it, or `num_bins` is not positive.
    """
    probabilities, labels = check_predictions(probabilities, labels)
    if num_bins < 1:
        raise exceptions.InvalidValue(
            f"`num_bins` must be at least 1, got {num_bins}"
        )

    confidence = probabilities.max(axis=1)
    correct = probabilities.argmax(axis=1) == labels
    # Edges in the precision of the probabilities, so that float32 0.2 is *on*
    # the edge 1/5. Only the inner edges: 1.0 then needs no bin of its own.
    inner_edges = (np.arange(1, num_bins) / num_bins).astype(confidence.dtype)
    bins = np.searchsorted(inner_edges, confidence, side="left")

    count = np.bincount(bins, minlength=num_bins)
    per_bin = np.maximum(count, 1)
    return CalibrationBins(
        count=count,
        confidence=np.bincount(bins, confidence, num_bins) / per_bin,
        accuracy=np.bincount(bins, correct, num_bins) / per_bin,
    )


def expected_calibration_error(
    probabilities: npt.ArrayLike, labels: npt.ArrayLike, num_bins: int = 15
) -> float:
    """Expected calibration error (ECE) of the top label.

      ECE = sum_b count_b / examples * |accuracy_b - confidence_b|

    Args:
      probabilities: [examples, num_classes] real, each row sums to 1.
      labels: [examples] integers in [0, num_classes).
      num_bins: positive int; bins as in `calibration_bins`.

    Returns:
      The error as a probability in [0, 1]; 0 is perfectly calibrated.

    Raises:
      ValueError: as `calibration_bins`.

    Reference: Guo et al. 2017, https://arxiv.org/abs/1706.04599, Eq. 3.
    """
    bins = calibration_bins(probabilities, labels, num_bins)
    gaps = np.abs(bins.accuracy - bins.confidence)
    return float(np.average(gaps, weights=bins.count))


def _check_matrix(name: str, values: npt.ArrayLike) -> np.ndarray:
    """The values as an array, once they are a non-empty matrix."""
    array = np.asarray(values)
    if array.ndim != 2 or array.size == 0:
        raise exceptions.InvalidValue(
            f"`{name}` must have shape [examples, num_classes] and not be "
            f"empty, got shape {array.shape}"
        )
    return array


def _check_distributions(probabilities: np.ndarray) -> None:
    """Raises where a row is no distribution: logits given, or NaN."""
    sums = probabilities.sum(axis=1, dtype=np.float64)
    # `not <=` rather than `>`: a NaN must fail.
    if not np.abs(sums - 1).max() <= _SUM_TOLERANCE:
        worst = sums[np.argmax(np.abs(sums - 1))]
        raise exceptions.InvalidValue(
            f"`probabilities` must sum to 1 in each row, got a sum of {worst}; "
            "apply softmax to logits first"
        )
    if probabilities.min() < 0:
        raise exceptions.InvalidValue(
            f"`probabilities` must not be negative, got {probabilities.min()}"
        )
