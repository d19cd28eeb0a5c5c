"""Training examples whose neighbours contradict their label."""

from __future__ import annotations

import numpy as np

from supcon_tf import files, measures, rows, run_files
from supcon_tf.evaluation import splits

_SIDE = 96  # pixels
_SHOWN = 30  # examples that a report has pictures of
# Positions of examples, the labels that are suggested, and the margins.
Issues = tuple[np.ndarray, np.ndarray, np.ndarray]


def rank(votes: np.ndarray, labels: np.ndarray) -> Issues:
    """The most contradicted labels first.

    Args:
      votes: [examples, classes], probabilities that do not know the label of
        their own example.
      labels: [examples] integers.

    Returns:
      Positions of the examples that other classes have more votes for, what
      these suggest, and the margins: the probability of the label less that of
      the suggestion, in [-1, 0).

    Reference: Northcutt et al. 2021, https://arxiv.org/abs/1911.00068, Sec. 3.2
    (the normalized margin).
    """
    suggested, margins = _contradictions(votes, labels)
    order = np.argsort(margins, kind="stable")
    order = order[margins[order] < 0]
    return order, suggested[order], margins[order]


def find_issues(
    bank: splits.EncodedSplit, k: int, temperature: float
) -> Issues:
    """Ranks the labels of a split by the k-NN votes of its other examples.

    No more neighbours judge an example than its class has others: of a rare
    class even the nearest k cannot all be, which says nothing of a label. The
    only example of a class is not judged. Of equal margins those come first
    that more neighbours judge.
    """
    labels, num_classes = bank.labels, len(bank.source.class_names)
    similarities, nearest = measures.nearest_neighbors(
        bank.representations, bank.representations, k, leave_one_out=True
    )
    others = np.bincount(labels)[labels] - 1  # [examples], of the class
    places = np.arange(similarities.shape[1])  # [k]
    similarities[places >= np.maximum(others, 1)[:, None]] = -np.inf  # no vote
    found = []
    for part in measures.parts(len(labels), num_classes):
        votes = measures.vote(
            similarities[part],
            nearest[part],
            labels,
            num_classes=num_classes,
            temperature=temperature,
        )
        found.append(_contradictions(votes, labels[part]))
    suggested, margins = map(np.concatenate, zip(*found, strict=True))
    order = np.lexsort([-np.minimum(others, len(places)), margins])
    order = order[(margins[order] < 0) & (others[order] > 0)]
    return order, suggested[order], margins[order]


def _contradictions(
    votes: np.ndarray, labels: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """What other classes have most votes for, and the margin to the label."""
    rows = np.arange(len(labels))
    others = votes.copy()
    others[rows, labels] = -1.0
    suggested = others.argmax(axis=1)
    return suggested, votes[rows, labels] - others[rows, suggested]


def write_label_issues(
    into: run_files.RunDirectory,
    bank: splits.EncodedSplit,
    issues: Issues,
    count: int,
) -> None:
    """Writes label_issues.csv, and label_issues.npz for the report.

    The former has a line for each of at most `count` training examples: what it
    is called, its label, the label that its neighbours suggest, and the margin.
    The latter has the first of them: `issue_images` [M, H, W, 3] uint8, or str
    of texts, `issue_ids` [M] str, `issue_labels`, `issue_suggestions` [M] int32
    and `issue_margins` [M] float32.
    """
    order, suggested, margins = (x[:count] for x in issues)
    names, ids = bank.source.class_names, bank.names(order)
    lines = [rows.csv_line(["example", "label", "suggested", "margin"])]
    for name, label, other, margin in zip(
        ids, bank.labels[order], suggested, margins, strict=True
    ):
        cells = name, names[label], names[other], f"{margin:.4f}"
        lines.append(rows.csv_line(cells))
    files.write_atomically(into.issues_list, "".join(lines))
    first = order[:_SHOWN]
    if not len(first):
        return
    run_files.write_arrays(
        into.issues_file,
        issue_images=bank.shown(first, _SIDE),
        issue_ids=ids[:_SHOWN],
        issue_labels=bank.labels[first],
        issue_suggestions=suggested[:_SHOWN].astype(np.int32),
        issue_margins=margins[:_SHOWN].astype(np.float32),
    )
