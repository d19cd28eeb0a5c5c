"""The threshold between queries of the classes of a gallery, and others.

Two scores compete: the cosine to the most similar row, and the Mahalanobis
distance to the class means. The better one is that which tells classes apart
that are held out of the gallery.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from supcon_tf import exceptions, measures
from supcon_tf.data import subsets
from supcon_tf.gallery import store

# Rows that are compared with all others for a threshold, and rows by which the
# score is chosen; evenly spread.
_MOST_THRESHOLD_ROWS, _MOST_CHOICE_ROWS = 10_000, 20_000
_FOLDS = 5  # parts of the classes, each of which is held out once
# The score of an example that is encoded again, in another batch or by an
# export, differs by less, relative to a score beyond 1.
_ROUNDING = 1e-5


def fit(
    gallery: store.Gallery,
    known_rate: float,
    held_out: npt.NDArray[np.float32] | None = None,
    known_data: str | None = None,
) -> store.Threshold | None:
    """The threshold that a share of known examples reaches.

    It is lower by rounding errors than the score of the last of them, which
    stays known wherever its score is computed.

    Args:
      gallery: the rows.
      known_rate: the share.
      held_out: representations [n, dim] of known examples that are not in the
        gallery; None for the rows of classes of two rows or more, each beside
        the others. Copies of one example count as one row then.
      known_data: the path of `held_out`.

    Returns:
      The threshold of the better score; None without `held_out` for a gallery
      that has no class of two rows.
    """
    distinct = _without_copies(gallery)
    score, aurocs = choose_score(distinct)
    if held_out is None:
        try:
            scores = _scores_of_rows(distinct, score)
        except exceptions.InvalidValue:  # rows that hardly differ
            score, aurocs = "neighbors", {}
            scores = _scores_of_rows(distinct, score)
    elif score == "mahalanobis":
        scores = gallery.mahalanobis.scores(held_out)
    else:
        scores = gallery.search(held_out, k=1)[0][:, 0]
    if not len(scores):
        return None
    minimum = measures.known_threshold(scores, known_rate)
    minimum -= _ROUNDING * max(1.0, abs(minimum))
    return store.Threshold(minimum, known_rate, known_data, score, aurocs)


def _without_copies(gallery: store.Gallery) -> store.Gallery:
    """The first row of each content: a copy is as near to it as can be."""
    _, first_rows = np.unique(gallery.digests, return_index=True)
    if len(first_rows) == len(gallery):
        return gallery
    is_first = np.zeros(len(gallery), bool)
    is_first[first_rows] = True
    return gallery.part(is_first)


def choose_score(gallery: store.Gallery) -> tuple[str, dict[str, float]]:
    """The score that better tells classes apart which the gallery lacks.

    Half of the rows of each class stay in the gallery, the other half asks.
    Each part of the classes is left out of the gallery once; then its rows are
    unknown ones.

    Returns:
      One of `store.SCORES`, and the mean AUROC of each: "neighbors" and {}
      where rows have no class, or there are too few classes or rows.
    """
    is_labelled = gallery.labels != store.NO_LABEL
    count = len(gallery.class_names)
    rows = subsets.evenly(len(gallery), _MOST_CHOICE_ROWS)
    labels = gallery.labels[rows]
    is_query = subsets.turns(labels) % 2 == 1
    if not is_labelled.all() or count < 3 or not is_query.any():
        return "neighbors", {}
    representations = np.asarray(gallery.representations[rows])
    aurocs: dict[str, list[float]] = {name: [] for name in store.SCORES}
    for fold in range(min(_FOLDS, count)):
        is_held_out = labels % _FOLDS == fold
        is_bank = ~is_query & ~is_held_out
        is_known, is_unknown = is_query & ~is_held_out, is_query & is_held_out
        if not (is_known.any() and is_unknown.any()):
            continue
        bank, bank_labels = representations[is_bank], labels[is_bank]
        queries = representations[is_query]
        try:
            score = measures.Mahalanobis.fit(bank, bank_labels)
        except exceptions.InvalidValue:  # the rows of each class are equal
            return "neighbors", {}
        for name, scores in (
            ("neighbors", measures.neighbor_scores(queries, bank)),
            ("mahalanobis", score.scores(queries)),
        ):
            summary = measures.unknown_summary(
                scores[is_known[is_query]], scores[is_unknown[is_query]]
            )
            aurocs[name].append(summary["auroc"])
    if not aurocs["neighbors"]:
        return "neighbors", {}
    means = {name: float(np.mean(values)) for name, values in aurocs.items()}
    # Of equally good ones the first, which needs no covariance.
    return max(store.SCORES, key=means.__getitem__), means


def _scores_of_rows(gallery: store.Gallery, score: str) -> np.ndarray:
    """The scores of rows that have others of their class, beside these."""
    is_labelled = gallery.labels != store.NO_LABEL
    counts = np.bincount(gallery.labels[is_labelled], minlength=1)
    is_paired = is_labelled & (counts[gallery.labels] > 1)
    if score == "neighbors" or not is_paired.any():
        return _cosines_to_others(gallery, np.flatnonzero(is_paired))
    scores = measures.mahalanobis_scores(
        gallery.representations,
        gallery.representations,
        gallery.labels,
        leave_one_out=True,
    )
    return scores[is_paired]


def _cosines_to_others(gallery: store.Gallery, rows: np.ndarray) -> np.ndarray:
    """The cosine of some rows to the most similar other row, [n] float32."""
    if not len(rows):
        return np.zeros(0, np.float32)
    rows = rows[subsets.evenly(len(rows), _MOST_THRESHOLD_ROWS)]
    similarities, nearest = gallery.search(gallery.representations[rows], k=2)
    # Where equal rows hide a row from its own neighbours, the first is another.
    is_itself = nearest[:, 0] == rows
    return np.where(is_itself, similarities[:, 1], similarities[:, 0])
