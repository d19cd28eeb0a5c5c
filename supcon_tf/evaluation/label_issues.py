"""Training examples whose neighbours contradict their label."""

from __future__ import annotations

import numpy as np

from supcon_tf import measures, run_files
from supcon_tf.disk import files, rows
from supcon_tf.evaluation import splits

_SIDE = 96  # pixels
_PICTURES = 30  # examples that a report has pictures of
# Positions of examples, suggested labels, and margins.
Issues = tuple[np.ndarray, np.ndarray, np.ndarray]


def rank(votes: np.ndarray, labels: np.ndarray) -> Issues:
    """The most contradicted labels first.

    Args:
      votes: [examples, classes], probabilities that do not know the label of
        their own example.
      labels: [examples] integers.

    Returns:
      Positions of the examples where another class has more votes than the
      label, the classes with most votes, and the margins: the probability of
      the label less that of the suggested class, in [-1, 0).

    Reference: Northcutt et al. 2021, https://arxiv.org/abs/1911.00068, Sec. 3.2
    (the normalized margin).
    """
    suggested, margins = _contradictions(votes, labels)
    positions = np.argsort(margins, kind="stable")
    positions = positions[margins[positions] < 0]
    return positions, suggested[positions], margins[positions]


def find_issues(
    bank: splits.EncodedSplit, k: int, temperature: float
) -> Issues:
    """Ranks the labels of a split by the k-NN votes of its other examples.

    At most as many neighbours vote on an example as its class has other
    examples: the nearest k cannot all be of a rare class, which says nothing of
    a label. The only example of a class is not judged. Of examples with equal
    margins, those come first that more neighbours vote on.
    """
    labels, num_classes = bank.labels, len(bank.source.class_names)
    similarities, nearest = measures.nearest_neighbors(  # [examples, k]
        bank.representations, bank.representations, k, leave_one_out=True
    )
    class_others = np.bincount(labels)[labels] - 1  # [examples]
    ranks = np.arange(similarities.shape[1])  # [k]
    voters = np.minimum(class_others, len(ranks))
    has_no_vote = ranks >= np.maximum(voters, 1)[:, None]  # [examples, k]
    similarities[has_no_vote] = -np.inf
    contradictions = []
    for part in measures.parts(len(labels), num_classes):
        votes = measures.vote(
            similarities[part],
            nearest[part],
            labels,
            num_classes=num_classes,
            temperature=temperature,
        )
        contradictions.append(_contradictions(votes, labels[part]))
    suggested, margins = map(np.concatenate, zip(*contradictions, strict=True))
    positions = np.lexsort([-voters, margins])
    is_issue = (margins < 0) & (class_others > 0)
    positions = positions[is_issue[positions]]
    return positions, suggested[positions], margins[positions]


def _contradictions(
    votes: np.ndarray, labels: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The other class with most votes, [examples], and the label's margin."""
    rows = np.arange(len(labels))
    other_votes = votes.copy()  # [examples, classes]
    other_votes[rows, labels] = -1.0
    suggested = other_votes.argmax(axis=1)
    return suggested, votes[rows, labels] - other_votes[rows, suggested]


def write_label_issues(
    into: run_files.RunDirectory,
    bank: splits.EncodedSplit,
    issues: Issues,
    count: int,
) -> None:
    """Writes label_issues.csv, and label_issues.npz for the report.

    label_issues.csv has a line for each of at most `count` training examples:
    its id, its label, the label that its neighbours suggest, and the margin.
    label_issues.npz has the first of them: `issue_images` [M, H, W, 3] uint8,
    or str of texts, `issue_ids` [M] str, `issue_labels`, `issue_suggestions`
    [M] int32 and `issue_margins` [M] float32.
    """
    positions, suggested, margins = (array[:count] for array in issues)
    names, ids = bank.source.class_names, bank.names(positions)
    lines = [rows.csv_line(["example", "label", "suggested", "margin"])]
    for example, label, suggestion, margin in zip(
        ids, bank.labels[positions], suggested, margins, strict=True
    ):
        cells = example, names[label], names[suggestion], f"{margin:.4f}"
        lines.append(rows.csv_line(cells))
    files.write_atomically(into.issues_list, "".join(lines))
    first = positions[:_PICTURES]
    if not len(first):
        return
    run_files.write_arrays(
        into.issues_file,
        issue_images=bank.to_display(first, _SIDE),
        issue_ids=ids[:_PICTURES],
        issue_labels=bank.labels[first],
        issue_suggestions=suggested[:_PICTURES].astype(np.int32),
        issue_margins=margins[:_PICTURES].astype(np.float32),
    )
