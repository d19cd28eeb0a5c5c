"""Classification of frozen representations without training.

Two ways to read what an encoder has learned with no optimiser to tune: the
nearest neighbours in a bank of labelled representations, and the nearest class
mean. Both compare by cosine similarity and normalise what they are given.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from supcon_tf.measures import metrics

# The least score of a class that has examples: just above the -1 of one that
# has none, so that an empty class never wins, not even by a tie.
_LEAST_SIMILARITY = np.nextafter(np.float32(-1), np.float32(0))


def knn_predict(
    queries: npt.ArrayLike | tf.Tensor,
    bank: npt.ArrayLike | tf.Tensor,
    bank_labels: npt.ArrayLike | tf.Tensor,
    *,
    num_classes: int,
    k: int = 200,
    temperature: float = 0.07,
    weighted: bool = True,
    query_chunk: int = 256,
    leave_one_out: bool = False,
) -> npt.NDArray[np.float32]:
    """Class probabilities by the votes of the k most similar representations.

      p(c) ~ sum_{n in top k, y_n = c} exp(cos(query, bank_n) / tau)  (weighted)
      p(c) ~ sum_{n in top k, y_n = c} 1                              (majority)

    Ties: of equally similar bank rows the earlier ones are the neighbours;
    equal probabilities are returned as such, and `argmax` takes the lower class
    id.
    Memory: beside the normalised inputs and the result, `query_chunk` x N
    float32 similarities (256 x 50,000 take 51 MB).

    Args:
      queries: [Q, dim] real, finite.
      bank: [N, dim] real, finite, N >= 1; a row of zeros is similar to nothing
        (similarity 0).
      bank_labels: [N] integers in [0, num_classes).
      num_classes: number of classes.
      k: positive int, neighbours that vote. More than there are means all: N,
        or N - 1 with `leave_one_out`.
      temperature: positive float, no unit; only used when `weighted`.
      weighted: whether a vote counts exp(similarity / temperature), or 1.
      query_chunk: positive int, queries compared at once; bounds the memory and
        does not change the result.
      leave_one_out: whether query i is bank row i and must not vote for itself.
        It is left out by its index: duplicates of it do vote. Needs Q = N >= 2.

    Returns:
      [Q, num_classes] float32, each row sums to 1.

    Raises:
      ValueError: a shape, a label or a number breaks the rules above.

    Reference: Wu et al. 2018, https://arxiv.org/abs/1805.01978, Sec. 3.4.
    """
    queries, bank, bank_labels = _check_inputs(
        queries, bank, bank_labels, num_classes
    )
    _check_positive(k=k, temperature=temperature, query_chunk=query_chunk)
    num_queries, num_neighbours = queries.shape[0], bank.shape[0]
    if leave_one_out:
        if num_queries != num_neighbours or num_neighbours < 2:
            raise ValueError(
                "`leave_one_out` must have the bank, of 2 rows or more, as "
                f"queries, got {num_queries} queries and {num_neighbours} rows"
            )
        num_neighbours -= 1

    votes = np.empty((num_queries, num_classes), np.float32)
    for first in range(0, num_queries, query_chunk):
        votes[first : first + query_chunk] = _vote(
            queries[first : first + query_chunk],
            bank,
            bank_labels,
            # Tensors, not Python numbers: another value is no new trace.
            k=tf.constant(min(k, num_neighbours)),
            num_classes=tf.constant(num_classes),
            temperature=tf.constant(temperature) if weighted else None,
            excluded_from=tf.constant(first) if leave_one_out else None,
        )
    return votes


def prototype_predict(
    queries: npt.ArrayLike | tf.Tensor,
    bank: npt.ArrayLike | tf.Tensor,
    bank_labels: npt.ArrayLike | tf.Tensor,
    *,
    num_classes: int,
) -> npt.NDArray[np.float32]:
    """Cosine similarity of each query to the mean representation of each class.

    The mean is that of the unit-length representations, and is brought to unit
    length itself. A class without examples scores exactly -1 and every other
    class more, so it is never predicted; representations that cancel out leave
    no direction, and their class scores 0.

    Args:
      queries: [Q, dim] real, finite.
      bank: [N, dim] real, finite, N >= 1.
      bank_labels: [N] integers in [0, num_classes).
      num_classes: number of classes.

    Returns:
      [Q, num_classes] float32 in [-1, 1]; `argmax` takes the lower class id of
      equal scores.

    Raises:
      ValueError: a shape or a label breaks the rules above.
    """
    queries, bank, bank_labels = _check_inputs(
        queries, bank, bank_labels, num_classes
    )
    # The sum has the direction of the mean, and no division by an empty count.
    sums = tf.math.unsorted_segment_sum(bank, bank_labels, num_classes)
    prototypes = _normalize(sums)  # [num_classes, dim]
    similarities = tf.matmul(queries, prototypes, transpose_b=True).numpy()
    present = np.bincount(bank_labels, minlength=num_classes) > 0
    return np.where(
        present, np.clip(similarities, _LEAST_SIMILARITY, 1), np.float32(-1)
    )


@tf.function(reduce_retracing=True)
def _vote(
    queries: tf.Tensor,
    bank: tf.Tensor,
    bank_labels: tf.Tensor,
    k: tf.Tensor,
    num_classes: tf.Tensor,
    temperature: tf.Tensor | None,
    excluded_from: tf.Tensor | None,
) -> tf.Tensor:
    """Probabilities of one chunk; query i is bank row `excluded_from` + i."""
    # Q queries of this chunk, N bank rows, C classes.
    similarities = tf.matmul(queries, bank, transpose_b=True)  # [Q, N]
    num_queries = tf.shape(similarities)[0]
    if excluded_from is not None:
        similarities = tf.linalg.set_diag(
            similarities,
            tf.fill([num_queries], similarities.dtype.min),
            k=excluded_from,
        )
    nearest, neighbours = tf.math.top_k(similarities, k)  # [Q, k]
    if temperature is None:
        weights = tf.ones_like(nearest)
    else:
        # Relative to the nearest: exp(1 / temperature) overflows below 0.012.
        weights = tf.exp((nearest - nearest[:, :1]) / temperature)

    # One sum over (query, class) cells; one-hot votes would be [Q, k, C].
    cells = tf.range(num_queries)[:, None] * num_classes
    cells += tf.gather(bank_labels, neighbours)  # [Q, k]
    votes = tf.math.unsorted_segment_sum(
        weights, cells, num_queries * num_classes
    )
    votes = tf.reshape(votes, [num_queries, num_classes])
    return votes / tf.reduce_sum(votes, axis=1, keepdims=True)


def _check_inputs(
    queries: npt.ArrayLike | tf.Tensor,
    bank: npt.ArrayLike | tf.Tensor,
    bank_labels: npt.ArrayLike | tf.Tensor,
    num_classes: int,
) -> tuple[tf.Tensor, tf.Tensor, npt.NDArray[np.int32]]:
    """Unit-length queries and bank, and labels that fit the bank."""
    _check_positive(num_classes=num_classes)
    queries = _unit_rows("queries", queries)
    bank = _unit_rows("bank", bank)
    if bank.shape[0] == 0:
        raise ValueError("`bank` must hold at least 1 representation, got 0")
    if queries.shape[1] != bank.shape[1]:
        raise ValueError(
            "`queries` must have the dimension of the bank, "
            f"{bank.shape[1]}, got {queries.shape[1]}"
        )
    labels = metrics.check_labels(
        bank_labels, bank.shape[0], num_classes, "bank_labels"
    )
    return queries, bank, labels.astype(np.int32)


def _check_positive(**values: float) -> None:
    """Raises for the first of the named values that is not positive."""
    for name, value in values.items():
        if not value > 0:
            raise ValueError(f"`{name}` must be positive, got {value}")


def _unit_rows(name: str, rows: npt.ArrayLike | tf.Tensor) -> tf.Tensor:
    """The rows of a finite matrix, in float32 and at unit length."""
    rows = tf.cast(tf.convert_to_tensor(rows), tf.float32)
    if rows.shape.rank != 2:
        raise ValueError(
            f"`{name}` must have shape [rows, dim], got {tuple(rows.shape)}"
        )
    if not tf.reduce_all(tf.math.is_finite(rows)):
        raise ValueError(f"`{name}` must be finite, got NaN or infinity")
    return _normalize(rows)


def _normalize(rows: tf.Tensor) -> tf.Tensor:
    """Rows at unit length; a row of zeros stays."""
    # The default epsilon, 1e-12 on the squared norm, would leave rows shorter
    # than 1e-6 as they are.
    return tf.math.l2_normalize(rows, axis=-1, epsilon=1e-24)
