"""Images, seeds and comparisons for the tests of operations."""

import numpy as np
import tensorflow as tf

from supcon_tf.augment import operations, randomness
from tests import pil


def seeds(count: int, root: int = 11) -> tf.Tensor:
    return randomness.fold_in(tf.constant([root, 1]), tf.range(count))


def noise(*shape: int) -> tf.Tensor:
    rng = np.random.default_rng(0)
    return tf.constant(rng.integers(0, 256, shape), tf.uint8)


def smooth(count: int, side: int) -> tf.Tensor:
    """Blobs of low frequency, which bilinear resampling hardly changes."""
    coarse = tf.cast(noise(count, 5, 5, 3), tf.float32)
    blobs = tf.image.resize(coarse, [side, side], method="bicubic")
    return tf.saturate_cast(blobs, tf.uint8)


def difference(first, second) -> np.ndarray:
    return np.abs(np.asarray(first, np.int32) - np.asarray(second, np.int32))


def assert_same_everywhere(operation, *batch) -> np.ndarray:
    """Asserts equal results eagerly, traced, image by image and in tf.data."""
    batch = [np.asarray(array) for array in batch]
    eager = operation(*batch).numpy()
    specs = [
        tf.TensorSpec([None, *array.shape[1:]], array.dtype) for array in batch
    ]
    function = tf.function(operation, input_signature=specs)
    static = function.get_concrete_function().output_shapes
    assert static.as_list() == [None, *eager.shape[1:]]
    np.testing.assert_array_equal(function(*batch), eager)
    for i in range(len(eager)):
        single = function(*(array[i : i + 1] for array in batch))
        np.testing.assert_array_equal(single[0], eager[i])
    dataset = tf.data.Dataset.from_tensor_slices(tuple(batch)).batch(7)
    dataset = dataset.map(function, num_parallel_calls=2)
    assert dataset.element_spec.shape.as_list() == [None, *eager.shape[1:]]
    np.testing.assert_array_equal(np.concatenate(list(dataset)), eager)
    empty = function(*(array[:0] for array in batch))
    assert empty.shape == (0, *eager.shape[1:]) and empty.dtype == eager.dtype
    return eager


def by_pil(image, steps, ranges, fill) -> np.ndarray:
    """An image after the steps and draws of `operations.apply`, by PIL."""
    for (name, level), draws in steps:
        side = min(image.shape[:2])
        value = operations.argument(name, level, side, ranges)
        if name in operations.SIGNED and draws[0] < 0.5:
            value = -value
        value = float(np.float32(value))
        image = pil.apply(name, image, value, draws[1:], fill)
    return image
