"""k-NN and prototypes against loops, scikit-learn and hand-made cases."""

import numpy as np
import pytest
import tensorflow as tf
from sklearn import neighbors as sklearn_neighbors

from supcon_tf.measures import classifiers, neighbors

NUM_CLASSES = 5


def _data(num_queries=23, num_rows=61, dim=7):
    """Unnormalised queries and bank, and labels; no two similarities tie."""
    generator = np.random.default_rng(0)
    queries = 3 * generator.normal(size=(num_queries, dim))
    lengths = generator.uniform(0.1, 10, size=(num_rows, 1))
    bank = generator.normal(size=(num_rows, dim)) * lengths
    labels = generator.integers(NUM_CLASSES, size=num_rows)
    return queries.astype(np.float32), bank.astype(np.float32), labels


def _cosine(query, row):
    query, row = query.astype(np.float64), row.astype(np.float64)
    return float(query @ row / np.sqrt((query @ query) * (row @ row)))


def _knn_loop(
    queries, bank, labels, k, temperature, weighted, leave_one_out=False
):
    """The definition, one query and one neighbour at a time, in float64."""
    probabilities = []
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
        probabilities.append(np.array(votes) / sum(votes))
    return np.array(probabilities)


@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("k", [1, 4, 60, 200])
def test_knn_equals_the_loop(k, weighted):
    queries, bank, labels = _data()
    options = {"k": k, "temperature": 0.2, "weighted": weighted}
    votes = classifiers.knn_predict(
        queries, bank, labels, num_classes=NUM_CLASSES, **options
    )
    expected = _knn_loop(queries, bank, labels, **options)
    assert votes.shape == (23, NUM_CLASSES) and votes.dtype == np.float32
    np.testing.assert_allclose(votes, expected, atol=3e-6)
    np.testing.assert_allclose(votes.sum(axis=1), 1, atol=1e-6)
    options["leave_one_out"] = True
    votes = classifiers.knn_predict(
        bank, bank, labels, num_classes=NUM_CLASSES, query_chunk=9, **options
    )
    expected = _knn_loop(bank, bank, labels, **options)
    np.testing.assert_allclose(votes, expected, atol=3e-6)


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ([5000] * 10, 200),
        ([300, 0, 250], 200),  # of one there are none
        ([300, 15], 15),
        ([300, 100, 1], 5),  # one image does not decide for all classes
    ],
)
def test_k_follows_the_smallest_class(counts, expected):
    labels = np.repeat(np.arange(len(counts)), counts)
    assert classifiers.default_neighbors(labels) == expected
    several = np.eye(len(counts), dtype=np.uint8)[labels]
    assert classifiers.default_neighbors(several) == expected
    assert classifiers.default_neighbors(several[:0]) == 200


def test_majority_equals_scikit_learn():
    queries, bank, labels = _data(num_queries=200, num_rows=300)
    reference = sklearn_neighbors.KNeighborsClassifier(
        9, metric="cosine", algorithm="brute"
    ).fit(bank, labels)
    votes = classifiers.knn_predict(
        queries, bank, labels, num_classes=NUM_CLASSES, k=9, weighted=False
    )
    expected = reference.predict_proba(queries)
    np.testing.assert_allclose(votes, expected, atol=1e-7)
    # Both give equal votes to the lower class id.
    assert np.array_equal(votes.argmax(1), reference.predict(queries))


def test_equal_votes_are_exactly_equal():
    bank = np.array([[1, 0], [1, 0], [0, 1], [0, 1]], np.float32)
    votes = classifiers.knn_predict(
        [[1, 1]], bank, [2, 1, 1, 2], num_classes=4, k=4
    )
    np.testing.assert_array_equal(votes, [[0, 0.5, 0.5, 0]])


def test_small_temperature_stays_finite():
    cold, nearest = (
        classifiers.knn_predict(*_data(), num_classes=NUM_CLASSES, **options)
        for options in ({"temperature": 1e-3}, {"k": 1})
    )
    assert np.isfinite(cold).all()
    assert np.array_equal(cold.argmax(1), nearest.argmax(1))


@pytest.mark.parametrize(
    "predict", [classifiers.knn_predict, classifiers.prototype_predict]
)
def test_inputs_of_any_kind(predict):
    queries, bank, labels = _data()
    expected = predict(queries, bank, labels, num_classes=NUM_CLASSES)
    assert expected.dtype == np.float32
    for arrays in (
        (
            tf.constant(queries, tf.float64),
            tf.constant(bank),
            tf.constant(labels),
        ),
        [array.tolist() for array in (queries, bank, labels)],
        # Lengths carry no information: only the direction is compared.
        (1e-8 * queries, 50 * bank, labels),
    ):
        scores = predict(*arrays, num_classes=NUM_CLASSES)
        np.testing.assert_allclose(scores, expected, atol=1e-5)
    no_scores = predict(queries[:0], bank, labels, num_classes=NUM_CLASSES)
    assert no_scores.shape == (0, NUM_CLASSES)


def test_prototypes_equal_the_loop():
    queries, bank, labels = _data()
    similarities = classifiers.prototype_predict(
        queries, bank, labels, num_classes=NUM_CLASSES
    )
    for class_id in range(NUM_CLASSES):
        members = [
            row / np.linalg.norm(row)
            for row, label in zip(bank, labels, strict=True)
            if label == class_id
        ]
        mean = sum(members) / len(members)
        expected = [_cosine(query, mean) for query in queries]
        np.testing.assert_allclose(
            similarities[:, class_id], expected, atol=2e-6
        )


def test_class_without_examples_is_never_predicted():
    # The query is opposite to the only class that has examples.
    similarities = classifiers.prototype_predict(
        [[-2.0, 0], [1, 0]], [[1.0, 0], [3, 0]], [1, 1], num_classes=3
    )
    np.testing.assert_array_equal(similarities[:, [0, 2]], -1)
    assert similarities.argmax(axis=1).tolist() == [1, 1]
    np.testing.assert_allclose(similarities[:, 1], [-1, 1], atol=1e-6)


def test_zeros_are_similar_to_nothing():
    bank, labels = np.array([[1.0, 0], [-1, 0], [0, 1]]), [0, 0, 1]
    # The rows of class 0 cancel out.
    scores = classifiers.prototype_predict(bank, bank, labels, num_classes=2)
    np.testing.assert_allclose(scores, [[0, 0], [0, 0], [0, 1]], atol=1e-7)
    votes = classifiers.knn_predict([[0, 0]], bank, labels, num_classes=2)
    np.testing.assert_allclose(votes, [[2 / 3, 1 / 3]], atol=1e-7)


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
    names = "queries", "bank", "bank_labels"
    arguments = dict(zip(names, _data(), strict=True))
    arguments |= {"num_classes": NUM_CLASSES} | changes
    with pytest.raises(ValueError, match=message):
        classifiers.knn_predict(**arguments)


def test_votes_need_rows_and_labels_of_the_search():
    queries, bank, labels = _data()
    similarities, indices = neighbors.nearest_neighbors(queries, bank, 7)
    with pytest.raises(ValueError, match=r"that of `indices`, got \(23, 7\)"):
        classifiers.vote(similarities, indices[:5], labels, num_classes=5)
    with pytest.raises(ValueError, match=r"must lie in \[0, 2\)"):
        classifiers.vote(similarities, indices, labels, num_classes=2)
