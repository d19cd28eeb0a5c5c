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


def test_poolings_between_stages_halve_and_round_up():
    for depth, sizes in ((8, {32: 8, 3: 1, 9: 3}), (16, {32: 4, 8: 1, 17: 3})):
        stack = vgg.VGG(depth, 0.125)
        for side, expected in sizes.items():
            shape = stack(tf.zeros((2, side, side, 3))).shape
            assert shape == (2, expected, expected, 32 if depth == 8 else 64)


def test_features_are_those_of_convolutions_and_poolings():
    stack = vgg.VGG(8, 0.0625)
    images = tf.random.stateless_normal((2, 16, 16, 3), (0, 1))
    output = stack(images)
    features = images
    for index, conv in enumerate(stack.convs):
        if index in (2, 4):
            features = keras.layers.MaxPool2D()(features)
        features = tf.nn.conv2d(features, conv.conv.kernel, 1, "SAME")
        features = tf.nn.relu(features / np.sqrt(1 + 1e-5))
    np.testing.assert_allclose(output, features, atol=1e-5)
