"""Alignment and uniformity of representations on the unit sphere.

The Keras metrics of `losses` have the same formulas and follow projections in
training, over the rows of one batch at a time. The functions here are exact
over all pairs of a split; on a split of one batch both give the same numbers.

Letters in the shapes: N examples, n examples of a class, b rows of a block.
"""

from __future__ import annotations

import itertools

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from supcon_tf import exceptions
from supcon_tf.measures import metrics, neighbors

_BLOCK = 1024  # rows: a block of pairs takes 4 MB


def alignment(
    representations: neighbors.Matrix, labels: npt.ArrayLike
) -> float:
    """Mean squared distance between examples of one class, in [0, 4].

      E_i E_{j != i, y_j = y_i} ||z_i - z_j||^2

    Each example with others of its class weighs the same; where all classes
    are equally large that is the mean over all pairs of one class. No pairs are
    formed: the result is the mean of 2n / (n - 1) ||z_i - m||^2, where m is the
    mean of the n examples of a class. 0 is collapse within each class; 2 is
    the mean where directions are unrelated.
    Memory: a unit-length copy of the representations and five times the largest
    class.

    Args:
      representations: [N, dim] real, finite; compared at unit length.
      labels: [N] integers >= 0.

    Example:
      >>> import numpy as np
      >>> from supcon_tf import measures
      >>> z = np.eye(3)[[0, 0, 1, 2]]  # one class a point, one at right angles
      >>> round(measures.alignment(z, [0, 0, 1, 1]), 3)  # (0 + 2) / 2
      1.0

    Raises:
      ValueError: a shape or a number breaks the rules above, or no class has
        two examples.

    Reference: Wang and Isola 2020, https://arxiv.org/abs/2005.10242, Sec. 4.
    """
    z = neighbors.unit_rows("representations", representations)
    labels = metrics.check_labels(labels, len(z), np.iinfo(np.int64).max)
    total, examples = 0.0, 0
    for label in np.unique(labels):
        rows = z[labels == label]  # [n, dim]
        n = len(rows)
        if n > 1:
            # Not from |sum z|^2, which cancels where classes are tight.
            deviations = rows - rows.mean(axis=0, dtype=np.float64)
            total += 2 * n / (n - 1) * np.sum(deviations**2)
            examples += n
    exceptions.require(examples > 0, "`labels` must hold a class twice", "none")
    return float(total / examples)


def uniformity(representations: neighbors.Matrix) -> float:
    """Log of the mean Gaussian potential of pairs of examples, in [-8, 0].

      log E_{i != j} exp(-2 ||z_i - z_j||^2)

    The mean is exact over all pairs, block by block. 0 is collapse; a uniform
    distribution on the sphere gives -3.94 in 128 dimensions, -3.98 in 512.
    Memory: a unit-length copy of the representations and 30 MB.

    Args:
      representations: [N, dim] real, finite, N >= 2; compared at unit length.

    Example:
      >>> import numpy as np
      >>> from supcon_tf import measures
      >>> round(measures.uniformity(np.eye(3)), 3)  # squared distances of 2
      -4.0

    Raises:
      ValueError: `representations` is no such matrix.

    Reference: Wang and Isola 2020, https://arxiv.org/abs/2005.10242, Sec. 4.
    """
    z = neighbors.unit_rows("representations", representations)
    n = len(z)
    exceptions.require(
        n >= 2, "`representations` must hold 2 examples or more", n
    )
    total = 0.0
    starts = range(0, n, _BLOCK)
    for i, j in itertools.combinations_with_replacement(starts, 2):
        rows, columns = z[i : i + _BLOCK], z[j : j + _BLOCK]
        cosines = tf.matmul(rows, columns, transpose_b=True)  # [b, b]
        # ||z_i - z_j||^2 = 2 - 2 cos for unit vectors.
        potentials = tf.exp(4 * (cosines - 1))
        if i == j:  # an example and itself are no pair
            potentials = tf.linalg.set_diag(potentials, tf.zeros(len(rows)))
        symmetry = 1 if i == j else 2  # block i, j also stands for j, i
        block_sum = tf.reduce_sum(tf.cast(potentials, tf.float64))
        total += symmetry * float(block_sum)
    return float(np.log(total / (n * (n - 1))))
