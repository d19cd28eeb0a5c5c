"""Measures of class scores: accuracy, calibration, proper scores, confusions.

The numbers of the paper's tables are top-1 and top-5 accuracy (Tables 2 and 3)
and the expected calibration error (Suppl. Table 2). Likelihood and Brier score
are least, in expectation, for the true distribution, so that they judge
accuracy and calibration at once. scikit-learn's `log_loss` would clip float32
probabilities at 1.2e-7, and needs a matrix of labels of 8 bytes per class and
example; its Brier score gives the same number in five times the time.

Probabilities are [examples, num_classes] real, not empty, and each row sums to
1; labels are [examples] integers in [0, num_classes). Other values raise a
ValueError.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from supcon_tf import exceptions

_Array = npt.ArrayLike
# Float32 softmax rows sum to 1 within 1e-6, float16 rows within 1e-3; rows of
# logits, given by mistake, miss 1 by far more.
_SUM_TOLERANCE = 2e-3
# A float32 softmax has no smaller number: it is 0 where logits differ by more
# than 87.
_LEAST_PROBABILITY = float(np.finfo(np.float32).tiny)


class CalibrationBins(NamedTuple):
    """Counts, confidences and accuracies of bins, by `calibration_bins`.

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
    labels: _Array, num_examples: int, num_classes: int, name: str = "labels"
) -> npt.NDArray[np.int64]:
    """Checks class ids [num_examples] as indices; returns them as int64."""
    array = np.asarray(labels)
    exceptions.require(
        array.shape == (num_examples,),
        f"`{name}` must have shape ({num_examples},), one class id per example",
        array.shape,
    )
    exceptions.require(
        array.dtype.kind in "iu", f"`{name}` must be integers", array.dtype
    )
    invalid = array[(array < 0) | (array >= num_classes)]
    if invalid.size:
        raise exceptions.InvalidValue(
            f"`{name}` must lie in [0, {num_classes}), got {invalid[0]}; drop "
            "unlabelled examples first"
        )
    return array.astype(np.int64)


def check_predictions(
    probabilities: _Array, labels: _Array
) -> tuple[np.ndarray, npt.NDArray[np.int64]]:
    """Checks probabilities and labels; returns arrays of their precision."""
    probabilities = _check_matrix("probabilities", probabilities)
    labels = check_labels(labels, *probabilities.shape)
    sums = probabilities.sum(axis=1, dtype=np.float64)  # [examples]
    worst_sum = sums[np.argmax(np.abs(sums - 1))]
    exceptions.require(
        abs(worst_sum - 1) <= _SUM_TOLERANCE,  # False for a NaN
        "`probabilities` must sum to 1 in each row",
        f"a sum of {worst_sum}; apply softmax to logits first",
    )
    exceptions.require(
        probabilities.min() >= 0,
        "`probabilities` must not be negative",
        probabilities.min(),
    )
    return probabilities, labels


def top_k_accuracy(scores: _Array, labels: _Array, k: int) -> float:
    """Share of the examples whose label is among the k highest scores.

    Of equal scores the lower class id comes first, as in `argmax`. So k = 1
    gives the share of examples whose predicted class is the label, on any
    platform; `k >= num_classes` gives 1.

    `scores` are [examples, num_classes] real, without NaN: logits,
    probabilities or votes.

    Example:
      >>> from supcon_tf import measures
      >>> measures.top_k_accuracy([[0.6, 0.3, 0.1], [0.6, 0.3, 0.1]], [0, 1], 1)
      0.5
    """
    exceptions.require(k >= 1, "`k` must be at least 1", k)
    return float(np.mean(label_ranks(scores, labels) < k))


def label_ranks(scores: _Array, labels: _Array) -> npt.NDArray[np.int64]:
    """The rank of each example's label among the classes, from 0, [examples].

    Classes of a higher score come before the label, and of an equal score those
    of a lower class id: the rank is 0 where `argmax` predicts the label. For
    the arguments see `top_k_accuracy`.

    Example:
      >>> from supcon_tf import measures
      >>> measures.label_ranks([[0.6, 0.3, 0.3]] * 3, [0, 1, 2]).tolist()
      [0, 1, 2]
    """
    scores = _check_matrix("scores", scores)
    label_ids = check_labels(labels, *scores.shape)[:, None]  # [examples, 1]
    # Every comparison with NaN is false: the example would count as a hit.
    exceptions.require(
        not np.isnan(scores).any(), "`scores` must be numbers", "NaN"
    )
    label_scores = np.take_along_axis(scores, label_ids, axis=1)
    is_before = scores > label_scores  # [examples, classes]
    class_ids = np.arange(scores.shape[1])
    is_before |= (scores == label_scores) & (class_ids < label_ids)
    return is_before.sum(axis=1)


def calibration_bins(
    probabilities: _Array, labels: _Array, num_bins: int = 15
) -> CalibrationBins:
    """Confidence and accuracy of the top label, in bins of equal width.

    The confidence of an example is its highest probability; its prediction is
    the class of that probability, of equal ones the lower class id.

    Example:
      >>> from supcon_tf import measures
      >>> probabilities = [[0.6, 0.4], [0.9, 0.1], [0.8, 0.2]]
      >>> bins = measures.calibration_bins(probabilities, [0, 0, 1], num_bins=4)
      >>> bins.count.tolist(), bins.accuracy.tolist()
      ([0, 0, 1, 2], [0.0, 0.0, 1.0, 0.5])
    """
    probabilities, labels = check_predictions(probabilities, labels)
    correct = probabilities.argmax(axis=1) == labels
    return count_bins(probabilities.max(axis=1), correct, num_bins)


def count_bins(
    confidence: npt.NDArray[np.floating],
    correct: npt.NDArray[np.bool_],
    num_bins: int,
) -> CalibrationBins:
    """`calibration_bins`, from the confidence and success [N] of examples."""
    exceptions.require(num_bins >= 1, "`num_bins` must be at least 1", num_bins)
    # Edges in the precision of the probabilities, so that float32 0.2 is *on*
    # the edge 1/5. Only the inner edges: 1.0 then needs no bin of its own.
    inner_edges = (np.arange(1, num_bins) / num_bins).astype(confidence.dtype)
    bin_ids = np.searchsorted(inner_edges, confidence, side="left")  # [N]

    count = np.bincount(bin_ids, minlength=num_bins)  # [num_bins]
    divisor = np.maximum(count, 1)  # the sums of an empty bin are 0
    return CalibrationBins(
        count=count,
        confidence=np.bincount(bin_ids, confidence, num_bins) / divisor,
        accuracy=np.bincount(bin_ids, correct, num_bins) / divisor,
    )


def expected_calibration_error(
    probabilities: _Array, labels: _Array, num_bins: int = 15
) -> float:
    """Expected calibration error (ECE) of the top label, in [0, 1].

      ECE = sum_b count_b / examples * |accuracy_b - confidence_b|

    over the bins of `calibration_bins`; 0 is perfect calibration.

    Example:
      >>> from supcon_tf import measures
      >>> probabilities = [[0.75, 0.25], [0.75, 0.25]]  # one of two is right
      >>> measures.expected_calibration_error(probabilities, [0, 1])
      0.25

    Reference: Guo et al. 2017, https://arxiv.org/abs/1706.04599, Eq. 3.
    """
    return calibration_gap(calibration_bins(probabilities, labels, num_bins))


def calibration_gap(bins: CalibrationBins) -> float:
    """Returns the expected calibration error of bins."""
    gaps = np.abs(bins.accuracy - bins.confidence)  # [num_bins]
    return float(np.average(gaps, weights=bins.count))


def negative_log_likelihood(probabilities: _Array, labels: _Array) -> float:
    """Mean negative log-likelihood (NLL) of the labels, in nats.

      NLL = -1/examples * sum_i log p_i(y_i)

    A probability below the smallest normal float32, 1.2e-38, counts as 1.2e-38:
    a label of probability 0 costs 87.3 nats, not infinity. Certain and right
    predictions score 0, equal probabilities log(num_classes).

    Example:
      >>> from supcon_tf import measures
      >>> probabilities = [[0.25, 0.25, 0.25, 0.25]]  # log 4
      >>> round(measures.negative_log_likelihood(probabilities, [2]), 3)
      1.386
    """
    probabilities, labels = check_predictions(probabilities, labels)
    return mean_surprise(probabilities[np.arange(len(labels)), labels])


def mean_surprise(likelihood: npt.NDArray[np.floating]) -> float:
    """`negative_log_likelihood` of the probabilities of labels, [examples]."""
    # A probability of a rounded row may exceed 1 by a little.
    bounded = np.clip(likelihood.astype(np.float64), _LEAST_PROBABILITY, 1)
    return float(-np.mean(np.log(bounded)))


def brier_score(probabilities: _Array, labels: _Array) -> float:
    """Mean squared distance of distributions from the labels, in [0, 2].

      Brier = 1/examples * sum_i sum_c (p_i(c) - [c = y_i])^2

    This is Brier's definition, a sum over classes; others take the mean over
    classes, or one of two classes alone, which is half of this sum. Certain
    and right predictions score 0, certain and wrong ones 2.

    Example:
      >>> from supcon_tf import measures
      >>> measures.brier_score([[1.0, 0.0], [0.0, 1.0]], [0, 0])  # (0 + 2) / 2
      1.0

    Reference: Brier 1950, Verification of forecasts expressed in terms of
      probability, Monthly Weather Review 78(1), pages 1-3.
    """
    probabilities, labels = check_predictions(probabilities, labels)
    return float(np.mean(squared_errors(probabilities, labels)))


def squared_errors(
    probabilities: np.ndarray, labels: npt.NDArray[np.integer]
) -> npt.NDArray[np.float64]:
    """Returns the Brier score of each example, [examples]."""
    errors = probabilities.astype(np.float64)
    errors[np.arange(len(labels)), labels] -= 1  # [examples, num_classes]
    return np.sum(errors**2, axis=1)


def confusion_matrix(
    predicted: _Array, labels: _Array, num_classes: int
) -> npt.NDArray[np.int64]:
    """Counts of the examples by true and predicted class.

    `predicted` holds class ids, as `labels` does. Returns [num_classes,
    num_classes] int64, a row per true class and a column per predicted class.

    Example:
      >>> from supcon_tf import measures
      >>> predicted, labels = [0, 1, 1], [0, 0, 1]
      >>> measures.confusion_matrix(predicted, labels, num_classes=2).tolist()
      [[1, 1], [0, 1]]
    """
    # Imported here, as scikit-learn takes a second to import.
    from sklearn import metrics

    predicted, labels = _check_classes(predicted, labels, num_classes)
    return metrics.confusion_matrix(
        labels, predicted, labels=np.arange(num_classes)
    )


def per_class_recall(
    predicted: _Array, labels: _Array, num_classes: int
) -> list[float | None]:
    """Share of each class's examples that are predicted as that class.

    A class without examples has None, JSON's null. The mean weighted by the
    number of examples is the accuracy.

    Args:
      predicted: [N] integers in [0, num_classes), class ids.
      labels: [N] integers in the same range.
      num_classes: number of classes, at least 1.

    Example:
      >>> from supcon_tf import measures
      >>> predicted, labels = [0, 1, 1], [0, 0, 1]
      >>> measures.per_class_recall(predicted, labels, num_classes=3)
      [0.5, 1.0, None]

    Raises:
      ValueError: a shape or a class id breaks these rules.
    """
    hits, label_counts, _ = class_counts(predicted, labels, num_classes)
    return shares(hits, label_counts)


def shares(
    sums: npt.NDArray[np.number], counts: npt.NDArray[np.integer]
) -> list[float | None]:
    """Means of classes, from sums and counts [num_classes]; None for none."""
    return [
        float(total / count) if count else None
        for total, count in zip(sums, counts, strict=True)
    ]


def class_counts(
    predicted: _Array, labels: _Array, num_classes: int
) -> tuple[npt.NDArray[np.int64], ...]:
    """Counts per class of right predictions, of labels and of predictions.

    Each is [num_classes]; for the arguments see `per_class_recall`.
    """
    predicted, labels = _check_classes(predicted, labels, num_classes)
    return tuple(
        np.bincount(classes, minlength=num_classes)
        for classes in (labels[predicted == labels], labels, predicted)
    )


def _check_classes(
    predicted: _Array, labels: _Array, num_classes: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Checks class ids; returns predicted classes and labels, [examples]."""
    exceptions.require(
        num_classes >= 1, "`num_classes` must be at least 1", num_classes
    )
    labels = check_labels(labels, np.size(labels), num_classes)
    predicted = check_labels(predicted, labels.size, num_classes, "predicted")
    return predicted, labels


def _check_matrix(name: str, values: _Array) -> np.ndarray:
    """Checks that the values are a non-empty matrix; returns the array."""
    array = np.asarray(values)
    exceptions.require(
        array.ndim == 2 and array.size > 0,
        f"`{name}` must have shape [examples, num_classes] and not be empty",
        f"shape {array.shape}",
    )
    return array


def shot_summary(
    recalls: Sequence[float | None],
    train_counts: _Array,
    boundaries: tuple[int, int] = (20, 100),
) -> dict[str, float | None]:
    """Mean accuracy of classes with many, some and few training examples.

    Args:
      recalls: of each class, None without test examples.
      train_counts: [classes] training examples of each.
      boundaries: few are fewer than the first, many more than the second.

    Example:
      >>> from supcon_tf import measures
      >>> measures.shot_summary([1.0, 0.5, 0.0], train_counts=[500, 50, 5])
      {'many': 1.0, 'medium': 0.5, 'few': 0.0, 'mean': 0.5}

    Returns:
      `many`, `medium` and `few`, None without such classes; `mean`, of all.

    Reference: Liu et al. 2019, https://arxiv.org/abs/1904.05160, Sec. 4.
    """
    low, high = boundaries
    counts = np.asarray(train_counts)
    values = np.array(  # [classes]
        [np.nan if recall is None else recall for recall in recalls], float
    )
    exceptions.require(
        counts.shape == values.shape,
        "`train_counts` must be as many as `recalls`",
        f"{counts.shape} and {values.shape}",
    )
    masks = {  # [classes] bool
        "many": counts > high,
        "medium": (counts >= low) & (counts <= high),
        "few": counts < low,
        "mean": np.ones(len(counts), bool),
    }
    return {
        name: float(np.nanmean(values[mask]))
        if np.isfinite(values[mask]).any()
        else None
        for name, mask in masks.items()
    }


def level_summary(
    predicted: _Array,
    labels: _Array,
    ancestors: _Array,
    depths: _Array | None = None,
) -> dict[str, object]:
    """Accuracy of predictions at every level of a hierarchy.

    Args:
      predicted: [examples] class ids.
      labels: [examples] class ids.
      ancestors: [classes, H] integers, from the highest level to the class; a
        class of fewer ancestors has a number of its own in the columns below.
      depths: [classes] integers in [0, H), how many ancestors each class has;
        None for H - 1 of all.

    Example:
      >>> from supcon_tf import measures
      >>> ancestors = [[0, 0], [0, 1], [1, 2]]  # classes 0 and 1 are siblings
      >>> predicted, labels = [0, 1, 2, 0], [0, 0, 2, 2]
      >>> summary = measures.level_summary(predicted, labels, ancestors)
      >>> summary["top_1_by_level"], summary["mistakes_inside_parent"]
      ([0.75, 0.5], 0.5)

    Returns:
      `top_1_by_level`, from the highest level down; `parent_top_1`, the share
      of predictions inside the parent of the label; and
      `mistakes_inside_parent`, the same of wrong predictions, None without
      them. A class without ancestors is its own parent. ValueError without a
      level above the classes, or for other depths.
    """
    ancestors = np.asarray(ancestors)  # [classes, H]
    exceptions.require(
        ancestors.ndim == 2 and ancestors.shape[1] >= 2,
        "`ancestors` must be [classes, levels], of 2 levels or more",
        f"shape {ancestors.shape}",
    )
    classes, levels = ancestors.shape
    depths = np.asarray(
        np.full(classes, levels - 1) if depths is None else depths
    )
    exceptions.require(
        depths.shape == (classes,)
        and ((0 <= depths) & (depths < levels)).all(),
        f"`depths` must be {classes} numbers below {levels}, one per class",
        depths.tolist(),
    )
    predicted, labels = _check_classes(predicted, labels, classes)
    is_right = ancestors[predicted] == ancestors[labels]  # [examples, H]
    is_wrong = predicted != labels
    # The column of the parent of each label: classes may differ in depth.
    columns = np.maximum(depths[labels] - 1, 0)
    is_inside = is_right[np.arange(len(labels)), columns]
    return {
        "top_1_by_level": is_right.mean(axis=0).tolist(),
        "parent_top_1": float(is_inside.mean()),
        "mistakes_inside_parent": (
            float(is_inside[is_wrong].mean()) if is_wrong.any() else None
        ),
    }
