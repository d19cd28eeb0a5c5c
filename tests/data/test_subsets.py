"""Parts of a split: which examples, and that nothing else is read."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from supcon_tf import data
from supcon_tf.data import subsets

SIZES = [7, 4, 1, 10]
LABELS = np.random.default_rng(0).permutation(np.repeat(range(4), SIZES))


@pytest.fixture(scope="module", params=["by index", "in file order"])
def source(request):
    """22 images whose pixels are their position."""
    pixels = np.arange(len(LABELS), dtype=np.uint8)
    images = np.broadcast_to(
        pixels[:, None, None, None], [len(LABELS), 1, 1, 3]
    )
    array_source = data.from_arrays(images, LABELS)
    if request.param == "by index":
        return dataclasses.replace(
            array_source, ids=tuple(f"i{pixel}" for pixel in pixels)
        )
    return dataclasses.replace(array_source, labels=None)


def read_all(source, seeds=None):
    pairs = list(source.records(seeds).map(source.read).as_numpy_iterator())
    return [int(image[0, 0, 0]) for image, _ in pairs], [y for _, y in pairs]


def test_subset_reads_the_chosen_in_order(source):
    positions = [0, 3, 4, 17, 21]
    part = subsets.subset(source, positions)
    assert part.num_examples == 5
    assert read_all(part) == (positions, LABELS[positions].tolist())
    assert part.labels.tolist() == LABELS[positions].tolist()
    if source.ids:
        assert part.ids == ("i0", "i3", "i4", "i17", "i21")
    shuffled, labels = read_all(part, tf.constant([1, 2]))
    assert sorted(shuffled) == positions and shuffled != positions
    assert labels == LABELS[shuffled].tolist()
    assert read_all(subsets.subset(part, [1, 3]))[0] == [3, 17]
    assert subsets.labels_of(source).tolist() == LABELS.tolist()


def test_draw_has_exactly_so_many_of_each_class():
    labels = LABELS[LABELS != 2]
    drawn = subsets.draw_per_class(labels, 4, seed=3)
    assert np.bincount(labels[drawn]).tolist() == [4, 4, 0, 4]
    assert drawn.tolist() == sorted(set(drawn))
    again = subsets.draw_per_class(labels, 4, seed=3)
    assert drawn.tolist() == again.tolist()
    other = subsets.draw_per_class(labels, 4, seed=4)
    assert drawn.tolist() != other.tolist()
    with pytest.raises(ValueError, match=r"`count` .* 1..4, the .* class 1, g"):
        subsets.draw_per_class(labels, 5, seed=3)


@pytest.mark.parametrize(
    ("fraction", "counts"),
    [(0.5, [4, 2, 0, 5]), (0.2, [1, 1, 0, 2]), (0.99, [6, 3, 0, 9])],
)
def test_every_class_gives_its_share(fraction, counts):
    train, validation = subsets.hold_out(LABELS, fraction, seed=5)
    assert np.bincount(LABELS[validation], minlength=4).tolist() == counts
    assert sorted([*train, *validation]) == list(range(len(LABELS)))
    _, again = subsets.hold_out(LABELS, fraction, seed=5)
    assert validation.tolist() == again.tolist()
    _, other_seed = subsets.hold_out(LABELS, fraction, seed=6)
    assert validation.tolist() != other_seed.tolist()


def test_of_several_labels_the_rarest_gives_its_share():
    """20 of label 0 alone, 10 of 0 and 1, 4 of 1 and 2, and 5 of none."""
    labels = np.repeat([[1, 0, 0], [1, 1, 0], [0, 1, 1], [0, 0, 0]],
                       [20, 10, 4, 5], axis=0)  # fmt: skip
    train, validation = subsets.hold_out(labels, 0.2, seed=5)
    assert sorted([*train, *validation]) == list(range(39))
    kinds = np.searchsorted([20, 30, 34], validation, side="right")
    assert np.bincount(kinds, minlength=4).tolist() == [4, 2, 1, 1]


def test_a_share_is_drawn_of_a_class_of_one_example_too():
    """The others give what they would hold out."""
    labels = [0, 1, 0, 0, 2, 0, 2]
    drawn = subsets.draw_share(labels, 0.5, seed=5)
    _, held_out = subsets.hold_out(labels, 0.5, seed=5)
    assert drawn.tolist() == sorted([1, *held_out])
    assert subsets.draw_share([0, 1, 2], 0.5, seed=0).tolist() == [0, 1, 2]
    with pytest.raises(ValueError, match=r"`fraction` must be .*, got 1"):
        subsets.draw_share(labels, 1, seed=0)


def test_positions_rise(source):
    for positions in ([], [1, 1], [3, 2], [-1], [22]):
        rule = "ascending, each once, in 0..21" if positions else "not be empty"
        with pytest.raises(ValueError, match=f"`positions` must .*{rule}"):
            subsets.subset(source, positions)


def test_mistakes_are_named(source):
    with pytest.raises(ValueError, match=r"`fraction` must be .*, got 1"):
        subsets.hold_out(LABELS, 1, 0)
    with pytest.raises(ValueError, match="`labels` must have a class of two"):
        subsets.hold_out([0, 1, 2], 0.5, 0)
    part = dataclasses.replace(source, shard=(0, 2), labels=None)
    with pytest.raises(
        ValueError, match="not shared by file, .*; a folder has"
    ):
        subsets.subset(part, [1])


UNEVEN = np.repeat([0, 1, 2], [50, 20, 3])


@pytest.mark.parametrize(
    ("count", "sizes"),
    [(3, [1, 1, 1]), (9, [3, 3, 3]), (23, [10, 10, 3]), (99, [50, 20, 3])],
)
def test_classes_are_drawn_alike(count, sizes):
    drawn = subsets.draw_evenly(UNEVEN, count, seed=0)
    assert (np.diff(drawn) > 0).all()
    assert np.bincount(UNEVEN[drawn], minlength=3).tolist() == sizes
    again, other = (subsets.draw_evenly(UNEVEN, count, seed) for seed in (0, 1))
    assert again.tolist() == drawn.tolist()
    assert other.tolist() != drawn.tolist() or count == 99
    # Fewer examples than classes are of different classes.
    sample = subsets.draw_evenly(np.repeat(range(10), 4), 6, seed=0)
    assert len(set(sample // 4)) == 6


def test_turns_count_within_a_class():
    turns = subsets.turns([5, -1, 5, 5, -1, 2])
    assert turns.tolist() == [0, 0, 1, 2, 1, 0]
    assert subsets.turns([]).size == 0


def test_a_long_tail_is_that_of_cifar_10_lt():
    labels = np.tile(np.arange(10), 5000)
    drawn = subsets.draw_long_tail(labels, 100, seed=0)
    assert np.bincount(labels[drawn]).tolist() == [
        *(5000, 2997, 1796, 1077, 645, 387, 232, 139, 83, 50)
    ]
    assert (np.diff(drawn) > 0).all()
    np.testing.assert_array_equal(
        drawn, subsets.draw_long_tail(labels, 100, seed=0)
    )
    assert not np.array_equal(drawn, subsets.draw_long_tail(labels, 100, 1))
    # No more than there are, and one at least; a ratio of 1 takes all.
    uneven = np.repeat([0, 1, 2], [50, 3, 9])
    drawn = subsets.draw_long_tail(uneven, 1000, seed=0)
    assert np.bincount(uneven[drawn]).tolist() == [50, 1, 1]
    assert len(subsets.draw_long_tail(uneven, 1, seed=0)) == 62


def test_a_share_of_labels_is_wrong():
    labels = np.arange(1000) % 5
    flipped = subsets.flip_labels(labels, 5, 0.3, seed=0)
    wrong = flipped != labels
    assert wrong.sum() == 300 and set(flipped) == set(range(5))
    # Every other label as often, about.
    shifts = np.bincount((flipped - labels)[wrong] % 5, minlength=5)
    assert shifts[0] == 0 and shifts[1:].min() > 50
    np.testing.assert_array_equal(
        flipped, subsets.flip_labels(labels, 5, 0.3, seed=0)
    )
    assert (subsets.flip_labels(labels, 5, 0.0, seed=0) == labels).all()


def test_other_labels_of_the_same_images():
    images = np.arange(6, dtype=np.uint8)[:, None, None, None]
    source = data.from_arrays(np.broadcast_to(images, [6, 4, 4, 3]), [0, 1] * 3)
    other = subsets.with_labels(source, np.array([1, 1, 0, 0, 1, 0]))
    assert other.labels.tolist() == [1, 1, 0, 0, 1, 0]
    pairs = other.records(None).map(other.read).as_numpy_iterator()
    examples = [(int(image[0, 0, 0]), int(label)) for image, label in pairs]
    assert examples == list(enumerate([1, 1, 0, 0, 1, 0]))


def test_some_classes_become_the_classes_of_a_source(source):
    part = subsets.select_classes(source, ["3", "1"])
    positions = [i for i, label in enumerate(LABELS) if label in (1, 3)]
    labels = [int(LABELS[position] == 1) for position in positions]
    assert part.class_names == ("3", "1")
    assert read_all(part) == (positions, labels)
    assert part.labels.tolist() == labels


def test_duplicates_are_those_of_files_that_the_training_has_read():
    digits = data.load("digits", "test")
    with pytest.raises(ValueError, match="the training has read.* got digits,"):
        subsets.without_duplicates(digits, digits)
