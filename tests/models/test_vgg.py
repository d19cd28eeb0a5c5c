"""The VGG stacks: counts, pooling."""

import numpy as np
import pytest
import tensorflow as tf

from supcon_tf.keras_2 import keras
from supcon_tf.models import vgg


@pytest.mark.parametrize(
    ("depth", "width", "kernels", "channels"),
    [
        (
            16,
            1.0,
            9 * (3 * 64 + 64**2 + 64 * 128 + 128**2)
            + 9 * (128 * 256 + 3 * 256**2 + 256 * 512 + 3 * 512**2),
            2 * 64 + 2 * 128 + 4 * 256 + 4 * 512,
        ),
        (
            8,
            0.25,
            9 * (3 * 16 + 16**2 + 16 * 32 + 32**2 + 32 * 64 + 3 * 64**2),
            2 * 16 + 2 * 32 + 4 * 64,
        ),
    ],
)
def test_parameter_count(depth, width, kernels, channels):
    stack = vgg.VGG(depth, width)
    stack.build((None, 32, 32, 3))
    count = sum(int(np.prod(v.shape)) for v in stack.trainable_variables)
    assert count == kernels + 2 * channels
    assert len(stack.non_trainable_variables) == 2 * (8 if depth == 8 else 12)


@pytest.mark.parametrize(
    ("depth", "side", "expected"),
    [(8, 32, 8), (8, 3, 1), (8, 9, 3), (16, 32, 4), (16, 8, 1), (16, 17, 3)],
)
def test_poolings_between_stages_halve_and_round_up(depth, side, expected):
    stack = vgg.VGG(depth, 0.125)
    shape = stack(tf.zeros((2, side, side, 3))).shape
    assert shape == (2, expected, expected, 32 if depth == 8 else 64)


def test_output_is_after_relu_and_equals_the_stages_by_hand():
    stack = vgg.VGG(8, 0.0625)
    images = tf.random.stateless_normal((2, 16, 16, 3), (0, 1))
    x = images
    output = stack(images)
    for index, conv in enumerate(stack.convs):
        if index in (2, 4):
            x = keras.layers.MaxPool2D()(x)
        x = tf.nn.conv2d(x, conv.conv.kernel, 1, "SAME")
        x = tf.nn.relu(x / np.sqrt(1 + 1e-5))
    np.testing.assert_allclose(output, x, atol=1e-5)
