"""Retrieval: whether the neighbours of an example share its class.

Every example is a query once and does not retrieve itself. Neighbours are
ordered by cosine, of equally similar ones the earlier row first. The only
example of a class is no query, as nothing is left to retrieve, but other
queries may retrieve it.

Memory: that of `nearest_neighbors` for one chunk with k the largest R, and the
ranks of these: about 60 `query_chunk` R bytes, 40 MB for R = 5,000.

Letters in the shapes: N examples, C classes, Q queries of a chunk, K neighbours
of each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from supcon_tf import exceptions
from supcon_tf.measures import metrics, neighbors

_PRECISIONS = "r_precision", "map_at_r"
_MOST_CLASSES = 10**7  # the scores of each are a row of the result
_DRAWS, _TAILS = 1_000, (0.025, 0.975)  # of intervals


def retrieval_summary(
    representations: neighbors.Matrix,
    labels: npt.ArrayLike,
    ks: Sequence[int] = (1, 5, 10),
    *,
    query_chunk: int = 128,
) -> dict[str, object]:
    """Recall@k, R-precision and mAP@R, where every example searches all others.

      recall@k    = mean over queries of [one of the k nearest is of the class]
      R-precision = mean over queries of 1/R sum_{i=1..R} rel(i)
      mAP@R       = mean over queries of 1/R sum_{i=1..R} P(i) rel(i)

    R is the number of other examples of the query's class, rel(i) whether the
    i-th nearest is one of them, P(i) the share of them among the i nearest.

    Args:
      representations: [examples, dim] real, finite.
      labels: [examples] integers >= 0, below 10 million.
      ks: positive ints; a k beyond examples - 1 means all other examples.
      query_chunk: positive int, as in `nearest_neighbors`.

    Example:
      >>> from supcon_tf import measures
      >>> z = [[1, 0], [1, 0], [0, 1], [2, 1], [-1, 0]]
      >>> summary = measures.retrieval_summary(z, [0, 0, 1, 1, 2], ks=[1])
      >>> summary["recall_at"], summary["map_at_r"], summary["left_out"]
      ({'1': 0.75}, 0.75, 1)
      >>> summary["per_class"]["recall_at_1"]
      [1.0, 0.5, None]

    Returns:
      Ready for JSON: `recall_at`, a share by k as text; `r_precision` and
      `map_at_r`, in [0, 1]; `left_out`, the number of examples that were no
      query; `per_class`, lists of `recall_at_` the first k, `r_precision` and
      `map_at_r` by label, None for a label without queries; `intervals`, [low,
      high] of the same means, in which 95 % of 1,000 draws of the classes with
      replacement lie. ValueError if an argument breaks its rule, or no class
      has two examples.

    Reference: Musgrave et al. 2020, https://arxiv.org/abs/2003.08505, Sec. 3.2.
    """
    bank = neighbors.check_matrix("representations", representations)
    labels = metrics.check_labels(labels, len(bank), np.iinfo(np.int64).max)
    exceptions.require(np.ndim(ks) == 1, "`ks` must be a list of ints", ks)
    for k in [*ks] or [0]:
        neighbors.check_counts(query_chunk=query_chunk, ks=k)
    exceptions.require(
        labels.max(initial=0) < _MOST_CLASSES,
        f"`labels` must be numbers of classes, below {_MOST_CLASSES:,}",
        f"{labels.max(initial=0)}; np.unique(labels, return_inverse=True)[1] "
        "numbers them",
    )
    counts = np.bincount(labels)  # [C]
    exceptions.require(
        counts.max(initial=0) >= 2, "`labels` must hold a class twice", "none"
    )
    num_relevant = counts[labels] - 1  # [N], R of each example
    depth = min(max(*ks, num_relevant.max()), len(bank) - 1)  # K

    hits = np.zeros(len(ks))  # queries with a hit, for each k
    sums = {  # over the queries of each class, [C]
        name: np.zeros(len(counts))
        for name in (f"recall_at_{ks[0]}", *_PRECISIONS)
    }
    for part in neighbors.chunks(len(bank), query_chunk):
        _, nearest = neighbors.search(  # [Q, K]
            bank[part], bank, depth, part.start
        )
        is_of_class = labels[nearest] == labels[part, None]  # [Q, K]
        hits += [is_of_class[:, :k].any(axis=1).sum() for k in ks]
        scores = (
            is_of_class[:, : ks[0]].any(axis=1),
            *_precisions(is_of_class, num_relevant[part]),
        )
        for name, values in zip(sums, scores, strict=True):
            np.add.at(sums[name], labels[part], values)
    queries = np.where(counts > 1, counts, 0)  # [C]
    num_queries = int(queries.sum())
    recall = (hits / num_queries).tolist()
    return {
        "recall_at": dict(zip(map(str, ks), recall, strict=True)),
        **{name: float(sums[name].sum() / num_queries) for name in _PRECISIONS},
        "left_out": len(bank) - num_queries,
        "per_class": {
            name: metrics.shares(values, queries)
            for name, values in sums.items()
        },
        "intervals": _intervals(sums, queries),
    }


def _precisions(
    is_of_class: npt.NDArray[np.bool_],
    num_relevant: npt.NDArray[np.integer],
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """R-precision and AP@R of queries, [Q] each; 0 for a query without R.

    Args:
      is_of_class: [Q, K] whether each neighbour is of the query's class.
      num_relevant: [Q], the query's R.
    """
    ranks = np.arange(1, is_of_class.shape[1] + 1)
    is_relevant = is_of_class & (ranks <= num_relevant[:, None])
    precisions = np.cumsum(is_relevant, axis=1, dtype=np.int32) / ranks
    most_hits = np.maximum(num_relevant, 1)
    return (
        is_relevant.sum(axis=1) / most_hits,
        precisions.sum(axis=1, where=is_relevant) / most_hits,
    )


def _intervals(
    sums: Mapping[str, npt.NDArray[np.float64]],
    queries: npt.NDArray[np.integer],
) -> dict[str, list[float]]:
    """Intervals of means over queries, from sums and counts [C] by class.

    The classes are drawn, and not the queries: those of a class are alike.
    """
    rng = np.random.default_rng(0)
    is_drawn = queries > 0
    count = is_drawn.sum()
    totals = np.stack([queries, *sums.values()], axis=1)[is_drawn]  # [C, 4]
    draws = np.stack(  # [draws, 4]
        [
            totals[rng.integers(0, count, count)].sum(axis=0)
            for _ in range(_DRAWS)
        ]
    )
    limits = np.quantile(draws[:, 1:] / draws[:, :1], _TAILS, axis=0)  # [2, 3]
    return dict(zip(sums, limits.T.tolist(), strict=True))
