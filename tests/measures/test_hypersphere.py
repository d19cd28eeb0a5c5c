"""Alignment and uniformity against pairs and closed forms."""

import math

import numpy as np
import pytest

from supcon_tf.measures import hypersphere


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Several blocks of pairs, the last one smaller."""
    monkeypatch.setattr(hypersphere, "_BLOCK", 16)


def _data(examples=43, dim=5):
    generator = np.random.default_rng(0)
    labels = generator.integers(4, size=examples)
    labels[3] = 8  # Alone in its class.
    return generator.normal(size=(examples, dim)), labels


def _squared_distances(rows):
    z = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return np.sum((z[:, None] - z[None]) ** 2, axis=2)


def test_both_equal_all_pairs():
    rows, labels = _data()
    squares = _squared_distances(rows)
    means, potentials = [], []
    for i in range(len(rows)):
        partners = [j for j in range(len(rows)) if j != i]
        potentials += [math.exp(-2 * squares[i, j]) for j in partners]
        positive_squares = [
            squares[i, j] for j in partners if labels[j] == labels[i]
        ]
        if positive_squares:
            means.append(np.mean(positive_squares))
    assert hypersphere.alignment(rows, labels) == pytest.approx(
        np.mean(means), rel=1e-6
    )
    assert hypersphere.uniformity(rows) == pytest.approx(
        np.log(np.mean(potentials)), rel=1e-6
    )


def test_closed_forms():
    opposite = np.array([[1.0, 0], [-3.0, 0]])  # a squared distance of 4
    equal_rows = np.tile([0.6, 0.8], (30, 1))
    for rows, square in ((opposite, 4), (np.eye(40), 2), (equal_rows, 0)):
        labels = np.full(len(rows), 5)
        expected = pytest.approx(square, abs=1e-6)
        assert hypersphere.alignment(rows, labels) == expected
        expected = pytest.approx(-2 * square, abs=1e-6)
        assert hypersphere.uniformity(rows) == expected


def test_tight_classes_keep_their_digits():
    generator = np.random.default_rng(1)
    rows = np.array([1.0, 0, 0]) + 1e-4 * generator.normal(size=(50, 3))
    squares = _squared_distances(rows)
    expected = squares.sum() / (50 * 49)
    assert hypersphere.alignment(rows, np.zeros(50, int)) == pytest.approx(
        expected, rel=1e-3
    )


def test_errors_name_the_rule():
    alignment, uniformity = hypersphere.alignment, hypersphere.uniformity
    for measure, arguments, message in (
        (alignment, (np.eye(3), [0, 1, 2]), "`labels` must hold a class twice"),
        (alignment, (np.eye(3), [0, 1]), r"`labels` must have shape \(3,\)"),
        (uniformity, (np.ones((1, 3)),), "must hold 2 examples or more, got 1"),
        (uniformity, (np.full((2, 3), np.inf),), "`repr.* must be finite"),
    ):
        with pytest.raises(ValueError, match=message):
            measure(*arguments)
