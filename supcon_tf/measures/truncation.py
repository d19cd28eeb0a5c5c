"""The probabilities that predictions.npz has room for."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import tensorflow as tf

_MOST_PROBABILITIES = 10**8  # that predictions.npz holds: 400 MB
_MOST_CLASSES = 10  # of an example, where not all fit


class Probabilities(NamedTuple):
    """Probabilities as predictions.npz holds them.

    Attributes:
      probabilities: [examples, classes], or [examples, 10] where all of them
        are more than 100 million: the highest, falling.
      classes: [examples, 10] ids of their classes; None where all are there.
    """

    probabilities: np.ndarray
    classes: np.ndarray | None


def truncate(probabilities: np.ndarray, num_examples: int) -> Probabilities:
    """The probabilities [..., classes] that predictions.npz has room for."""
    num_classes = probabilities.shape[-1]
    if num_examples * num_classes <= _MOST_PROBABILITIES:
        return Probabilities(probabilities, None)
    highest = tf.math.top_k(probabilities, min(_MOST_CLASSES, num_classes))
    return Probabilities(highest.values.numpy(), highest.indices.numpy())
