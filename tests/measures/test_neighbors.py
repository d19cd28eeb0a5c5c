"""Nearest neighbours against loops, over several tiles, ties included."""

import math

import numpy as np
import pytest

from supcon_tf.measures import neighbors


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch):
    """Banks of these tests are many tiles long, the last one shorter."""
    monkeypatch.setattr(neighbors, "_TILE", 16)


def _grid(rows: int, dim: int = 4, seed: int = 0) -> np.ndarray:
    """Signs: few similarities, so that most of them tie."""
    signs = np.random.default_rng(seed).choice([-1, 1], size=(rows, dim))
    return signs.astype(np.float32)


def _repeated(rows: int, dim: int = 7, different: int = 20) -> np.ndarray:
    """Random rows, each several times."""
    generator = np.random.default_rng(2)
    distinct_rows = generator.normal(size=(different, dim)).astype(np.float32)
    return distinct_rows[generator.integers(different, size=rows)]


def _loop(queries, bank, k, leave_one_out=False):
    """The definition: a stable sort of every row, by sums without rounding."""
    queries, bank = (
        rows / np.linalg.norm(rows.astype(np.float64), axis=1, keepdims=True)
        for rows in (queries, bank)
    )
    results = []
    for i, query in enumerate(queries):
        ranked = sorted(
            (-math.fsum(query * row), j)
            for j, row in enumerate(bank)
            if not (leave_one_out and i == j)
        )
        results.append([(-negated, j) for negated, j in ranked[:k]])
    values, rows = np.moveaxis(np.array(results), 2, 0)
    return values, rows


def _assert_is_the_loop(queries, bank, k, leave_one_out=False, **options):
    similarities, indices = neighbors.nearest_neighbors(
        queries, bank, k, leave_one_out=leave_one_out, **options
    )
    values, rows = _loop(queries, bank, k, leave_one_out)
    assert similarities.dtype == np.float32 and indices.dtype == np.int32
    np.testing.assert_array_equal(indices, rows)
    np.testing.assert_allclose(similarities, values, atol=2e-6)
    assert (np.diff(similarities, axis=1) <= 0).all()


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("dim", [4, 7, 16])
@pytest.mark.parametrize("k", [1, 3, 15, 16, 17, 40, 133, 500])
def test_ties_go_to_earlier_rows_across_tiles(k, dim):
    _assert_is_the_loop(_grid(21, dim), _grid(133, dim, seed=1), k)


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("k", [1, 2, 5, 9, 60, 133])
@pytest.mark.parametrize("different", [1, 20, 100])
def test_equal_rows_are_in_index_order(k, different):
    bank = _repeated(133, different=different)
    queries = np.random.default_rng(3).normal(size=(9, 7)).astype(np.float32)
    _assert_is_the_loop(np.concatenate([bank[:5], queries]), bank, k)


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("query_chunk", [1, 7, 512])
@pytest.mark.parametrize("k", [1, 20, 70])
@pytest.mark.parametrize("make", [_grid, _repeated])
def test_leave_one_out_across_tiles_and_chunks(make, k, query_chunk):
    bank = make(70)
    copy = bank.copy()
    _assert_is_the_loop(bank, bank, k, True, query_chunk=query_chunk)
    np.testing.assert_array_equal(bank, copy)


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("spread", [1e-3, 4e-3])
@pytest.mark.parametrize("tile", [5, 31, 512])
def test_tiles_and_chunks_do_not_change_the_rows(monkeypatch, tile, spread):
    # So close that float32 tells none of them, or not all, apart.
    bank = 1 + spread * np.random.default_rng(0).normal(size=(90, 24))
    _, expected = neighbors.nearest_neighbors(bank, bank, 12)
    monkeypatch.setattr(neighbors, "_TILE", tile)
    for query_chunk in (13, 90):
        _, indices = neighbors.nearest_neighbors(
            bank, bank, 12, query_chunk=query_chunk
        )
        np.testing.assert_array_equal(indices, expected)


def test_exact_sums_have_no_order():
    generator = np.random.default_rng(0)
    rows = generator.normal(size=(50, 37)) * 10.0 ** generator.integers(
        -9, 9, size=(50, 1)
    )
    rows = rows.astype(np.float32)
    shuffled = rows[:, generator.permutation(37)]
    rows, lengths = neighbors._to_integers(rows)
    shuffled_rows, lengths_again = neighbors._to_integers(shuffled)
    np.testing.assert_array_equal(lengths, lengths_again)
    np.testing.assert_array_equal(
        rows @ rows.T, shuffled_rows @ shuffled_rows.T
    )


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("count", [3, 40])
@pytest.mark.parametrize("exponent", [-140, -70, -45, 62, 64, 100, 120])
def test_lengths_do_not_count(exponent, count):
    # float32 holds these rows, and not the sums of their squares.
    generator = np.random.default_rng(0)
    bank, queries = generator.integers(-9, 10, (2, 90, 24)).astype(np.float32)
    bank[5] = 0
    usual = bank.copy()
    bank[::3] = np.ldexp(bank[::3], exponent)
    queries = np.ldexp(queries[:count], -exponent // 2)
    similarities, indices = neighbors.nearest_neighbors(queries, bank, 12)
    expected = neighbors.nearest_neighbors(queries, usual, 12)
    np.testing.assert_allclose(similarities, expected[0], atol=4e-6)
    np.testing.assert_array_equal(indices, expected[1])
    unit = np.linalg.norm(neighbors.unit_rows("bank", bank), axis=1)
    np.testing.assert_allclose(unit, np.arange(90) != 5, atol=1e-6)


@pytest.mark.parametrize("dtype", [np.float64, np.float16, np.int8])
@pytest.mark.parametrize("make", [_grid, _repeated])
def test_an_answer_does_not_depend_on_the_other_queries(make, dtype):
    bank, queries = make(90).astype(dtype), make(40)
    bank[::7] = 0
    similarities, indices = neighbors.nearest_neighbors(queries, bank, 12)
    for count in (1, 16, 17):  # NumPy multiplies up to 16, TensorFlow more
        some, rows = neighbors.nearest_neighbors(queries[:count], bank, 12)
        np.testing.assert_array_equal(rows, indices[:count])
        np.testing.assert_allclose(some, similarities[:count], atol=4e-6)


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
            neighbors.nearest_neighbors(_grid(20), _grid(rows), k)

    def count():
        functions = (neighbors._cosines_of_many, neighbors._normalize)
        return [
            function.experimental_get_tracing_count() for function in functions
        ]

    neighbors.nearest_neighbors(_grid(30), _grid(20), 2)
    traces = count()
    sweep()
    assert count() == traces


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"k": 0}, "`k` must be positive, got 0"),
        ({"k": 1.5}, "`k` must be an integer, got 1.5"),
        ({"k": "5"}, "`k` must be an integer, got '5'"),
        ({"k": True}, "`k` must be an integer, got True"),
        ({"query_chunk": -1}, "`query_chunk` must be positive, got -1"),
        ({"queries": np.ones(3)}, r"`queries` must have shape \[rows, dim\]"),
        ({"queries": np.ones((2, 3))}, "dimension of the bank, 4, got 3"),
        ({"bank": np.ones((0, 4))}, "`bank` must hold at least 1"),
        ({"bank": np.full((40, 4), np.inf)}, "`bank` must be finite"),
        ({"bank": np.full((40, 4), np.nan)}, "`bank` must be finite"),
        ({"bank": np.full((40, 4), 1e39)}, "`bank` must be finite"),
        ({"leave_one_out": True}, "got 5 queries and 40 rows"),
        (
            {"queries": _grid(1), "bank": _grid(1), "leave_one_out": True},
            "of 2 rows or more",
        ),
    ],
)
def test_errors_name_the_rule(changes, message):
    arguments = {"queries": _grid(5), "bank": _grid(40), "k": 3} | changes
    with pytest.raises(ValueError, match=message):
        neighbors.nearest_neighbors(**arguments)


def test_among_all_rows_are_the_nearest_of_all():
    queries, bank = _grid(9, seed=1), _repeated(40, dim=4)
    rng = np.random.default_rng(0)
    candidates = np.stack([rng.permutation(41) - 1 for _ in queries])
    similarities, indices = neighbors.nearest_among(
        queries, bank, candidates, k=5
    )
    values, rows = _loop(queries, bank, 5)
    np.testing.assert_array_equal(indices, rows)
    np.testing.assert_allclose(similarities, values, atol=2e-6)
    some = np.argsort(rng.random([9, 40]), axis=1)[:, :6]
    for query, chosen in enumerate(some):
        _, among = neighbors.nearest_among(
            queries[[query]], bank, chosen[None], k=3
        )
        _, expected = _loop(queries[[query]], bank[np.sort(chosen)], 3)
        np.testing.assert_array_equal(
            among[0], np.sort(chosen)[expected[0].astype(int)]
        )
    for wrong, message in (
        ([[0, 1]], r"must have shape \[9, candidates\]"),
        (np.full([9, 3], -1), "must have 1 rows of each query, got 0"),
    ):
        with pytest.raises(ValueError, match=message):
            neighbors.nearest_among(queries, bank, wrong, k=1)
    with pytest.raises(ValueError, match="`bank` must be finite"):
        neighbors.nearest_among(queries, bank * np.nan, candidates, k=1)
