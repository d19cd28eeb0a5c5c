"""Nearest neighbours against loops, over several tiles, ties included."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from supcon_tf.measures import neighbors


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch):
    """Banks of these tests are many tiles long, the last one shorter."""
    monkeypatch.setattr(neighbors, "_TILE", 16)


def _grid(rows: int, dim: int = 4, seed: int = 0) -> np.ndarray:
    """Signs: few similarities, all exact, so that most of them tie."""
    signs = np.random.default_rng(seed).choice([-1, 1], size=(rows, dim))
    return signs.astype(np.float32)


def _loop(queries, bank, k, leave_one_out=False):
    """The definition: a stable sort of every row."""
    found = []
    for i, query in enumerate(queries):
        ranked = sorted(
            (-float(query @ row) / queries.shape[1], j)
            for j, row in enumerate(bank)
            if not (leave_one_out and i == j)
        )
        found.append([(-negated, j) for negated, j in ranked[:k]])
    values, rows = np.moveaxis(np.array(found), 2, 0)
    return values, rows


@pytest.mark.parametrize("dim", [4, 16])
@pytest.mark.parametrize("k", [1, 3, 15, 16, 17, 40, 133, 500])
def test_ties_go_to_earlier_rows_across_tiles(k, dim):
    queries, bank = _grid(21, dim), _grid(133, dim, seed=1)
    similarities, indices = neighbors.nearest_neighbors(queries, bank, k)
    values, rows = _loop(queries, bank, k)
    assert similarities.dtype == np.float32 and indices.dtype == np.int32
    np.testing.assert_array_equal(indices, rows)
    np.testing.assert_allclose(similarities, values, atol=1e-6)


@pytest.mark.parametrize("query_chunk", [1, 7, 64, 512])
@pytest.mark.parametrize("k", [1, 5, 20, 69, 70])
def test_leave_one_out_across_tiles_and_chunks(k, query_chunk):
    bank = _grid(70)
    options = {"leave_one_out": True, "query_chunk": query_chunk}
    similarities, indices = neighbors.nearest_neighbors(
        bank, bank, k, **options
    )
    values, rows = _loop(bank, bank, k, leave_one_out=True)
    np.testing.assert_array_equal(indices, rows)
    np.testing.assert_allclose(similarities, values, atol=1e-6)


@pytest.mark.parametrize("order", [1, -1])
def test_sorted_banks_are_searched_exactly(order):
    # Rising similarity replaces all that was found, tile after tile; falling
    # similarity adds nothing after the first.
    angles = np.linspace(3, 0, 200)[::order]
    bank = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    _, indices = neighbors.nearest_neighbors([[2.0, 0.0]], bank, 30)
    expected = np.arange(200)[::-1] if order == 1 else np.arange(200)
    np.testing.assert_array_equal(indices[0], expected[:30])


def test_another_size_is_no_new_trace():
    def sweep():
        for k, rows in [(1, 61), (5, 40), (9, 13)]:
            neighbors.nearest_neighbors(_grid(9), _grid(rows), k)

    def count():
        functions = (neighbors._cosines, neighbors._top_k, neighbors._normalize)
        return [f.experimental_get_tracing_count() for f in functions]

    neighbors.nearest_neighbors(_grid(3), _grid(20), 2)
    before = count()
    sweep()
    assert count() == before


def test_inputs_are_left_as_they_are():
    queries, bank = tf.constant(_grid(5)), 3 * _grid(40)
    before = bank.copy()
    neighbors.nearest_neighbors(queries, bank, 4)
    neighbors.nearest_neighbors(bank, bank, 4, leave_one_out=True)
    np.testing.assert_array_equal(bank, before)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"k": 0}, "`k` must be positive, got 0"),
        ({"query_chunk": -1}, "`query_chunk` must be positive, got -1"),
        ({"queries": np.ones((2, 3))}, "dimension of the bank, 4, got 3"),
        ({"bank": np.full((40, 4), np.inf)}, "`bank` must be finite"),
        ({"bank": np.full((40, 4), 1e39)}, "`bank` must be finite"),
        ({"leave_one_out": True}, "got 5 queries and 40 rows"),
    ],
)
def test_errors_name_the_rule(changes, message):
    arguments = {"queries": _grid(5), "bank": _grid(40), "k": 3} | changes
    with pytest.raises(ValueError, match=message):
        neighbors.nearest_neighbors(**arguments)
