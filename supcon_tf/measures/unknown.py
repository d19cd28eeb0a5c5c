"""Whether an example is of the known classes: scores, thresholds, measures.

A score of belonging is high for examples of the classes of a bank. The bank
has representations with labels; they need no unit length.

Letters in the shapes: Q queries, N rows of the bank, C classes.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt

from supcon_tf import exceptions
from supcon_tf.measures import metrics, multi_label, neighbors

# Share of the mean variance that is added to each variance: a class of few
# examples spans few dimensions.
_SHRINKAGE = 1e-3
_LEAST_VARIANCE = 1e-12  # of unit vectors: below are rounding errors
_CHUNK_ROWS = 2**14  # to bound the memory


def neighbor_scores(
    queries: neighbors.Matrix,
    bank: neighbors.Matrix,
    k: int = 1,
    *,
    leave_one_out: bool = False,
) -> npt.NDArray[np.float32]:
    """The cosine to the k-th nearest row of the bank: KNN-OOD.

    Args:
      queries: [Q, dim] real, finite.
      bank: [N, dim] real, finite, N >= 1.
      k: positive int; the last row where the bank has fewer.
      leave_one_out: query i is row i of the bank, and not its own neighbour.

    Example:
      >>> from supcon_tf import measures
      >>> measures.neighbor_scores([[3, 4]], [[1, 0], [0, 1]], k=2).round(3)
      array([0.6], dtype=float32)

    Returns:
      [Q] float32 in -1..1.

    Raises:
      ValueError: a shape or a number breaks the rules above.

    Reference: Sun et al. 2022, https://arxiv.org/abs/2204.06507, Eq. 2.
    """
    similarities, _ = neighbors.nearest_neighbors(
        queries, bank, k, leave_one_out=leave_one_out
    )
    return similarities[:, -1]


def mahalanobis_scores(
    queries: neighbors.Matrix,
    bank: neighbors.Matrix,
    bank_labels: npt.ArrayLike,
    *,
    leave_one_out: bool = False,
) -> npt.NDArray[np.float32]:
    """Minus the Mahalanobis distance to the nearest class mean: SSD+.

      score(z) = -min_c sqrt((z - mu_c)^T Sigma^-1 (z - mu_c))

    Rows are scaled to unit length. Sigma is the covariance of the bank around
    the means of its classes, with 0.001 of its mean variance added to the
    diagonal, so that few examples will do.

    Args:
      queries: [Q, dim] real, finite.
      bank: [N, dim] real, finite, N >= 2.
      bank_labels: [N] integers >= 0.
      leave_one_out: query i is row i of the bank, and is in neither the means
        nor the covariance that it is compared with.

    Example:
      >>> from supcon_tf import measures
      >>> bank, labels = [[5, 0], [5, 1], [0, 5], [1, 5]], [0, 0, 1, 1]
      >>> near, far = measures.mahalanobis_scores(
      ...     [[9, 1], [-1, 0]], bank, labels
      ... )
      >>> bool(near > far)
      True

    Returns:
      [Q] float32, at most 0.

    Raises:
      ValueError: a shape or a number breaks the rules above, or all rows of
        each class are equal, or would be without one row.

    Reference: Sehwag et al. 2021, https://arxiv.org/abs/2103.12051, Sec. 3.1;
    the covariance is shared, as in Lee et al. 2018,
    https://arxiv.org/abs/1807.03888, Eq. 1.
    """
    if leave_one_out:
        return _scores_of_rows_left_out(queries, bank, bank_labels)
    return Mahalanobis.fit(bank, bank_labels).scores(queries)


@dataclasses.dataclass(frozen=True, eq=False)
class Mahalanobis:
    """The score of `mahalanobis_scores`, fitted to a bank once.

    Example:
      >>> from supcon_tf import measures
      >>> bank, labels = [[5, 0], [5, 1], [0, 5], [1, 5]], [0, 0, 1, 1]
      >>> score = measures.Mahalanobis.fit(bank, labels)
      >>> near, far = score.scores([[9, 1], [-1, 0]])
      >>> bool(near > far)
      True

    Attributes:
      whitening: W, [dim, dim] float64; W^T W is the inverse of Sigma.
      centers: W mu_c of each class, [C, dim] float64.
    """

    whitening: npt.NDArray[np.float64]
    centers: npt.NDArray[np.float64]

    @classmethod
    def fit(
        cls, bank: neighbors.Matrix, bank_labels: npt.ArrayLike
    ) -> Mahalanobis:
        """Fits the score to a bank; arguments and errors as of the function."""
        scatter = _Scatter.of(bank, bank_labels)
        dim = len(scatter.products)
        # [dim, dim]; zeros, and the error below, for no rows.
        covariance = scatter.products / max(scatter.counts.sum(), 1)
        mean_variance = np.trace(covariance) / dim
        _check_variance(mean_variance)
        diagonal = np.diag_indices_from(covariance)
        covariance[diagonal] += _SHRINKAGE * mean_variance
        # |W (z - mu)| is the distance, with W^T W the inverse of Sigma.
        whitening = np.linalg.inv(np.linalg.cholesky(covariance))  # [dim, dim]
        return cls(whitening, scatter.means @ whitening.T)

    def scores(self, queries: neighbors.Matrix) -> npt.NDArray[np.float32]:
        """The scores of queries [Q, dim], [Q] float32, at most 0."""
        queries = neighbors.check_matrix("queries", queries)
        exceptions.require(
            queries.shape[1] == len(self.whitening),
            f"`queries` must have the dimension of the bank, "
            f"{len(self.whitening)}",
            queries.shape[1],
        )
        scores = np.empty(len(queries), np.float32)
        for part in neighbors.chunks(len(queries), _CHUNK_ROWS):
            unit_rows = neighbors.unit_rows("queries", queries[part])
            rows = unit_rows @ self.whitening.T
            squares = (  # [Q, C]
                (rows**2).sum(axis=1, keepdims=True)
                - 2 * rows @ self.centers.T
                + (self.centers**2).sum(axis=1)
            )
            scores[part] = -np.sqrt(np.maximum(squares.min(axis=1), 0))
        return scores


@dataclasses.dataclass(frozen=True, eq=False)
class _Scatter:
    """Rows of unit length around the means of their classes.

    Attributes:
      classes: [N] int64, of each row, 0..C-1.
      counts: [C] int64, rows of each class.
      means: [C, dim] float64.
      products: [dim, dim] float64, the sum of (z - mu)(z - mu)^T of all rows.
    """

    classes: npt.NDArray[np.int64]
    counts: npt.NDArray[np.int64]
    means: npt.NDArray[np.float64]
    products: npt.NDArray[np.float64]

    @classmethod
    def of(cls, bank: neighbors.Matrix, bank_labels: npt.ArrayLike) -> _Scatter:
        """The scatter of a bank, whose labels may be any integers >= 0."""
        bank = neighbors.check_matrix("bank", bank)
        labels = metrics.check_labels(
            bank_labels, len(bank), np.iinfo(np.int64).max, "bank_labels"
        )
        _, classes, counts = np.unique(
            labels, return_inverse=True, return_counts=True
        )
        dim = bank.shape[1]
        sums = np.zeros([len(counts), dim])  # [C, dim]
        products = np.zeros([dim, dim])
        for part in neighbors.chunks(len(bank), _CHUNK_ROWS):
            rows = neighbors.unit_rows("bank", bank[part]).astype(np.float64)
            np.add.at(sums, classes[part], rows)
            products += rows.T @ rows
        means = sums / counts[:, None]
        return cls(classes, counts, means, products - sums.T @ means)


def _check_variance(mean_variance: float) -> None:
    """Raises ValueError where no class has different rows."""
    exceptions.require(
        mean_variance > _LEAST_VARIANCE,
        "`bank` must have a class of different rows",
        "equal rows in each class",
    )


def _scores_of_rows_left_out(
    queries: neighbors.Matrix, bank: neighbors.Matrix, labels: npt.ArrayLike
) -> npt.NDArray[np.float32]:
    """The score of each row by a fit to all others, [N] float32."""
    queries = neighbors.check_matrix("queries", queries)
    exceptions.require(
        np.shape(queries) == np.shape(bank) and len(queries) >= 2,
        "`leave_one_out` must have the bank, of 2 rows or more, as queries",
        f"{np.shape(queries)} and {np.shape(bank)}",
    )
    scatter = _Scatter.of(bank, labels)
    variances, axes = np.linalg.eigh(scatter.products)  # [dim], [dim, dim]
    scatter = dataclasses.replace(
        scatter, means=scatter.means @ axes, products=np.maximum(variances, 0)
    )
    scores = np.empty(len(queries), np.float32)
    # Fewer rows, of which there are many arrays.
    for part in neighbors.chunks(len(queries), _CHUNK_ROWS // 8):
        rows = neighbors.unit_rows("queries", queries[part]) @ axes  # [Q, dim]
        squares = _squares_left_out(rows, scatter.classes[part], scatter)
        scores[part] = -np.sqrt(np.maximum(squares.min(axis=1), 0))
    return scores


def _squares_left_out(
    rows: npt.NDArray[np.float64],
    classes: npt.NDArray[np.int64],
    scatter: _Scatter,
) -> npt.NDArray[np.float64]:
    """Squared distances [Q, C] of rows by a fit to all rows but one, itself.

    Without row z of a class of n rows, the mean of the class is further from z
    by f = n / (n-1), and the products are S - f v v^T with v = z - mu. The
    inverse follows from that of S (Sherman and Morrison), so that no row needs
    another fit.

    Args:
      rows: [Q, dim], in the axes of S, as the means of `scatter` are.
      classes: [Q], the class of each row; no row is left of a class of one.
      scatter: its `products` are [dim], the variances along these axes.
    """
    num_others, dim = len(scatter.classes) - 1, rows.shape[1]
    index, counts = np.arange(len(classes)), scatter.counts[classes]
    factors = np.where(counts > 1, counts / np.maximum(counts - 1, 1), 0)  # [Q]
    gaps = rows - scatter.means[classes]  # [Q, dim], v of each row
    totals = scatter.products.sum() - factors * (gaps**2).sum(axis=1)  # [Q]
    _check_variance(totals.min() / num_others / dim)
    shrinkage = _SHRINKAGE * totals[:, None] / dim
    inverses = 1 / (scatter.products + shrinkage)  # [Q, dim], of S, shrunk
    squares = (  # [Q, C], by these
        (rows**2 * inverses).sum(axis=1, keepdims=True)
        - 2 * (rows * inverses) @ scatter.means.T
        + inverses @ (scatter.means**2).T
    )
    products = (gaps * inverses * rows).sum(axis=1, keepdims=True)
    products = products - (gaps * inverses) @ scatter.means.T  # [Q, C]
    gap_squares = (gaps**2 * inverses).sum(axis=1)  # [Q]
    squares[index, classes] = factors**2 * gap_squares
    products[index, classes] = factors * gap_squares
    scales = factors / (1 - factors * gap_squares)
    squares += scales[:, None] * products**2
    squares[index[counts == 1], classes[counts == 1]] = np.inf
    return num_others * squares


def known_threshold(scores: npt.ArrayLike, known_rate: float = 0.95) -> float:
    """The score that a share of known examples reaches.

    Args:
      scores: [Q] of held-out examples of known classes, Q >= 1.
      known_rate: the share, in (0, 1].

    Example:
      >>> from supcon_tf import measures
      >>> measures.known_threshold([0.1, 0.9, 0.7, 0.8], known_rate=0.75)
      0.7

    Returns:
      The largest score that at least this share of `scores` is not below.

    Raises:
      ValueError: there are no scores, or `known_rate` is not in (0, 1].
    """
    scores = _finite("scores", scores)
    exceptions.require(
        0 < known_rate <= 1, "`known_rate` must be in (0, 1]", known_rate
    )
    # The subtraction keeps 0.95 * 20 = 19.000000000000004 at 19.
    count = max(int(np.ceil(known_rate * len(scores) - 1e-9)), 1)
    return float(np.sort(scores)[len(scores) - count])


def unknown_summary(
    known: npt.ArrayLike, unknown: npt.ArrayLike
) -> dict[str, float]:
    """How well scores of belonging tell known examples from unknown ones.

    Args:
      known: [Q] scores of examples of known classes, Q >= 1.
      unknown: [U] scores of other examples, U >= 1.

    Example:
      >>> from supcon_tf import measures
      >>> summary = measures.unknown_summary([0.9, 0.8, 0.4], [0.5, 0.1])
      >>> {name: round(share, 3) for name, share in summary.items()}
      {'auroc': 0.833, 'fpr95': 0.5, 'aupr': 0.833}

    Returns:
      `auroc`, the probability that a known example has a higher score than an
      unknown one, equal scores counted half; `fpr95`, the share of unknown
      examples that reach the threshold of 95 % of the known ones; `aupr`, the
      average precision of the unknown examples, by falling belonging.

    Raises:
      ValueError: there are no scores, or they are not finite.
    """
    known, unknown = _finite("known", known), _finite("unknown", unknown)
    ordered = np.sort(known)
    below = np.searchsorted(ordered, unknown, "left")  # [U]
    equal = np.searchsorted(ordered, unknown, "right") - below
    is_unknown = np.arange(len(known) + len(unknown)) >= len(known)
    belonging = np.concatenate([known, unknown])
    aupr, _ = multi_label.average_precisions(-belonging, is_unknown)
    wins = (len(known) - below - equal).sum() + equal.sum() / 2
    return {
        "auroc": float(wins / (len(known) * len(unknown))),
        "fpr95": float((unknown >= known_threshold(known)).mean()),
        "aupr": float(aupr),
    }


def _finite(name: str, scores: npt.ArrayLike) -> npt.NDArray[np.float64]:
    scores = np.asarray(scores, np.float64)
    exceptions.require(
        scores.ndim == 1 and len(scores) > 0,
        f"`{name}` must have shape [examples], of 1 example or more",
        scores.shape,
    )
    exceptions.require(
        np.isfinite(scores).all(), f"`{name}` must be finite", "NaN or infinity"
    )
    return scores
