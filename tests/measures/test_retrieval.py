"""Recall@k and mAP@R against loops and hand-made rankings."""

import numpy as np
import pytest

from supcon_tf.measures import retrieval

KS = (1, 2, 4, 90)


def _data(examples=60, dim=4):
    generator = np.random.default_rng(0)
    labels = generator.integers(6, size=examples)
    labels[7] = 9  # Alone in its class.
    # Signs: exact similarities, many of which tie.
    signs = generator.choice([-1.0, 1.0], size=(examples, dim))
    return signs, labels


def _loop(rows, labels):
    """The definitions, query by query and rank by rank."""
    hits, precisions = {k: [] for k in KS}, []
    by_class, r_precisions = {}, []
    for i, row in enumerate(rows):
        candidates = [j for j in range(len(rows)) if j != i]
        ranked = sorted(candidates, key=lambda j: (-float(rows[j] @ row), j))
        relevant = [labels[j] == labels[i] for j in ranked]
        r = sum(relevant)
        if r == 0:
            continue
        for k in KS:
            hits[k].append(any(relevant[:k]))
        total = 0.0
        for rank in range(1, r + 1):
            if relevant[rank - 1]:
                total += sum(relevant[:rank]) / rank
        precisions.append(total / r)
        r_precisions.append(sum(relevant[:r]) / r)
        by_class.setdefault(labels[i], []).append(
            (relevant[0], r_precisions[-1], precisions[-1])
        )
    recall = {str(k): np.mean(hits_at_k) for k, hits_at_k in hits.items()}
    by_class = {label: np.mean(v, axis=0) for label, v in by_class.items()}
    return recall, np.mean(r_precisions), np.mean(precisions), by_class


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("query_chunk", [13, 128])
def test_both_equal_the_loop(query_chunk):
    rows, labels = _data()
    result = retrieval.retrieval_summary(
        rows, labels, KS, query_chunk=query_chunk
    )
    recall, r_precision, precision, by_class = _loop(rows, labels)
    assert result["left_out"] == 1
    assert result["recall_at"] == pytest.approx(recall)
    assert result["r_precision"] == pytest.approx(r_precision, abs=1e-12)
    columns = [*result["per_class"].values()]
    assert [*result["per_class"]] == ["recall_at_1", "r_precision", "map_at_r"]
    for label in range(10):
        means = [column[label] for column in columns]
        if label in by_class:
            assert means == pytest.approx(by_class[label], abs=1e-12)
        else:
            assert means == [None] * 3
    assert result["map_at_r"] == pytest.approx(precision, abs=1e-12)
    assert 0 < precision < recall["4"] < recall["90"] == 1


def test_intervals_are_those_of_drawn_classes():
    rows, labels = _data(120)
    result = retrieval.retrieval_summary(rows, labels, (2, 1))
    assert [*result["intervals"]] == ["recall_at_2", "r_precision", "map_at_r"]
    for name, (low, high) in result["intervals"].items():
        means = [x for x in result["per_class"][name] if x is not None]
        mean = result.get(name, result["recall_at"]["2"])
        assert min(means) <= low < mean < high <= max(means)
    # Classes that are alike leave nothing to chance.
    rows, labels = np.repeat(np.eye(3), 4, axis=0), np.repeat([0, 1, 2], 4)
    exact = retrieval.retrieval_summary(rows, labels)["intervals"]
    assert exact["map_at_r"] == [1.0, 1.0]


def test_by_hand():
    # On a line of angles 0, 10, 25, 45, 70 degrees: classes a b a b a. Of the
    # three queries of a, R = 2: ranks are b a, a b or b a, b a.
    angles = np.radians([0, 10, 25, 45, 70])
    rows = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    result = retrieval.retrieval_summary(rows, [3, 5, 3, 5, 3], (1, 2))
    # Query 0: 1 (b), 2 (a): AP = 1/2 * 1/2. Query 2: 1 (b), 3 (b): 0. Query
    # 4: 3 (b), 2 (a): 1/4. Queries 1 and 3, R = 1: 0 and 2, both a: 0.
    assert result["map_at_r"] == pytest.approx((1 / 4 + 0 + 1 / 4) / 5)
    assert result["recall_at"] == {"1": 0.0, "2": pytest.approx(2 / 5)}
    rows, labels = np.repeat(np.eye(3), 4, axis=0), np.repeat([0, 1, 2], 4)
    separate = retrieval.retrieval_summary(rows, labels, (1, 5))
    assert separate["recall_at"] == {"1": 1.0, "5": 1.0}
    assert separate["map_at_r"] == 1.0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"representations": np.ones(3)}, "`representations` must have shape"),
        ({"representations": np.full((3, 2), np.nan)}, "must be finite"),
        ({"labels": [0, 1]}, r"`labels` must have shape \(3,\)"),
        ({"labels": [0, 1, 2]}, "`labels` must hold a class twice"),
        ({"ks": 5}, "`ks` must be a list of ints, got 5"),
        ({"labels": [10**12] * 3}, r"below 10,000,000, got 1000000000000; np"),
        ({"ks": (1, 0)}, "`ks` must be positive, got 0"),
        ({"ks": (1, 1.5)}, "`ks` must be an integer, got 1.5"),
        ({"query_chunk": 0}, "`query_chunk` must be positive, got 0"),
    ],
)
def test_errors_name_the_rule(changes, message):
    arguments = {"representations": np.ones((3, 2)), "labels": [0, 0, 1]}
    with pytest.raises(ValueError, match=message):
        retrieval.retrieval_summary(**arguments | changes)
