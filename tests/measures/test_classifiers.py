"""k-NN and prototypes against loops, scikit-learn and hand-made cases."""

import numpy as np
import pytest
import tensorflow as tf
from sklearn import neighbors as sklearn_neighbors

from supcon_tf.measures import classifiers, neighbors

NUM_CLASSES = 5


def _data(num_queries: int = 23, num_rows: int = 61, dim: int = 7):
    """Unnormalised queries and bank, and labels; no two similarities tie."""
    generator = np.random.default_rng(0)
    queries = 3 * generator.normal(size=(num_queries, dim))
    bank = generator.normal(size=(num_rows, dim)) * generator.uniform(
        0.1, 10, size=(num_rows, 1)
    )
    labels = generator.integers(NUM_CLASSES, size=num_rows)
    return queries.astype(np.float32), bank.astype(np.float32), labels


def _cosine(query: np.ndarray, row: np.ndarray) -> float:
    query, row = query.astype(np.float64), row.astype(np.float64)
    return float(query @ row / np.sqrt((query @ query) * (row @ row)))


def _knn_loop(
    queries, bank, labels, k, temperature, weighted, leave_one_out=False
):
    """The definition, one query and one neighbour at a time, in float64."""
    result = []
    for i, query in enumerate(queries):
        ranked = sorted(
            (-_cosine(query, row), j)
            for j, row in enumerate(bank)
            if not (leave_one_out and i == j)
        )
        votes = [0.0] * NUM_CLASSES
        for negated, j in ranked[:k]:
            vote = np.exp(-negated / temperature) if weighted else 1.0
            votes[labels[j]] += vote
        result.append(np.array(votes) / sum(votes))
    return np.array(result)


@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("k", [1, 4, 60, 61, 200])
def test_knn_equals_the_loop(k, weighted):
    queries, bank, labels = _data()
    options = {"k": k, "temperature": 0.2, "weighted": weighted}
    result = classifiers.knn_predict(
        queries, bank, labels, num_classes=NUM_CLASSES, **options
    )
    expected = _knn_loop(queries, bank, labels, **options)
    assert result.shape == (23, NUM_CLASSES)
    assert result.dtype == np.float32
    np.testing.assert_allclose(result, expected, atol=3e-6)
    np.testing.assert_allclose(result.sum(axis=1), 1, atol=1e-6)
    options["leave_one_out"] = True
    result = classifiers.knn_predict(
        bank, bank, labels, num_classes=NUM_CLASSES, query_chunk=9, **options
    )
    expected = _knn_loop(bank, bank, labels, **options)
    np.testing.assert_allclose(result, expected, atol=3e-6)


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ([5000] * 10, 200),
        ([300, 0, 250], 200),  # of one there are none
        ([40, 20], 20),
        ([300, 15], 15),
        ([300, 100, 1], 5),  # one image does not decide for all classes
        ([3, 2], 5),
    ],
)
def test_k_follows_the_smallest_class(counts, expected):
    labels = np.repeat(np.arange(len(counts)), counts)
    assert classifiers.default_neighbors(labels) == expected
    several = np.eye(len(counts), dtype=np.uint8)[labels]
    assert classifiers.default_neighbors(several) == expected
    assert classifiers.default_neighbors(several[:0]) == 200


@pytest.mark.parametrize("weighted", [True, False])
def test_small_classes_that_are_apart_are_told_apart(weighted):
    """In a narrow cone, where no weight makes up for missing neighbours."""
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(3), [300, 40, 20])
    bank = np.eye(8)[labels] * 0.1**0.5 + 0.9**0.5 * np.eye(8)[7]
    bank += rng.normal(0, 0.01, bank.shape)
    options = {"num_classes": 3, "weighted": weighted, "leave_one_out": True}
    votes = classifiers.knn_predict(bank, bank, labels, **options)
    assert (votes.argmax(axis=1) == labels).all()
    votes = classifiers.knn_predict(bank, bank, labels, k=200, **options)
    assert set(votes.argmax(axis=1)[340:]) == {0}  # all of them outvoted


def test_majority_equals_scikit_learn():
    queries, bank, labels = _data(num_queries=200, num_rows=300)
    reference = sklearn_neighbors.KNeighborsClassifier(
        9, metric="cosine", algorithm="brute"
    ).fit(bank, labels)
    result = classifiers.knn_predict(
        queries, bank, labels, num_classes=NUM_CLASSES, k=9, weighted=False
    )
    np.testing.assert_allclose(
        result, reference.predict_proba(queries), atol=1e-7
    )
    # Both give equal votes to the lower class id.
    assert np.array_equal(result.argmax(1), reference.predict(queries))


def test_leave_one_out_keeps_duplicates():
    # Rows 0 and 1 are the same point: the nearest other row of each is its
    # twin, which a threshold on the similarity would have dropped too.
    bank = np.array([[1, 0], [1, 0], [0, 1], [0.1, 1]], np.float32)
    labels = np.array([0, 1, 2, 3])
    result = classifiers.knn_predict(
        bank, bank, labels, num_classes=4, k=1, leave_one_out=True
    )
    assert result.argmax(axis=1).tolist() == [1, 0, 3, 2]
    np.testing.assert_array_equal(result.max(axis=1), 1)


def test_equal_votes_are_exactly_equal():
    bank = np.array([[1, 0], [1, 0], [0, 1], [0, 1]], np.float32)
    query = np.array([[1, 1]], np.float32)
    result = classifiers.knn_predict(
        query, bank, [2, 1, 1, 2], num_classes=4, k=4
    )
    np.testing.assert_array_equal(result, [[0, 0.5, 0.5, 0]])


def test_small_temperature_stays_finite():
    queries, bank, labels = _data()
    result = classifiers.knn_predict(
        queries, bank, labels, num_classes=NUM_CLASSES, temperature=1e-3
    )
    nearest = classifiers.knn_predict(
        queries, bank, labels, num_classes=NUM_CLASSES, k=1
    )
    assert np.isfinite(result).all()
    assert np.array_equal(result.argmax(1), nearest.argmax(1))


@pytest.mark.parametrize(
    "predict", [classifiers.knn_predict, classifiers.prototype_predict]
)
def test_inputs_of_any_kind(predict):
    queries, bank, labels = _data()
    expected = predict(queries, bank, labels, num_classes=NUM_CLASSES)
    tensors = predict(
        tf.constant(queries, tf.float64),
        tf.constant(bank),
        tf.constant(labels, tf.int32),
        num_classes=NUM_CLASSES,
    )
    lists = [array.tolist() for array in (queries, bank, labels)]
    lists = predict(*lists, num_classes=NUM_CLASSES)
    assert isinstance(tensors, np.ndarray) and tensors.dtype == np.float32
    np.testing.assert_allclose(tensors, expected, atol=1e-6)
    np.testing.assert_allclose(lists, expected, atol=1e-6)
    # Lengths carry no information: only the direction is compared.
    scaled = predict(1e-8 * queries, 50 * bank, labels, num_classes=NUM_CLASSES)
    np.testing.assert_allclose(scaled, expected, atol=1e-5)
    none = predict(queries[:0], bank, labels, num_classes=NUM_CLASSES)
    assert none.shape == (0, NUM_CLASSES)


def test_both_votes_of_one_search():
    queries, bank, labels = _data()
    nearest = neighbors.nearest_neighbors(queries, bank, 7)
    for weighted in (True, False):
        options = {"num_classes": NUM_CLASSES, "weighted": weighted}
        np.testing.assert_allclose(
            classifiers.vote(*nearest, labels, **options),
            classifiers.knn_predict(queries, bank, labels, k=7, **options),
            atol=1e-6,
        )
    similarities, indices = nearest
    with pytest.raises(ValueError, match=r"that of `indices`, got \(23, 7\)"):
        classifiers.vote(similarities, indices[:5], labels, num_classes=5)
    with pytest.raises(ValueError, match=r"must lie in \[0, 2\)"):
        classifiers.vote(similarities, indices, labels, num_classes=2)


def test_prototypes_equal_the_loop():
    queries, bank, labels = _data()
    result = classifiers.prototype_predict(
        queries, bank, labels, num_classes=NUM_CLASSES
    )
    for class_id in range(NUM_CLASSES):
        members = [
            row / np.linalg.norm(row)
            for row, label in zip(bank, labels, strict=True)
            if label == class_id
        ]
        mean = sum(members) / len(members)
        for i, query in enumerate(queries):
            assert result[i, class_id] == pytest.approx(
                _cosine(query, mean), abs=2e-6
            )


def test_class_without_examples_is_never_predicted():
    # The query is opposite to the only class that has examples.
    result = classifiers.prototype_predict(
        np.array([[-2.0, 0], [1, 0]]),
        np.array([[1.0, 0], [3, 0]]),
        [1, 1],
        num_classes=3,
    )
    assert np.isfinite(result).all()
    np.testing.assert_array_equal(result[:, [0, 2]], -1)
    assert result.argmax(axis=1).tolist() == [1, 1]
    np.testing.assert_allclose(result[:, 1], [-1, 1], atol=1e-6)


def test_zeros_are_similar_to_nothing():
    zeros = np.zeros((1, 2))
    bank = np.array([[1.0, 0], [-1, 0], [0, 1]])
    labels = [0, 0, 1]
    # The rows of class 0 cancel out.
    result = classifiers.prototype_predict(bank, bank, labels, num_classes=2)
    np.testing.assert_allclose(result, [[0, 0], [0, 0], [0, 1]], atol=1e-7)
    result = classifiers.knn_predict(zeros, bank, labels, num_classes=2)
    np.testing.assert_allclose(result, [[2 / 3, 1 / 3]], atol=1e-7)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"queries": np.ones((2, 4))}, "dimension of the bank, 7, got 4"),
        ({"bank_labels": np.zeros(60, int)}, r"shape \(61,\), .*got \(60,\)"),
        ({"bank_labels": np.full(61, 5)}, r"must lie in \[0, 5\), got 5"),
        ({"num_classes": 0}, "`num_classes` must be positive, got 0"),
        ({"temperature": -0.1}, "`temperature` must be positive, got -0.1"),
    ],
)
def test_errors_name_the_rule(changes, message):
    queries, bank, labels = _data()
    arguments = {
        "queries": queries,
        "bank": bank,
        "bank_labels": labels,
        "num_classes": NUM_CLASSES,
    } | changes
    with pytest.raises(ValueError, match=message):
        classifiers.knn_predict(**arguments)
