"""Retrieval: whether the neighbours of an example share its class.

Every example is a query once and does not retrieve itself. Neighbours are
ordered by cosine, of equally similar ones the earlier row first. The only
example of a class is no query, as nothing is left to retrieve, but other
queries may retrieve it.

Memory: that of `nearest_neighbors` for one chunk with k the largest R, and the
ranks of these: about 60 `query_chunk` R bytes, 40 MB for R = 5,000.

Letters in the shapes: N examples, Q queries of a chunk, K neighbours of each.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from supcon_tf import exceptions
from supcon_tf.measures import metrics, neighbors


def retrieval_summary(
    representations: neighbors.Matrix,
    labels: npt.ArrayLike,
    ks: Sequence[int] = (1, 5, 10),
    *,
    query_chunk: int = 128,
) -> dict[str, object]:
    """Recall@k and mAP@R, where every example searches all others.

      recall@k = mean over queries of [one of the k nearest is of the class]
      mAP@R    = mean over queries of 1/R sum_{i=1..R} P(i) rel(i)

    R is the number of other examples of the query's class, rel(i) whether the
    i-th nearest is one of them, P(i) the share of them among the i nearest.

    Args:
      representations: [examples, dim] real, finite.
      labels: [examples] integers >= 0.
      ks: positive ints; a k beyond examples - 1 means all other examples.
      query_chunk: positive int, as in `nearest_neighbors`.

    Example:
      >>> from supcon_tf import measures
      >>> z = [[1, 0], [1, 0], [0, 1], [2, 1], [-1, 0]]
      >>> measures.retrieval_summary(z, [0, 0, 1, 1, 2], ks=[1])
      {'recall_at': {'1': 0.75}, 'map_at_r': 0.75, 'left_out': 1}

    Returns:
      Ready for JSON: `recall_at`, a share by k as text; `map_at_r`, in [0, 1];
      `left_out`, the number of examples that were no query. ValueError if an
      argument breaks its rule, or no class has two examples.

    Reference: Musgrave et al. 2020, https://arxiv.org/abs/2003.08505, Sec. 3.2.
    """
    bank = neighbors.check_matrix("representations", representations)
    labels = metrics.check_labels(labels, len(bank), np.iinfo(np.int64).max)
    neighbors.check_positive(query_chunk=query_chunk, ks=min(ks, default=0))
    _, classes, counts = np.unique(
        labels, return_inverse=True, return_counts=True
    )
    exceptions.require(
        counts.max(initial=0) >= 2, "`labels` must hold a class twice", "none"
    )
    num_relevant = counts[classes] - 1  # [N], R of each example
    depth = min(max(*ks, num_relevant.max()), len(bank) - 1)  # K
    ranks = np.arange(1, depth + 1)

    hits = np.zeros(len(ks))  # queries with a hit, for each k
    average_precision = 0.0  # summed over queries
    for first in range(0, len(bank), query_chunk):
        part = slice(first, first + query_chunk)
        _, nearest = neighbors.search(bank[part], bank, depth, first)  # [Q, K]
        is_of_class = classes[nearest] == classes[part, None]  # [Q, K]
        hits += [is_of_class[:, :k].any(axis=1).sum() for k in ks]
        # AP@R of each query, 0 without other examples of its class.
        is_relevant = is_of_class & (ranks <= num_relevant[part, None])
        precisions = np.cumsum(is_relevant, axis=1, dtype=np.int32) / ranks
        sums = np.sum(precisions, axis=1, where=is_relevant)  # [Q]
        average_precision += (sums / np.maximum(num_relevant[part], 1)).sum()
    num_queries = np.count_nonzero(num_relevant)
    recall = (hits / num_queries).tolist()
    return {
        "recall_at": dict(zip(map(str, ks), recall, strict=True)),
        "map_at_r": float(average_precision / num_queries),
        "left_out": int(len(bank) - num_queries),
    }
