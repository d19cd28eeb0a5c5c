"""ProjectionQueue against NumPy, and SupConLoss with it against the loops."""

import numpy as np
import pytest
import tensorflow as tf

from supcon_tf import losses
from supcon_tf.keras_2 import keras
from supcon_tf.losses import streaming, strips
from tests import reference
from tests.losses import vectors


def unit(shape, seed=0):
    return vectors.unit(shape, seed, np.float32)


def filled_queue(size, rows, seed=5):
    """A queue of dim 4, the rows in it and their labels, 0 to 2."""
    queue = losses.ProjectionQueue(size, 4)
    z = unit([rows, 4], seed)
    labels = np.random.default_rng(seed).integers(0, 3, rows)
    if rows:
        queue.enqueue(z, labels)
    return queue, z, labels


def test_overwrites_the_oldest_rows_in_order():
    queue = losses.ProjectionQueue(12, 2)
    rng = np.random.default_rng(0)
    z, labels = rng.normal(size=[43, 2]), rng.integers(-5, 5, 43)
    enqueue = tf.function(
        queue.enqueue,
        input_signature=[
            tf.TensorSpec([None, 2], tf.float64),
            tf.TensorSpec([None], tf.int64),
        ],
    )
    expected = np.zeros([12, 2]), np.zeros(12)
    num_enqueued = position = 0
    # Wraps in the middle, twice; then more than there is room for.
    for rows in (4, 6, 4, 4, 5, 20):
        part = slice(num_enqueued, num_enqueued + rows)
        enqueue(z[part], labels[part])
        num_enqueued += rows
        for row in range(num_enqueued - min(rows, 12), num_enqueued):
            expected[0][position] = z[row]
            expected[1][position] = labels[row]
            position = (position + 1) % 12
        rows = *expected, np.arange(12) < num_enqueued
        vectors.assert_close(queue.rows(), rows, 1e-6)
        assert queue.position == position


@pytest.mark.slow(but=["0", "5"])
@pytest.mark.parametrize("rows", [0, 5, 16])
def test_filled_rows_are_contrasts(rows, monkeypatch):
    """In several tiles, strips and widths, too."""
    monkeypatch.setattr(streaming, "_TILE_ROWS", 4)
    monkeypatch.setattr(strips, "_STRIP", 3)
    monkeypatch.setattr(strips, "_WIDTHS", (3, 5, 9))
    z, labels = vectors.unit([3, 2, 4], seed=1), np.array([0, 1, 0])
    queue, queued_z, queued_labels = filled_queue(9, rows)
    queued = {"queue": queued_z[-9:], "queue_labels": queued_labels[-9:]}
    for options in (
        {},
        {"formulation": "in"},
        {"denominator": "one_positive", "positives_cap": 3},
        {"denominator": "only_negatives"},
    ):
        options |= {"temperature": 0.3}

        def compute_expected(z, o=options):
            return reference.supcon_loss(z, labels, **queued, **o)

        expected = (
            compute_expected(z),
            reference.finite_differences(
                lambda z, f=compute_expected: f(z).sum(), z
            ),
        )
        for implementation in ("dense", "tiled"):
            loss = losses.SupConLoss(
                queue=queue,
                normalize=False,
                reduction="none",
                implementation=implementation,
                **options,
            )
            results = vectors.value_and_gradient(
                lambda z, loss=loss: loss(labels, z), z
            )
            vectors.assert_close(results, expected, 1e-5, 5e-6)


@pytest.mark.parametrize("implementation", ["dense", "tiled"])
def test_compiles_by_xla(implementation):
    queue = losses.ProjectionQueue(8, 4)
    loss = losses.SupConLoss(queue=queue, implementation=implementation)

    @tf.function(jit_compile=True)
    def step(z, labels):
        value = loss(labels, z)
        queue.enqueue(tf.reshape(z, [-1, 4]), tf.repeat(labels, 2))
        return value

    labels = np.array([0, 1])
    for seed in range(3):
        queued_z, queued_labels, filled = (t.numpy() for t in queue.rows())
        z = unit([2, 2, 4], seed)
        expected = reference.supcon_loss(
            z,
            labels,
            temperature=0.1,
            queue=queued_z[filled],
            queue_labels=queued_labels[filled],
        )
        np.testing.assert_allclose(
            step(z, labels), expected.mean(), rtol=1e-5, atol=1e-7
        )
    assert queue.filled == 8 and queue.position == 4


def test_replicas_enqueue_the_rows_of_both(mirrored_strategy):
    """In their order, into a queue that each has whole."""
    with mirrored_strategy.scope():
        queue = losses.ProjectionQueue(10, 4)
    rows, labels = unit([8, 4]), np.arange(8) % 3

    def step(rows, labels):
        queue.enqueue(rows, labels)
        return queue.rows()

    projections, queued_labels, filled = vectors.on_two_replicas(
        mirrored_strategy, step, [slice(0, 4), slice(4, 8)], rows, labels
    )
    for replica in (slice(0, 8), slice(10, 18)):
        np.testing.assert_allclose(projections[replica], rows, atol=1e-6)
        np.testing.assert_array_equal(queued_labels[replica], labels)
    assert filled.sum() == 2 * 8


@pytest.mark.slow
def test_two_replicas_equal_one_device(mirrored_strategy):
    z, labels = unit([5, 2, 4], seed=6), np.array([0, 0, 1, 2, 0])
    parts = [slice(0, 3), slice(3, 5)]  # uneven
    single_queue = losses.ProjectionQueue(20, 4)
    with mirrored_strategy.scope():
        queue = losses.ProjectionQueue(20, 4)

    def step(queue, z, labels):
        loss = losses.SupConLoss(
            positives_cap=4,
            queue=queue,
            implementation="tiled",
            reduction="none",
        )
        results = vectors.value_and_gradient(lambda z: loss(labels, z), z)
        queue.enqueue(tf.reshape(z, [-1, 4]), tf.repeat(labels, 2))
        return results

    # The last two steps see what those before enqueued.
    for shift in range(3):
        rows = np.roll(z, shift, axis=0)
        results = vectors.on_two_replicas(
            mirrored_strategy,
            lambda *batch: step(queue, *batch),
            parts,
            *(rows, labels),
        )
        expected = step(single_queue, tf.constant(rows), tf.constant(labels))
        vectors.assert_close(results, expected, 1e-4, 1e-6)


def test_checkpoint_and_config(tmp_path):
    queue, _, _ = filled_queue(8, 4)
    path = tf.train.Checkpoint(queue=queue).write(str(tmp_path / "queue"))
    loss = losses.SupConLoss(queue=queue)
    rebuilt = keras.losses.deserialize(keras.losses.serialize(loss))
    assert rebuilt.get_config() == loss.get_config()
    assert rebuilt.queue.filled == 0  # a new queue, empty
    restored = tf.train.Checkpoint(queue=rebuilt.queue)
    restored.read(path).assert_consumed()
    vectors.assert_close(rebuilt.queue.variables, queue.variables, 0, 0)
    z, labels = unit([2, 2, 4]), np.array([0, 1])
    assert rebuilt(labels, z) == loss(labels, z)
    assert not queue.trainable_variables


def test_bad_input_is_named():
    for sizes, message in (
        ((0, 4), "`size` must be positive"),
        ((4, 0), "`dim` must be positive"),
    ):
        with pytest.raises(ValueError, match=message):
            losses.ProjectionQueue(*sizes)
    queue = losses.ProjectionQueue(8, 4)
    for shape, labels, message in (
        ([2, 2, 4], [0, 1], r"must have shape \[None, 4"),
        ([2, 4], [0], "`labels` must have shape"),
    ):
        with pytest.raises(ValueError, match=message):
            queue.enqueue(unit(shape), labels)
