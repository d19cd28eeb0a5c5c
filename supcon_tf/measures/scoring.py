"""Proper scores of predicted distributions: likelihood and Brier score.

Both are least, in expectation, for the true distribution, so that they judge
accuracy and calibration at once; the calibration error judges one alone.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from supcon_tf.measures import metrics

# A float32 softmax has 0 below it, where logits differ by more than 87.
_LEAST_PROBABILITY = float(np.finfo(np.float32).tiny)


def negative_log_likelihood(
    probabilities: npt.ArrayLike, labels: npt.ArrayLike
) -> float:
    """Mean negative log-likelihood (NLL) of the labels, in nats.

      NLL = -1/examples * sum_i log p_i(y_i)

    A probability below the smallest normal float32, 1.2e-38, counts as that:
    one label of probability 0 costs 87.3 nats, and never infinity.

    Args:
      probabilities: [examples, num_classes] real, each row sums to 1.
      labels: [examples] integers in [0, num_classes).

    Returns:
      Nats, computed in float64; 0 is certain and right, log(num_classes) is
      the score of equal probabilities.

    Raises:
      ValueError: `probabilities` is not a non-empty matrix of distributions, or
        `labels` does not fit it.
    """
    probabilities, labels = metrics.check_predictions(probabilities, labels)
    own = np.take_along_axis(probabilities, labels[:, None], axis=1)
    # Rounded rows may exceed 1 by a little, and a likelihood does not.
    own = np.clip(own.astype(np.float64), _LEAST_PROBABILITY, 1)
    return float(-np.mean(np.log(own)))


def brier_score(probabilities: npt.ArrayLike, labels: npt.ArrayLike) -> float:
    """Mean squared distance of distributions from the labels, in [0, 2].

      Brier = 1/examples * sum_i sum_c (p_i(c) - [c = y_i])^2

    Brier's own definition, summed over classes; others take the mean over
    classes, or one of two classes alone, which is half of this.

    Args:
      probabilities: [examples, num_classes] real, each row sums to 1.
      labels: [examples] integers in [0, num_classes).

    Returns:
      The score, computed in float64: 0 is certain and right, 2 certain and
      wrong.

    Raises:
      ValueError: `probabilities` is not a non-empty matrix of distributions, or
        `labels` does not fit it.

    Reference: Brier 1950, Verification of forecasts expressed in terms of
      probability, Monthly Weather Review 78(1), pages 1-3.
    """
    probabilities, labels = metrics.check_predictions(probabilities, labels)
    errors = probabilities.astype(np.float64)
    errors[np.arange(len(labels)), labels] -= 1
    return float(np.mean(np.sum(errors**2, axis=1)))
