import functools

import numpy as np
import pytest
import tensorflow as tf

from supcon_tf.augment import randomness
from tests.augment import inputs

_ONES = 0xFFFFFFFF
_PUBLISHED_ANSWERS = (  # Random123, kat_vectors: counter, key, result
    ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
    ((_ONES, _ONES), (_ONES, _ONES), (0x1CB996FC, 0xBB002BE7)),
    (
        (0x243F6A88, 0x85A308D3),
        (0x13198A2E, 0x03707344),
        (0xC4923A9C, 0x483DF7A0),
    ),
)


_seeds = functools.partial(inputs.seeds, root=7)


@pytest.mark.parametrize("counter, key, expected", _PUBLISHED_ANSWERS)
def test_threefry_gives_the_published_answers(counter, key, expected):
    words = randomness.threefry(
        tuple(tf.constant(word, tf.uint32) for word in key),
        tuple(tf.constant(word, tf.uint32) for word in counter),
    )
    assert tuple(int(word) for word in words) == expected
    draw = randomness.uniform(tf.constant([[0, 0]]), 1)  # the first's 24 bits
    assert float(draw[0, 0]) == (0x6B200159 >> 8) / 2**24


def test_hashing_is_one_node_of_the_graph():
    """A pipeline hashes some ten times, which is 160 nodes each if unrolled."""

    @tf.function(autograph=False)
    def twice(words):
        first = randomness.threefry(words[:2], words[2:])
        return randomness.threefry(first, words[2:])

    column, row = [3, 1], [1, 5]
    words = [
        tf.TensorSpec(shape, tf.uint32) for shape in (column, column, row, row)
    ]
    traced = twice.get_concrete_function(words)
    nodes = [
        node for node in traced.graph.get_operations() if "Call" in node.type
    ]
    assert len(nodes) == 2
    assert len({node.get_attr("f").name for node in nodes}) == 1
    assert [output.shape for output in traced.outputs] == [[3, 5]] * 2


@pytest.mark.parametrize("axis", ["over_draws", "over_seeds", "raw_seeds"])
def test_uniform_is_uniform(axis):
    if axis == "over_draws":
        draws = randomness.uniform(tf.constant([[3, 5]]), 50000)
    elif axis == "over_seeds":
        draws = randomness.uniform(_seeds(50000), 1)
    else:  # consecutive integers as seeds, without hashing
        count = tf.range(50000)
        draws = randomness.uniform(tf.stack([count, 0 * count], axis=1), 1)
    assert sorted(draws.shape) == [1, 50000] and draws.dtype == tf.float32
    values = np.sort(draws.numpy().ravel())
    assert 0.0 <= values[0] and values[-1] < 1.0
    counts, _ = np.histogram(values, bins=100, range=(0.0, 1.0))
    chi_square = np.sum((counts - 500.0) ** 2 / 500.0)
    assert 58.0 < chi_square < 158.0  # 99 degrees of freedom, 4 sigma
    distance = np.abs(values - (np.arange(50000) + 0.5) / 50000).max()
    assert distance < 1.95 / np.sqrt(50000)  # Kolmogorov-Smirnov, p = 0.001


def test_draws_and_seeds_are_independent():
    draws = randomness.uniform(_seeds(20000), 8).numpy()
    bound = 4.5 / np.sqrt(20000)
    between_draws = np.corrcoef(draws.T) - np.eye(8)
    assert np.abs(between_draws).max() < bound
    between_seeds = np.corrcoef(draws[:-1, 0], draws[1:, 0])[0, 1]
    assert abs(between_seeds) < bound


def test_streams_are_independent():
    seeds = _seeds(20000)
    streams = [  # the draws of each, 5 of the longest
        randomness.uniform(seeds, 5, stream) for stream in randomness.Stream
    ]
    between = np.corrcoef(tf.transpose(tf.concat(streams, axis=1)))
    between -= np.eye(len(between))
    assert np.abs(between).max() < 4.5 / np.sqrt(20000)


@pytest.mark.parametrize("draw", [randomness.uniform, randomness.normal])
def test_draws_do_not_depend_on_batch_or_count(draw):
    seeds = _seeds(37)
    together = inputs.assert_same_everywhere(lambda s: draw(s, 5), seeds)
    np.testing.assert_array_equal(together[:, :3], draw(seeds, 3).numpy())
    np.testing.assert_array_equal(together[::-1], draw(seeds[::-1], 5).numpy())


def test_normal_moments_and_shape():
    draws = randomness.normal(_seeds(20000), 4)
    assert draws.shape == (20000, 4) and draws.dtype == tf.float32
    values = draws.numpy()
    assert np.isfinite(values).all()
    assert abs(values.mean()) < 4.5 / np.sqrt(values.size)
    assert abs(values.var() - 1.0) < 4.5 * np.sqrt(2.0 / values.size)
    assert abs(np.mean(values**4) - 3.0) < 0.2
    assert abs(np.mean(np.abs(values) < 1.0) - 0.6827) < 0.01
    assert np.abs(np.corrcoef(values.T) - np.eye(4)).max() < 0.035


def test_fold_in_shapes_and_broadcast():
    pair = tf.constant([1, 2])
    assert randomness.fold_in(pair, 3).shape == (2,)
    batch = randomness.fold_in(pair, tf.range(5))
    assert batch.shape == (5, 2) and batch.dtype == tf.int32
    single_seeds = [randomness.fold_in(pair, i).numpy() for i in range(5)]
    np.testing.assert_array_equal(batch, single_seeds)
    pairwise = randomness.fold_in(batch, tf.range(5))
    single_seeds = [randomness.fold_in(batch[i], i).numpy() for i in range(5)]
    np.testing.assert_array_equal(pairwise, single_seeds)
    common = randomness.fold_in(batch, 9)
    single_seeds = [randomness.fold_in(batch[i], 9).numpy() for i in range(5)]
    np.testing.assert_array_equal(common, single_seeds)


def test_fold_in_separates_epoch_position_view():
    root = tf.constant([0, 0])
    seeds = [
        tuple(
            randomness.fold_in(
                randomness.fold_in(randomness.fold_in(root, epoch), position),
                view,
            ).numpy()
        )
        for epoch in range(4)
        for position in range(8)
        for view in range(2)
    ]
    assert len(set(seeds)) == len(seeds)


def test_fold_in_takes_any_integers():
    pair = tf.constant([1, 2])
    expected = randomness.fold_in(pair, tf.constant(5)).numpy()
    for dtype in (tf.int64, tf.uint32, tf.uint8):
        folded = randomness.fold_in(pair, tf.constant(5, dtype))
        np.testing.assert_array_equal(folded, expected)
    negative = randomness.fold_in(pair, -1).numpy()
    assert not np.array_equal(negative, expected)
    wrapped = randomness.fold_in(pair, tf.constant(2**32 + 5, tf.int64))
    np.testing.assert_array_equal(wrapped, expected)


def test_errors():
    for function, shape, dtype, data, message in (
        (randomness.uniform, [4, 3], tf.int32, 1, r"\[batch, 2\] .* \(4, 3\)"),
        (randomness.normal, [4, 2], tf.int64, 1, "`seeds` must be .* int64"),
        (randomness.fold_in, [3], tf.int32, 1, r"`seeds` must be \[\.\.\., 2"),
        (randomness.fold_in, [2], tf.int32, 1.0, "be integers, got float32"),
    ):
        with pytest.raises(ValueError, match=message):
            function(tf.zeros(shape, dtype), data)
