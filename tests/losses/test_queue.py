"""ProjectionQueue against NumPy, and SupConLoss with it against the loops."""

import functools

import numpy as np
import pytest
import tensorflow as tf

from supcon_tf import losses
from supcon_tf.keras_2 import keras
from supcon_tf.losses import streaming
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
        got_z, got_labels, filled = queue.rows()
        np.testing.assert_allclose(got_z, expected[0], rtol=1e-6)
        np.testing.assert_array_equal(got_labels, expected[1])
        np.testing.assert_array_equal(filled, np.arange(12) < num_enqueued)
        assert queue.position == position


@pytest.mark.parametrize("rows", [0, 8])
def test_filled_rows_are_contrasts(rows):
    z, labels = unit([5, 2, 4]), np.array([0, 1, 0, 2, 7])
    queue, queued, queued_labels = filled_queue(16, rows)
    for options in vectors.combinations(
        formulation=vectors.FORMULATIONS,
        denominator=vectors.DENOMINATORS,
        positives_cap=(None, 4),
        temperature=[0.2],
    ):
        loss = losses.SupConLoss(queue=queue, reduction="none", **options)
        np.testing.assert_allclose(
            loss(labels, z * 3),
            reference.supcon_loss(
                z, labels, queue=queued, queue_labels=queued_labels, **options
            ),
            rtol=1e-5,
            err_msg=str(options),
        )


def test_gradient_flows_to_the_batch_alone():
    z, labels = unit([3, 2, 4], seed=1).astype(np.float64), [0, 1, 0]
    queue, queued, queued_labels = filled_queue(8, 8)
    loss = losses.SupConLoss(
        temperature=0.3, queue=queue, normalize=False, reduction="sum"
    )
    with tf.GradientTape() as tape:
        tensor = tf.constant(z)
        tape.watch([tensor, queue.projections])
        value = loss(labels, tensor)
    gradient, into_queue = tape.gradient(value, [tensor, queue.projections])
    assert into_queue is None
    expected = reference.finite_differences(
        lambda z: reference.supcon_loss(
            z, labels, temperature=0.3, queue=queued, queue_labels=queued_labels
        ).sum(),
        z,
    )
    np.testing.assert_allclose(gradient, expected, atol=2e-6)


@pytest.mark.parametrize("implementation", ["dense", "tiled"])
def test_compiles_by_xla(implementation):
    queue = losses.ProjectionQueue(8, 4)
    loss = losses.SupConLoss(queue=queue, implementation=implementation)

    @tf.function(jit_compile=True)
    def step(z, labels):
        value = loss(labels, z)
        queue.enqueue(tf.reshape(z, [-1, 4]), tf.repeat(labels, 2))
        return value

    z, labels = unit([2, 2, 4]), np.array([0, 1])
    for seed in range(3):
        queued, queued_labels, filled = (t.numpy() for t in queue.rows())
        z = unit([2, 2, 4], seed)
        expected = reference.supcon_loss(
            z,
            labels,
            temperature=0.1,
            queue=queued[filled],
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
    rows, labels = unit([8, 4]).astype(np.float32), np.arange(8) % 3

    def step(rows, labels):
        queue.enqueue(rows, labels)
        return queue.rows()

    projections, stored, filled = vectors.on_two_replicas(
        mirrored_strategy, step, [slice(0, 4), slice(4, 8)], rows, labels
    )
    for part in np.split(projections, 2):
        np.testing.assert_allclose(part[:8], rows, atol=1e-6)
    for part in np.split(stored, 2):
        np.testing.assert_array_equal(part[:8], labels)
    assert filled.sum() == 2 * 8


@pytest.mark.slow
def test_two_replicas_equal_one_device(mirrored_strategy, monkeypatch):
    """By tiles of four anchors, the last of which is not full."""
    monkeypatch.setattr(streaming, "_TILE_ROWS", 4)
    strategy = mirrored_strategy
    z, labels = unit([5, 2, 4], seed=6), np.array([0, 0, 1, 2, 0])
    split = [slice(0, 3), slice(3, 5)]  # uneven
    single_queue = losses.ProjectionQueue(20, 4)
    with strategy.scope():
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

    for step_number in range(
        3
    ):  # the last two see what the ones before enqueued
        rows = np.roll(z, step_number, axis=0)
        expected = step(single_queue, tf.constant(rows), tf.constant(labels))
        results = vectors.on_two_replicas(
            strategy, functools.partial(step, queue), split, rows, labels
        )
        for parts, expected_tensor in zip(results, expected, strict=True):
            np.testing.assert_allclose(
                parts, expected_tensor, rtol=1e-4, atol=1e-6
            )
        for variable, mirrored in zip(
            single_queue.variables, queue.variables, strict=True
        ):
            copies = strategy.experimental_local_results(mirrored)
            assert len(copies) == 2
            for copy in copies:
                np.testing.assert_array_equal(copy, variable)


def test_checkpoint_and_config(tmp_path):
    queue, _, _ = filled_queue(8, 4)
    path = tf.train.Checkpoint(queue=queue).write(str(tmp_path / "queue"))
    loss = losses.SupConLoss(queue=queue)
    rebuilt = keras.losses.deserialize(keras.losses.serialize(loss))
    assert rebuilt.get_config() == loss.get_config()
    assert rebuilt.queue.filled == 0  # a new queue, empty
    restored = tf.train.Checkpoint(queue=rebuilt.queue)
    restored.read(path).assert_consumed()
    for variable, restored_variable in zip(
        queue.variables, rebuilt.queue.variables, strict=True
    ):
        np.testing.assert_array_equal(variable, restored_variable)
    z, labels = unit([2, 2, 4]), np.array([0, 1])
    assert rebuilt(labels, z) == loss(labels, z)
    assert not queue.trainable_variables


def test_bad_input_is_named():
    queue = losses.ProjectionQueue(8, 4)
    for call, arguments, message in (
        (losses.ProjectionQueue, (0, 4), "`size` must be positive"),
        (losses.ProjectionQueue, (4, 0), "`dim` must be positive"),
        (
            queue.enqueue,
            (unit([2, 2, 4]), [0, 1]),
            r"must have shape \[None, 4",
        ),
        (queue.enqueue, (unit([2, 4]), [0]), r"`labels` must have shape"),
    ):
        with pytest.raises(ValueError, match=message):
            call(*arguments)
