"""The VGG stacks: counts, pooling."""

import numpy as np
import pytest
import tensorflow as tf

from supcon_tf.models import vgg


@pytest.mark.parametrize(
    ("depth", "width", "kernels", "channels"),
    [
        # 13 3x3 convolutions of VGG-16 (14,714,688 with biases).
        (16, 1.0, 14_710_464, 4_224),
        (8, 0.25, 9 * (3 * 16 + 16 * 32 + 32 * 64 + 64 * 128 + 128**2), 368),
    ],
)
def test_parameter_count(depth, width, kernels, channels):
    stack = vgg.VGG(depth, width)
    stack.build((None, 32, 32, 3))
    count = sum(int(np.prod(v.shape)) for v in stack.trainable_variables)
    assert count == kernels + 2 * channels
    assert len(stack.non_trainable_variables) == 2 * (5 if depth == 8 else 13)


@pytest.mark.parametrize(
    ("side", "expected"), [(32, 2), (16, 1), (8, 1), (40, 3)]
)
def test_four_poolings_halve_and_round_up(side, expected):
    stack = vgg.VGG(8, 0.125)
    shape = stack(tf.zeros((2, side, side, 3))).shape
    assert shape == (2, expected, expected, 64)


def test_output_is_after_relu_and_equals_the_stages_by_hand():
    stack = vgg.VGG(8, 0.0625)
    images = tf.random.stateless_normal((2, 16, 16, 3), (0, 1))
    x = images
    output = stack(images)
    for index, conv in enumerate(stack.convs):
        if index:
            x = tf.keras.layers.MaxPool2D()(x)
        x = tf.nn.conv2d(x, conv.conv.kernel, 1, "SAME")
        x = tf.nn.relu(x / np.sqrt(1 + 1e-5))
    np.testing.assert_allclose(output, x, atol=1e-5)
