"""forward_in_chunks: one pass in the memory of a chunk, gradients exact."""

import numpy as np
import pytest
import tensorflow as tf

from supcon_tf.keras_2 import keras
from supcon_tf.models import gradient_cache
from tests import forks

ROWS = np.random.default_rng(0).normal(size=(8, 3)).astype(np.float32)


def _model(trains_norm=False):
    """Two layers around a BN, and a dense layer that nothing uses."""
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [
            keras.layers.Dense(5),
            keras.layers.BatchNormalization(trainable=trains_norm),
            keras.layers.Dense(4, activation="tanh"),
        ]
    )
    model.build((None, 3))
    model.unused = keras.layers.Dense(2)
    model.unused.build((None, 3))
    return model


def _step(model, chunks, **options):
    """Loss that couples all rows, two outputs, and all gradients."""

    def forward(rows):
        outputs = model(rows, training=True)
        return [outputs, tf.stop_gradient(outputs[:, :2]) ** 2]

    @tf.function(**options)
    def step(rows):
        with tf.GradientTape() as tape:
            if chunks == 1:
                outputs, squares = forward(rows)
            else:
                outputs, squares = gradient_cache.forward_in_chunks(
                    forward, rows, chunks, [(4,), (2,)], model
                )
                assert outputs.shape == (rows.shape[0], 4)
            similarity = tf.matmul(outputs, outputs, transpose_b=True)
            loss = tf.reduce_logsumexp(similarity) * tf.reduce_sum(squares)
        weights = model.trainable_variables
        return (
            outputs,
            loss,
            tape.gradient(loss, weights, unconnected_gradients="zero"),
        )

    return step


@pytest.mark.parametrize(
    ("chunks", "options"),
    [
        (4, {}),
        (2, {"jit_compile": True}),
        (4, {"input_signature": [tf.TensorSpec([None, 3])]}),
        (2, None),
    ],
    ids=["static", "jit", "dynamic", "eager"],
)
def test_gradients_are_those_of_one_pass(chunks, options):
    model = _model()
    expected = _step(model, 1).python_function(ROWS)
    step = _step(model, chunks, **options or {})
    if options is None:
        step = step.python_function
    outputs = tf.nest.flatten(step(ROWS))
    for tensor, reference in zip(
        outputs, tf.nest.flatten(expected), strict=True
    ):
        np.testing.assert_allclose(tensor, reference, atol=1e-5, rtol=1e-5)


def test_moving_averages_move_once_per_chunk_in_order():
    model, reference = _model(True), _model(True)
    _step(model, 4)(ROWS)
    for start in range(0, 8, 2):
        reference(ROWS[start : start + 2], training=True)
    expected = reference.layers[1]
    assert np.abs(expected.moving_mean).max() > 1e-3
    pairs = zip(model.layers[1].weights, expected.weights, strict=True)
    for weight, expected_weight in pairs:
        np.testing.assert_allclose(weight, expected_weight, atol=1e-6)


def test_chunks_divide_the_batch():
    message = "must divide the batch of a replica, got 3 and 8"
    with pytest.raises(ValueError, match=message):
        _step(_model(), 3)(ROWS)
    signature = [tf.TensorSpec([None, 3])]
    dynamic = _step(_model(), 3, input_signature=signature)
    with pytest.raises(tf.errors.InvalidArgumentError, match="multiple of"):
        dynamic(ROWS)


_PEAKS = """
import re
import tensorflow as tf
from supcon_tf.keras_2 import keras
from supcon_tf.models import gradient_cache

model = keras.Sequential(
    [keras.layers.Conv2D(16, 3, activation="relu") for _ in range(3)]
    + [keras.layers.GlobalAveragePooling2D()]
)
model.build((None, 32, 32, 3))

@tf.function
def gradients(images, chunks):
    with tf.GradientTape() as tape:
        (outputs,) = gradient_cache.forward_in_chunks(
            lambda chunk: [model(chunk)], images, chunks, [(16,)], model
        )
        loss = tf.reduce_logsumexp(
            tf.matmul(outputs, outputs, transpose_b=True)
        )
    return tape.gradient(loss, model.trainable_variables)

def peak():  # MiB
    status = open("/proc/self/status").read()
    return int(re.search(r"VmHWM:\\s+(\\d+)", status)[1]) / 1024

small, large = tf.zeros((32, 32, 32, 3)), tf.zeros((1024, 32, 32, 3))
gradients(small, 2)
gradients(large[:2], 1)  # as much of TensorFlow as the next call needs
before = peak()
gradients(large, 64)
print(peak() - before)
"""


def test_memory_does_not_grow_with_the_batch():
    # In a process of its own, whose peak is nobody else's. The activations of
    # the large batch are 150 MiB.
    result = forks.run(_PEAKS)
    assert result.returncode == 0, result.stderr[-3000:]
    assert float(result.stdout) < 40
