"""Alignment and uniformity against pairs, closed forms and `losses`."""

from __future__ import annotations

import math

import numpy as np
import pytest

from supcon_tf import losses
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
        others = [j for j in range(len(rows)) if j != i]
        potentials += [math.exp(-2 * squares[i, j]) for j in others]
        alike = [squares[i, j] for j in others if labels[j] == labels[i]]
        if alike:
            means.append(np.mean(alike))
    assert hypersphere.alignment(rows, labels) == pytest.approx(
        np.mean(means), rel=1e-6
    )
    assert hypersphere.uniformity(rows) == pytest.approx(
        np.log(np.mean(potentials)), rel=1e-6
    )


def test_a_batch_of_the_whole_split_gives_what_training_shows():
    rows, labels = _data()
    rows = rows.astype(np.float32)
    shown = losses.Alignment()
    shown.update_state(labels, rows)
    assert hypersphere.alignment(rows, labels) == pytest.approx(
        float(shown.result()), rel=1e-5
    )
    shown = losses.Uniformity(anchors=len(rows))
    shown.update_state(labels, rows)
    assert hypersphere.uniformity(rows) == pytest.approx(
        float(shown.result()), rel=1e-5
    )


def test_closed_forms():
    # Two opposite points: a squared distance of 4.
    opposite = np.array([[1.0, 0], [-3.0, 0]])
    assert hypersphere.alignment(opposite, [5, 5]) == pytest.approx(4)
    assert hypersphere.uniformity(opposite) == pytest.approx(-8)
    # Orthogonal axes: 2. Collapse: 0.
    assert hypersphere.alignment(np.eye(7), np.zeros(7, int)) == pytest.approx(
        2
    )
    assert hypersphere.uniformity(np.eye(40)) == pytest.approx(-4)
    same = np.tile([0.6, 0.8], (30, 1))
    assert hypersphere.alignment(same, np.zeros(30, int)) == pytest.approx(0)
    assert hypersphere.uniformity(same) == pytest.approx(0, abs=1e-6)


def test_tight_classes_keep_their_digits():
    generator = np.random.default_rng(1)
    rows = np.array([1.0, 0, 0]) + 1e-4 * generator.normal(size=(50, 3))
    squares = _squared_distances(rows)
    expected = squares.sum() / (50 * 49)
    assert hypersphere.alignment(rows, np.zeros(50, int)) == pytest.approx(
        expected, rel=1e-3
    )


def test_errors_name_the_rule():
    with pytest.raises(ValueError, match="`labels` must hold a class twice"):
        hypersphere.alignment(np.eye(3), [0, 1, 2])
    with pytest.raises(ValueError, match=r"`labels` must have shape \(3,\)"):
        hypersphere.alignment(np.eye(3), [0, 1])
    with pytest.raises(ValueError, match="must hold 2 examples or more, got 1"):
        hypersphere.uniformity(np.ones((1, 3)))
    with pytest.raises(ValueError, match="`representations` must be finite"):
        hypersphere.uniformity(np.full((2, 3), np.inf))
