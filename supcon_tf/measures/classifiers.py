"""Classification of frozen representations without training.

Two classifiers show what an encoder has learned with no optimiser to tune: the
nearest neighbours in a bank of labelled representations, and the nearest class
mean. Both compare by cosine similarity and normalise their inputs.

Letters in the shapes: Q queries, N rows of the bank, k neighbours of a query.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from supcon_tf import exceptions
from supcon_tf.measures import metrics, neighbors

_BANK_ROWS = 2**14  # normalised at once, to bound the memory
_MOST_NEIGHBORS, _LEAST_NEIGHBORS = 200, 5
# The least score of a class that has examples: just above the -1 of one that
# has none, so that an empty class never wins, not even by a tie.
_LEAST_SIMILARITY = np.nextafter(np.float32(-1), np.float32(0))


def knn_predict(
    queries: neighbors.Matrix,
    bank: neighbors.Matrix,
    bank_labels: neighbors.Matrix,
    *,
    num_classes: int,
    k: int | None = None,
    temperature: float = 0.07,
    weighted: bool = True,
    query_chunk: int = 512,
    leave_one_out: bool = False,
) -> npt.NDArray[np.float32]:
    """Class probabilities by the votes of the k most similar representations.

    This is `nearest_neighbors`, then `vote`: for both kinds of votes, call
    these two functions and search once.

    Args:
      queries: [Q, dim] real, finite.
      bank: [N, dim] real, finite, N >= 1: what is searched.
      bank_labels: [N] integers in [0, num_classes).
      num_classes: number of classes.
      k: neighbours that vote, all where the bank has fewer; None for
        `default_neighbors` of the bank.
      temperature: positive float, no unit; only used when `weighted`.
      weighted: whether a vote counts exp(similarity / temperature), or 1.
      query_chunk: queries that are searched for at a time; of no effect on the
        result.
      leave_one_out: query i is row i of the bank, and has no vote of its own.

    Example:
      >>> import numpy as np
      >>> from supcon_tf import measures
      >>> bank = np.eye(3)
      >>> measures.knn_predict(bank[:2], bank, [0, 1, 1], num_classes=2, k=1)
      array([[1., 0.],
             [0., 1.]], dtype=float32)

    Returns:
      [Q, num_classes] float32, each row sums to 1.

    Raises:
      ValueError: a shape, a label or a number breaks the rules above.

    Reference: Wu et al. 2018, https://arxiv.org/abs/1805.01978, Sec. 3.4.
    """
    # Arguments of `vote` are checked too, before a search that takes long.
    neighbors.check_positive(num_classes=num_classes, temperature=temperature)
    queries, bank = neighbors.check_inputs(queries, bank)
    metrics.check_labels(bank_labels, len(bank), num_classes, "bank_labels")
    k = default_neighbors(bank_labels) if k is None else k
    similarities, indices = neighbors.nearest_neighbors(
        queries, bank, k, leave_one_out=leave_one_out, query_chunk=query_chunk
    )
    return vote(
        similarities,
        indices,
        bank_labels,
        num_classes=num_classes,
        temperature=temperature,
        weighted=weighted,
    )


def default_neighbors(bank_labels: neighbors.Matrix) -> int:
    """The default k: min(200, examples of the smallest class), but at least 5.

    With k beyond the smallest class, that class is outvoted for want of
    examples. With k below 5, a class of one or two examples, which loses any
    vote, would leave all others the vote of their nearest neighbour alone.
    Classes without examples do not count.

    Args:
      bank_labels: [N] integers >= 0, N >= 1; or [N, classes] 0 or 1 of several
        labels.

    Example:
      >>> import numpy as np
      >>> from supcon_tf import measures
      >>> class_sizes = [3000, 900], [40, 20], [300, 1]
      >>> labels = [np.repeat([0, 1], sizes) for sizes in class_sizes]
      >>> [measures.default_neighbors(bank_labels) for bank_labels in labels]
      [200, 20, 5]
    """
    labels = np.asarray(bank_labels)
    counts = np.bincount(labels) if labels.ndim == 1 else labels.sum(axis=0)
    smallest = counts[counts > 0].min(initial=_MOST_NEIGHBORS)
    return int(max(smallest, _LEAST_NEIGHBORS))


def vote(
    similarities: npt.NDArray[np.float32],
    indices: npt.NDArray[np.integer],
    bank_labels: neighbors.Matrix,
    *,
    num_classes: int,
    temperature: float = 0.07,
    weighted: bool = True,
) -> npt.NDArray[np.float32]:
    """Class probabilities by the votes of neighbours of `nearest_neighbors`.

      p(c) ~ sum_{n in top k, y_n = c} exp(cos(query, bank_n) / tau)  (weighted)
      p(c) ~ sum_{n in top k, y_n = c} 1                              (majority)

    Ties remain ties: `argmax` takes the lower class id.

    Args:
      similarities: [Q, k], most similar first, k >= 1.
      indices: [Q, k] integers, rows of the bank; both as `nearest_neighbors`
        returns them.
      bank_labels: [N] integers in [0, num_classes).
      num_classes: number of classes.
      temperature: positive float, no unit; only used when `weighted`.
      weighted: whether a vote counts exp(similarity / temperature), or 1.

    Example:
      >>> import numpy as np
      >>> from supcon_tf import measures
      >>> bank, labels = np.eye(4), [0, 1, 1, 1]
      >>> near = measures.nearest_neighbors(bank[:1], bank, k=4)
      >>> measures.vote(*near, labels, num_classes=2, weighted=False).tolist()
      [[0.25, 0.75]]

    Returns:
      [Q, num_classes] float32, each row sums to 1.

    Raises:
      ValueError: a shape, a label or a number breaks the rules above.

    Reference: Wu et al. 2018, https://arxiv.org/abs/1805.01978, Sec. 3.4.
    """
    neighbors.check_positive(num_classes=num_classes, temperature=temperature)
    exceptions.require(
        similarities.shape == indices.shape and similarities.ndim == 2,
        "`similarities` must have shape [queries, k], that of `indices`",
        f"{similarities.shape} and {indices.shape}",
    )
    bank_labels = metrics.check_labels(
        bank_labels, np.size(bank_labels), num_classes, "bank_labels"
    )
    probabilities = np.empty((len(indices), num_classes), np.float32)
    for query, rows in enumerate(indices):  # rows [k] of the bank
        weights = None
        if weighted:
            # Relative to the nearest: exp(1 / temperature) overflows a float32
            # below 0.012.
            gaps = similarities[query] - similarities[query, 0]  # [k], <= 0
            weights = np.exp(gaps.astype(np.float64) / temperature)
        # [num_classes], the sum of exp(gap / tau), or a count
        votes = np.bincount(bank_labels[rows], weights, num_classes)
        probabilities[query] = votes / votes.sum()
    return probabilities


def prototype_predict(
    queries: neighbors.Matrix,
    bank: neighbors.Matrix,
    bank_labels: neighbors.Matrix,
    *,
    num_classes: int,
) -> npt.NDArray[np.float32]:
    """Cosine similarity of each query to the mean representation of each class.

    The mean is taken of unit-length representations and scaled to unit length.
    A class without examples scores exactly -1 and every other class more, so
    it is never predicted. A class whose representations cancel out has no
    direction and scores 0.

    Args:
      queries: [Q, dim] real, finite.
      bank: [N, dim] real, finite, N >= 1.
      bank_labels: [N] integers in [0, num_classes).
      num_classes: number of classes.

    Example:
      >>> from supcon_tf import measures
      >>> bank = [[1, 0], [3, 0], [0, 1]]
      >>> scores = measures.prototype_predict(
      ...     [[5, 0]], bank, [0, 0, 1], num_classes=3
      ... )
      >>> scores.round(3).tolist()  # class 2 has no examples
      [[1.0, 0.0, -1.0]]

    Returns:
      [Q, num_classes] float32 in [-1, 1]; `argmax` takes the lower class id of
      equal scores.

    Raises:
      ValueError: a shape or a label breaks the rules above.
    """
    queries, bank = neighbors.check_inputs(queries, bank)
    prototypes, present = class_prototypes(
        bank, bank_labels, num_classes=num_classes
    )
    return prototype_similarities(queries, prototypes, present)


def prototype_similarities(
    queries: neighbors.Matrix,
    prototypes: npt.NDArray[np.float32],
    present: npt.NDArray[np.bool_],
) -> npt.NDArray[np.float32]:
    """`prototype_predict` by the prototypes of `class_prototypes`.

    Example:
      >>> from supcon_tf import measures
      >>> prototypes = measures.class_prototypes([[3, 0]], [0], num_classes=2)
      >>> measures.prototype_similarities([[5, 0]], *prototypes).tolist()
      [[1.0, -1.0]]
    """
    similarities = tf.matmul(  # [Q, num_classes]
        neighbors.unit_rows("queries", queries), prototypes, transpose_b=True
    ).numpy()
    return np.where(
        present, np.clip(similarities, _LEAST_SIMILARITY, 1), np.float32(-1)
    )


def class_prototypes(
    bank: neighbors.Matrix, bank_labels: neighbors.Matrix, *, num_classes: int
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.bool_]]:
    """The mean representation of each class, for `prototype_predict`.

    Example:
      >>> from supcon_tf import measures
      >>> bank = [[1, 0], [3, 0], [0, 1]]
      >>> prototypes, present = measures.class_prototypes(
      ...     bank, [0, 0, 1], num_classes=3
      ... )
      >>> prototypes.round(3).tolist(), present.tolist()
      ([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]], [True, True, False])

    Returns prototypes [num_classes, dim] float32 of unit length, zeros where
    representations cancel out or a class has none; and [num_classes] bool,
    whether the class has examples.
    """
    neighbors.check_positive(num_classes=num_classes)
    bank = neighbors.check_matrix("bank", bank)
    bank_labels = metrics.check_labels(
        bank_labels, len(bank), num_classes, "bank_labels"
    )
    # The sum has the direction of the mean, and no division by an empty count.
    sums = np.zeros([num_classes, bank.shape[1]], np.float32)
    for part in neighbors.chunks(len(bank), _BANK_ROWS):
        sums += tf.math.unsorted_segment_sum(  # [num_classes, dim]
            neighbors.unit_rows("bank", bank[part]),
            bank_labels[part],
            num_classes,
        ).numpy()
    present = np.bincount(bank_labels, minlength=num_classes) > 0
    return neighbors.unit_rows("bank", sums), present
