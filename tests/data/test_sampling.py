"""Class-balanced batches: what each batch, epoch and run holds."""

import collections

import numpy as np
import pytest
import tensorflow as tf

from supcon_tf import data
from supcon_tf.data import sampling

# Images per class; classes 2 and 5 have none.
SIZES = [40, 3, 0, 17, 9, 0, 6, 1, 12]
LABELS = np.random.default_rng(0).permutation(
    np.repeat(np.arange(len(SIZES)), SIZES)
)
PRESENT = [label for label, size in enumerate(SIZES) if size]  # 7 classes

# Batch size, images per class: 4 of 7 classes, all, 1, 5 of 7.
CASES = [(12, 3), (14, 2), (6, 6), (40, 8)]


@pytest.fixture(scope="module")
def source():
    """88 images of one pixel, unevenly distributed over 7 of 9 classes."""
    return data.from_arrays(
        np.zeros([len(LABELS), 1, 1, 3], np.uint8),
        LABELS,
        [str(label) for label in range(len(SIZES))],
    )


def read_epochs(balanced, batch_size, count, steps=None):
    """Returns the indices of `count` epochs: [count, steps, batch_size]."""
    steps = steps or balanced.num_examples // batch_size
    epochs = tf.data.Dataset.range(count).flat_map(
        lambda epoch: balanced.records(
            tf.stack([7, tf.cast(epoch, tf.int32)])
        ).take(steps * batch_size)
    )
    indices = np.array(list(epochs.as_numpy_iterator()))
    return indices.reshape(count, steps, batch_size)


@pytest.mark.parametrize("batch_size, images_per_class", CASES)
def test_every_batch_and_epoch_is_balanced(
    source, batch_size, images_per_class
):
    balanced = data.class_balanced(source, batch_size, images_per_class)
    for epoch in read_epochs(balanced, batch_size, 4):
        uses = collections.defaultdict(list)  # Class -> images, in order.
        for indices in epoch:
            labels = LABELS[indices].reshape(images_per_class, -1)  # [K, P]
            assert len(set(labels[0])) == batch_size // images_per_class
            assert (labels == labels[0]).all()
            for label in labels[0]:
                images = indices[LABELS[indices] == label]
                check_is_even(images, images_per_class / SIZES[label])
                uses[label].extend(images)
            batches = [len(uses[c]) // images_per_class for c in PRESENT]
            assert max(batches) - min(batches) <= 1
        for label, images in uses.items():
            first = images[: SIZES[label]]
            assert len(set(first)) == len(first)
            assert images == (first * len(images))[: len(images)]


def check_is_even(images, share):
    """Each image of a class has its share of the class's places, rounded."""
    counts = collections.Counter(images.tolist()).values()
    assert max(counts) <= np.ceil(share)
    assert share < 1 or min(counts) >= np.floor(share)


def test_the_run_reaches_every_image_in_fresh_orders(source):
    epochs = read_epochs(data.class_balanced(source, 12, 3), 12, 40)
    assert set(epochs.flat) == set(range(88))
    largest_class_orders = [
        tuple(i for i in epoch.flat if LABELS[i] == 0) for epoch in epochs
    ]
    assert len(set(largest_class_orders)) == 40
    first_classes = {tuple(LABELS[epoch[0, :4]]) for epoch in epochs}
    assert len(first_classes) > 35  # of 840 orders of four classes
    # Even where each batch has all classes, their order differs.
    (epoch,) = read_epochs(data.class_balanced(source, 14, 2), 14, 1)
    assert len({tuple(LABELS[batch[:7]]) for batch in epoch}) == len(epoch) == 6


def test_ties_fall_at_random(source):
    """In the first batch of an epoch, all classes are equally likely."""
    epochs = read_epochs(data.class_balanced(source, 4, 1), 4, 300, steps=1)
    first = LABELS[epochs[:, 0]]  # P = 4 of 7 classes.
    share = np.array([(first == label).any(1).mean() for label in PRESENT])
    expected, deviation = 4 / 7, np.sqrt(4 / 7 * 3 / 7 / 300)
    np.testing.assert_allclose(share, expected, atol=4 * deviation)
    leading = np.array([(first[:, 0] == label).mean() for label in PRESENT])
    deviation = np.sqrt(1 / 7 * 6 / 7 / 300)
    np.testing.assert_allclose(leading, 1 / 7, atol=4 * deviation)


def test_counts_stay_exact_in_long_epochs():
    counts = tf.constant([0, 1, 0, 1, 0, 1], tf.int64) + 2**40
    for seed in range(20):
        chosen = sampling._least_used(counts, 3, tf.constant([seed, 0]))
        assert sorted(chosen.numpy()) == [0, 2, 4]


def test_seeds_alone_determine_the_order(source):
    balanced = data.class_balanced(source, 12, 3)
    orders = []
    for seeds in ([1, 2], [1, 2], [1, 3]):
        tf.random.set_seed(len(orders))
        records = balanced.records(tf.constant(seeds))
        orders.append(tuple(records.as_numpy_iterator()))
    assert orders[0] == orders[1]
    assert len(set(orders)) == 2
    assert len(orders[0]) == balanced.num_examples == 88
    assert list(balanced.records(None).as_numpy_iterator()) == list(range(88))


@pytest.mark.parametrize(
    "batch_size, images_per_class, message",
    [
        (12, 5, "`images_per_class` must divide `batch_size`, got 5 and 12"),
        (12, 0, "`images_per_class` must divide `batch_size`, got 0 and 12"),
        (16, 2, r"at most the 7 classes of arrays \(train\), got 2 for batches "
         "of 16: 8 classes"),
    ],
)  # fmt: skip
def test_mistakes_are_named(source, batch_size, images_per_class, message):
    with pytest.raises(ValueError, match=message):
        data.class_balanced(source, batch_size, images_per_class)
