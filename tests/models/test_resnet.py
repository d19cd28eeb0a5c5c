"""The ResNet stack: published parameter counts, strides, zero gamma."""

import numpy as np
import pytest
import tensorflow as tf

from supcon_tf.models import layers, resnet

# torchvision's totals without the classifier.
PUBLISHED = {
    18: 11_176_512,
    34: 21_284_672,
    50: 23_508_032,
    101: 42_500_160,
    152: 58_143_808,
}
BLOCKS = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3)}
BLOCKS |= {101: (3, 4, 23, 3), 152: (3, 8, 36, 3), 200: (3, 24, 36, 3)}


def _trainable(depth, stem, width=1.0):
    with tf.Graph().as_default():  # no memory for what is only counted
        stack = resnet.ResNet(depth, stem, width)
        stack.build((None, 32, 32, 3))
        return sum(v.shape.num_elements() for v in stack.trainable_variables)


def _formula(depth, stem, width=1.0):
    """Kernels and 2 BN parameters per channel, written as in the paper."""
    base = int(64 * width)
    channels = base
    total = (49 if stem == "imagenet" else 9) * 3 * base + 2 * base
    for group, count in enumerate(BLOCKS[depth]):
        inner = base * 2**group
        outer = inner * (4 if depth >= 50 else 1)
        for index in range(count):
            if depth >= 50:
                total += channels * inner + 9 * inner * inner + inner * outer
                total += 2 * (inner + inner + outer)
            else:
                total += 9 * channels * inner + 9 * inner * inner + 4 * inner
            if index == 0 and (group > 0 or channels != outer):
                total += channels * outer + 2 * outer
            channels = outer
    return total


def test_parameter_count_equals_the_published_one():
    """The deeper ones are the same with more blocks, and slow to build."""
    assert resnet.BLOCKS_PER_GROUP == BLOCKS
    for depth, expected in PUBLISHED.items():
        assert _formula(depth, "imagenet") == expected
    for depth in (34, 50):
        assert _trainable(depth, "imagenet") == PUBLISHED[depth]


def test_cifar_stem_and_width():
    assert _formula(18, "cifar") == _trainable(18, "cifar") == 11_168_832
    assert _formula(50, "cifar") == 23_500_352
    assert _formula(50, "cifar", 0.25) == _trainable(50, "cifar", 0.25)


def test_stride_is_on_the_3x3_convolution():
    stack = resnet.ResNet(50, "cifar", 0.125)
    blocks = [b for b in stack.blocks if b.name.endswith("block0")]
    for block, strides in zip(blocks, (1, 2, 2, 2), strict=True):
        assert [c.kernel_size for c in block.branch] == [1, 3, 1]
        assert [c.strides for c in block.branch] == [1, strides, 1]
        assert block.shortcut.strides == strides


@pytest.mark.parametrize("bottleneck", [False, True])
def test_a_block_of_zero_init_passes_its_input_on(bottleneck):
    block = resnet.ResidualBlock(
        2, bottleneck=bottleneck, zero_init_residual=True
    )
    inputs = tf.random.stateless_normal((2, 5, 5, block.output_filters), (1, 2))
    for training in (False, True):
        np.testing.assert_array_equal(
            block(inputs, training=training), tf.nn.relu(inputs)
        )


@pytest.mark.parametrize("zero", [False, True])
@pytest.mark.parametrize("bottleneck", [False, True])
def test_only_the_end_of_a_branch_may_start_at_zero(bottleneck, zero):
    block = resnet.ResidualBlock(2, 1, bottleneck, True, zero)
    block.build((None, None, None, 3))
    *inner, last = [conv.bn.gamma.numpy() for conv in block.branch]
    assert (last == (0 if zero else 1)).all()
    for gamma in (*inner, block.shortcut.bn.gamma.numpy()):
        assert (gamma == 1).all()


def test_feature_map_size():
    for stem, sizes in (("cifar", {32: 4, 8: 1, 9: 2}), ("imagenet", {64: 2})):
        stack = resnet.ResNet(18, stem, 0.125, zero_init_residual=True)
        for side, expected in sizes.items():
            shape = stack(tf.zeros((1, side, side, 3))).shape
            assert shape == (1, expected, expected, 64)
        for block in stack.blocks:
            assert not block.branch[-1].bn.gamma.numpy().any()


@pytest.mark.parametrize(("kernel", "side"), [(3, 6), (3, 7), (7, 8), (1, 6)])
def test_strided_convolution_pads_symmetrically(kernel, side):
    conv = layers.ConvBN(2, kernel, strides=2)
    inputs = np.random.default_rng(0).normal(size=(1, side, side, 3))
    output = conv(tf.constant(inputs, tf.float32), training=False)

    margin = (kernel - 1) // 2
    padded = np.pad(
        inputs, [(0, 0), (margin, margin), (margin, margin), (0, 0)]
    )
    weights = conv.conv.kernel.numpy()
    expected = np.zeros((1, -(-side // 2), -(-side // 2), 2))
    for row in range(expected.shape[1]):
        for column in range(expected.shape[2]):
            top, left = 2 * row, 2 * column
            window = padded[0, top : top + kernel, left : left + kernel]
            expected[0, row, column] = np.einsum("hwc,hwcf->f", window, weights)
    expected /= np.sqrt(1 + 1e-5)  # BN at its start: mean 0, variance 1
    np.testing.assert_allclose(output, expected, atol=1e-5)


def test_batch_norm_constants():
    conv = layers.ConvBN(4)
    conv.build((None, None, None, 3))
    assert (conv.bn.momentum, conv.bn.epsilon) == (0.9, 1e-5)
    assert conv.bn.fused and not conv.bn.synchronized


def test_a_strided_1x1_convolution_takes_every_second_pixel():
    """8 channels: the strided gradient of TensorFlow crashed on 4 cores."""
    conv = layers.ConvBN(16, kernel_size=1, strides=2)
    images = tf.random.stateless_uniform([6, 15, 16, 8], [1, 2])
    with tf.GradientTape() as tape:
        outputs = conv(images)
        loss = tf.reduce_sum(outputs**2)
    kernel = conv.conv.kernel
    expected = tf.einsum("nhwc,cd->nhwd", images[:, ::2, ::2], kernel[0, 0])
    np.testing.assert_allclose(outputs, expected / np.sqrt(1 + 1e-5), atol=1e-5)
    assert np.abs(tape.gradient(loss, kernel)).max() > 0
