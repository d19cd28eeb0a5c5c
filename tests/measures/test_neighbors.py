"""Nearest neighbours against loops, over several tiles, ties included."""

import itertools
import math

import numpy as np
import pytest

from supcon_tf.measures import neighbors


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch):
    """Banks of these tests are many tiles long, the last one shorter."""
    monkeypatch.setattr(neighbors, "_TILE", 16)


def _signs(rows, dim=4, seed=0):
    """Few similarities, so that most of them tie."""
    signs = np.random.default_rng(seed).choice([-1, 1], size=(rows, dim))
    return signs.astype(np.float32)


def _repeated(rows, dim=7, different=20):
    """Random rows, each several times."""
    generator = np.random.default_rng(2)
    distinct_rows = generator.normal(size=(different, dim)).astype(np.float32)
    return distinct_rows[generator.integers(different, size=rows)]


def _ranking(queries, bank, leave_one_out=False):
    """The definition: a stable sort of every row, by sums without rounding."""
    queries, bank = (
        rows / np.linalg.norm(rows.astype(np.float64), axis=1, keepdims=True)
        for rows in (queries, bank)
    )
    rankings = [
        sorted(
            (-math.fsum(query * row), position)
            for position, row in enumerate(bank)
            if not (leave_one_out and i == position)
        )
        for i, query in enumerate(queries)
    ]
    negated, rows = np.moveaxis(np.array(rankings), 2, 0)
    return -negated, rows


def _assert_is_the_ranking(
    queries, bank, ks, leave_one_out=False, query_chunks=(512,)
):
    cosines, rows = _ranking(queries, bank, leave_one_out)
    for k, query_chunk in itertools.product(ks, query_chunks):
        similarities, indices = neighbors.nearest_neighbors(
            queries,
            bank,
            k,
            leave_one_out=leave_one_out,
            query_chunk=query_chunk,
        )
        assert similarities.dtype == np.float32 and indices.dtype == np.int32
        np.testing.assert_array_equal(indices, rows[:, :k])
        np.testing.assert_allclose(similarities, cosines[:, :k], atol=2e-6)
        assert (np.diff(similarities, axis=1) <= 0).all()


@pytest.mark.usefixtures("kernel")
def test_ties_go_to_earlier_rows_across_tiles():
    ks = (1, 3, 16, 17, 40, 133, 500)
    for dim in (4, 7, 16):
        bank = _signs(133, dim, seed=1)
        _assert_is_the_ranking(_signs(21, dim), bank, ks)
    queries = np.random.default_rng(3).normal(size=(9, 7)).astype(np.float32)
    for different in (1, 20, 100):
        bank = _repeated(133, different=different)
        _assert_is_the_ranking(np.concatenate([bank[:5], queries]), bank, ks)


@pytest.mark.usefixtures("kernel")
def test_leave_one_out_across_tiles_and_chunks():
    for make in (_signs, _repeated):
        bank = make(70)
        copy = bank.copy()
        _assert_is_the_ranking(bank, bank, (1, 20, 70), True, (7, 512))
        np.testing.assert_array_equal(bank, copy)


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("spread", [1e-3, 4e-3])
def test_tiles_and_chunks_do_not_change_the_rows(monkeypatch, spread):
    # So close that float32 tells none of them, or not all, apart.
    bank = 1 + spread * np.random.default_rng(0).normal(size=(90, 24))
    _, expected = neighbors.nearest_neighbors(bank, bank, 12)
    for tile, query_chunk in ((5, 13), (31, 90), (512, 13)):
        monkeypatch.setattr(neighbors, "_TILE", tile)
        _, indices = neighbors.nearest_neighbors(
            bank, bank, 12, query_chunk=query_chunk
        )
        np.testing.assert_array_equal(indices, expected)


def test_exact_sums_have_no_order():
    generator = np.random.default_rng(0)
    magnitudes = 10.0 ** generator.integers(-9, 9, size=(50, 1))
    rows = generator.normal(size=(50, 37)) * magnitudes
    rows = rows.astype(np.float32)
    shuffled = rows[:, generator.permutation(37)]
    (rows, lengths), (shuffled, shuffled_lengths) = map(
        neighbors._to_integers, (rows, shuffled)
    )
    np.testing.assert_array_equal(lengths, shuffled_lengths)
    np.testing.assert_array_equal(rows @ rows.T, shuffled @ shuffled.T)


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("exponent", [-140, -45, 62, 120])
def test_lengths_do_not_count(exponent):
    # float32 holds these rows, and not the sums of their squares.
    generator = np.random.default_rng(0)
    bank, queries = generator.integers(-9, 10, (2, 90, 24)).astype(np.float32)
    bank[5] = 0
    usual = bank.copy()
    bank[::3] = np.ldexp(bank[::3], exponent)
    queries = np.ldexp(queries, -exponent // 2)
    for count in (3, 40):
        similarities, indices = neighbors.nearest_neighbors(
            queries[:count], bank, 12
        )
        expected = neighbors.nearest_neighbors(queries[:count], usual, 12)
        np.testing.assert_allclose(similarities, expected[0], atol=4e-6)
        np.testing.assert_array_equal(indices, expected[1])
    unit_lengths = np.linalg.norm(neighbors.unit_rows("bank", bank), axis=1)
    np.testing.assert_allclose(unit_lengths, np.arange(90) != 5, atol=1e-6)


@pytest.mark.parametrize("dtype", [np.float64, np.float16, np.int8])
def test_an_answer_does_not_depend_on_the_other_queries(dtype):
    bank, queries = _signs(90).astype(dtype), _signs(40)
    bank[::7] = 0
    similarities, indices = neighbors.nearest_neighbors(queries, bank, 12)
    for count in (1, 16, 17):
        first, rows = neighbors.nearest_neighbors(queries[:count], bank, 12)
        np.testing.assert_array_equal(rows, indices[:count])
        np.testing.assert_allclose(first, similarities[:count], atol=4e-6)


@pytest.mark.parametrize("order", [1, -1])
def test_sorted_banks_are_searched_exactly(order):
    # Rising similarity replaces all earlier candidates, tile after tile;
    # falling similarity adds none after the first tile.
    angles = np.linspace(3, 0, 200)[::order]
    bank = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    _, indices = neighbors.nearest_neighbors([[2.0, 0.0]], bank, 30)
    expected = np.arange(200)[::-1] if order == 1 else np.arange(200)
    np.testing.assert_array_equal(indices[0], expected[:30])


def test_another_size_is_no_new_trace():
    count_traces = neighbors._normalize.experimental_get_tracing_count
    neighbors.nearest_neighbors(_signs(30), _signs(20), 2)
    traces = count_traces()
    for k, rows in ((1, 61), (9, 13)):
        neighbors.nearest_neighbors(_signs(20), _signs(rows), k)
    assert count_traces() == traces


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"k": 0}, "`k` must be positive, got 0"),
        ({"k": 1.5}, "`k` must be an integer, got 1.5"),
        ({"k": True}, "`k` must be an integer, got True"),
        ({"query_chunk": -1}, "`query_chunk` must be positive, got -1"),
        ({"queries": np.ones(3)}, r"`queries` must have shape \[rows, dim\]"),
        ({"queries": np.ones((2, 3))}, "dimension of the bank, 4, got 3"),
        ({"bank": np.ones((0, 4))}, "`bank` must hold at least 1"),
        ({"bank": np.full((40, 4), np.nan)}, "`bank` must be finite"),
        ({"bank": np.full((40, 4), 1e39)}, "`bank` must be finite"),
        ({"leave_one_out": True}, "got 5 queries and 40 rows"),
    ],
)
def test_errors_name_the_rule(changes, message):
    arguments = {"queries": _signs(5), "bank": _signs(40), "k": 3} | changes
    with pytest.raises(ValueError, match=message):
        neighbors.nearest_neighbors(**arguments)


def test_among_all_rows_are_the_nearest_of_all():
    queries, bank = _signs(9, seed=1), _repeated(40, dim=4)
    generator = np.random.default_rng(0)
    candidates = np.stack([generator.permutation(41) - 1 for _ in queries])
    similarities, indices = neighbors.nearest_among(
        queries, bank, candidates, k=5
    )
    cosines, rows = _ranking(queries, bank)
    np.testing.assert_array_equal(indices, rows[:, :5])
    np.testing.assert_allclose(similarities, cosines[:, :5], atol=2e-6)
    few = candidates[:, :6]  # -1 may be among them
    _, indices = neighbors.nearest_among(queries, bank, few, k=3)
    for ranking, chosen, nearest in zip(rows, few, indices, strict=True):
        assert [*nearest] == [row for row in ranking if row in chosen][:3]
    for wrong, message in (
        ([[0, 1]], r"must have shape \[9, candidates\]"),
        (np.full([9, 3], -1), "must have 1 rows of each query, got 0"),
    ):
        with pytest.raises(ValueError, match=message):
            neighbors.nearest_among(queries, bank, wrong, k=1)
    with pytest.raises(ValueError, match="`bank` must be finite"):
        neighbors.nearest_among(queries, bank * np.nan, candidates, k=1)
