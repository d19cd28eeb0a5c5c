"""Sources in memory, and the messages of load."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from supcon_tf import data
from supcon_tf.data import examples


def read_all(source, seeds=None):
    """Reads a source: (list of image arrays, list of labels)."""
    pairs = list(source.records(seeds).map(source.read).as_numpy_iterator())
    return [image for image, _ in pairs], [int(label) for _, label in pairs]


def noise(*shape):
    return np.random.default_rng(0).integers(0, 256, shape, np.uint8)


@pytest.fixture(scope="module")
def digits():
    return [data.load("digits", split) for split in ("train", "test")]


def test_digits_are_split_and_enlarged(digits):
    train, test = digits
    assert (train.num_examples, test.num_examples) == (1437, 360)
    assert train.class_names == tuple("0123456789") == test.class_names
    assert train.image_size == 32
    assert (train.name, test.split, test.skipped) == ("digits", "test", ())
    images, labels = read_all(test)
    assert images[0].shape == (32, 32, 3) and images[0].dtype == np.uint8
    assert (np.min(images), np.max(images)) == (0, 255)
    assert labels == test.labels.tolist()
    counts = np.bincount(labels)
    assert counts.min() >= 34 and counts.max() <= 38  # Stratified.


def test_digits_are_the_originals_each_once(digits):
    from sklearn import datasets

    originals = datasets.load_digits()
    small = originals.images * (255 / 16)
    images, labels = map(np.array, read_all(digits[1]))
    averaged = images[::4, ..., 0].reshape(-1, 8, 4, 8, 4).mean((2, 4))
    distance = np.abs(averaged[:, None] - small[None]).mean((2, 3))
    nearest = distance.argmin(1)
    assert distance.min(1).max() < 30
    assert (originals.target[nearest] == labels[::4]).mean() > 0.98
    # Both splits hold each example once.
    images = [*images, *read_all(digits[0])[0]]
    different = {image.tobytes() for image in images}
    assert len(different) == len({image.tobytes() for image in small})


def test_seeds_alone_determine_a_permutation(digits):
    source = digits[1]
    orders = [
        list(source.records(tf.constant(seeds)).as_numpy_iterator())
        for seeds in ([1, 2], [1, 2], [1, 3])
    ]
    assert orders[0] == orders[1] != orders[2]
    assert sorted(orders[0]) == list(range(360))
    fixed = list(source.records(None).as_numpy_iterator())
    assert fixed == list(range(360))


def test_arrays_are_read_back():
    images, labels = noise(5, 8, 8, 3), [0, 2, 1, 1, 0]
    source = data.from_arrays(images, labels, ["a", "b", "c"], "mine", "test")
    assert (source.name, source.split) == ("mine", "test")
    assert source.class_names == ("a", "b", "c")
    assert (source.num_examples, source.image_size) == (5, 8)
    read_images, read_labels = read_all(source)
    np.testing.assert_array_equal(read_images, images)
    assert read_labels == labels
    assert source.read(tf.constant(0))[1].dtype == tf.int32


@pytest.mark.parametrize("dtype", ["uint8", "uint64"])
def test_labels_may_fill_their_type(dtype):
    labels = np.array([0, 255], dtype)
    source = data.from_arrays(noise(2, 4, 4, 3), labels)
    assert len(source.class_names) == 256
    assert read_all(source)[1] == [0, 255]


@pytest.mark.parametrize("shape", [(4, 6, 8), (4, 6, 8, 1)])
def test_gray_arrays_become_rgb(shape):
    images = noise(*shape)
    source = data.from_arrays(images, np.array([[0], [1], [0], [1]], np.int64))
    assert source.image_size is None  # 6 x 8 is not square.
    assert source.class_names == ("0", "1")
    read_images, read_labels = read_all(source)
    assert read_labels == [0, 1, 0, 1]
    for channel in range(3):
        np.testing.assert_array_equal(
            np.array(read_images)[..., channel], images.reshape(4, 6, 8)
        )


@pytest.mark.parametrize(
    "images, labels, class_names, message",
    [
        (np.zeros([2, 8, 8, 3]), [0, 1], None,
         r"`pixel_range` must be given for float images, such as \(0, 1\)"),
        (np.zeros([2, 8, 8, 3], np.int32), [0, 1], None,
         r"`images` must be uint8 in 0..255, or float .*, got int32$"),
        (noise(2, 8, 8, 17), [0, 1], None,
         r"`images` must have shape .*, got \[2, 8, 8, 17\]"),
        (noise(8, 8), [0, 1], None, r"`images` must have .*, got \[8, 8\]"),
        (noise(0, 8, 8, 3), [], None, r"`images` .*, got \[0, 8, 8, 3\]"),
        (noise(2, 8, 8, 3), [0, 1, 2], None,
         "`labels` must be as many as `images`, got 3 labels for 2 images"),
        (noise(2, 8, 8, 3), [0.0, 1.0], None,
         r"`labels` must be integers .*, got float64 of shape \[2\]"),
        (noise(2, 8, 8, 3), np.eye(2, dtype=int), None,
         r"`labels` must be integers .*, got int64 of shape \[2, 2\]"),
        (noise(2, 8, 8, 3), [0, 2], ["a", "b"],
         r"`labels` must be in 0..1, got 0..2"),
        (noise(2, 8, 8, 3), [0, 1], ["crane", "dog", "crane"],
         "must have a name of its own for every class, got crane"),
        (noise(2, 8, 8, 3), [0, 1], np.arange(2),
         r"must have classes that are called by texts, .*, got .*0"),
        (noise(2, 8, 8, 3), [0, 1], "ab", "`class_names` must be a list of n"),
        (noise(2, 8, 8, 3), [-1, 0], None,
         r"`labels` must be in 0..0, got -1..0"),
    ],
)  # fmt: skip
def test_array_mistakes_are_named(images, labels, class_names, message):
    with pytest.raises(ValueError, match=message):
        data.from_arrays(images, labels, class_names)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"dataset": "mnist"},
         "`dataset` must be digits, .* path of a folder or a man.*, got mnist"),
        ({"dataset": "tfds:"}, "`dataset` must be digits, .*, got tfds:"),
        ({"split": "val"},
         "`split` must be train or test except .* got validation of digits"),
        ({"split": "all"},
         "`split` must be one of train, test, validation, got 'all'"),
        ({"dataset": "folder"},
         "`data_dir` must be given for the dataset `folder`, got None"),
        ({"dataset": "folder", "data_dir": "/no/such"},
         "`data_dir` must be a folder, got /no/such"),
        ({"shard": (0, 2)}, "`shard` must be None except for TFDS.*for digits"),
        ({"tfds_split": "train"}, "`tfds_split` must be None except for"),
        ({"channels": 1}, "`channels` must be 3 except for TFDS and functions"),
        ({"split_by": "class"},
         "`split_by` must be image except for folders and"),
        ({"split_by": "file"}, "`split_by` must be one of"),
    ],
)  # fmt: skip
def test_load_mistakes_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        data.load(**{"dataset": "digits", **arguments})


def test_arrays_are_not_constants_of_the_graph():
    source = data.from_arrays(noise(50, 32, 32, 3), [0] * 50)
    read = tf.function(source.read).get_concrete_function(
        tf.TensorSpec([], tf.int64)
    )
    assert len(read.graph.as_graph_def().SerializeToString()) < 10_000


def test_examples_are_decoded_once(image_folder, monkeypatch):
    """Where they fit into memory; else in every epoch."""
    source = data.load(image_folder, "test")
    reads = []

    def read(record):
        image, label = source.read(record)
        operation = tf.numpy_function(reads.append, [label], [])
        with tf.control_dependencies(
            [operation] if operation is not None else []
        ):
            return image, tf.identity(label)

    counted = dataclasses.replace(source, read=read)
    for limit, epochs in ((examples._MAX_CACHED, 1), (100, 2)):
        monkeypatch.setattr(examples, "_MAX_CACHED", limit)
        batches = data.make_examples(counted, 8, image_size=16)
        first, second = (
            [images.numpy() for images, _ in batches] for _ in range(2)
        )
        for a, b in zip(first, second, strict=True):
            np.testing.assert_array_equal(a, b)
        assert len(reads) == epochs * source.num_examples
        reads.clear()
