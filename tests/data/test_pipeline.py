"""Batches: shapes, epochs, seeds, resuming and evaluation order."""

import dataclasses
import itertools

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from supcon_tf import data


def noise(*shape):
    return np.random.default_rng(0).integers(0, 256, shape, np.uint8)


@pytest.fixture(scope="module")
def source():
    """22 noise images of 16 px, each with a label of its own."""
    return data.from_arrays(noise(22, 16, 16, 3), np.arange(22))


def write(root, images):
    """Writes images into the class folders a and b by turns, as PNG."""
    for i, image in enumerate(images):
        path = root / "ab"[i % 2]
        path.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(path / f"{i}.png")


def take(dataset, count):
    """Returns `count` batches as lists of (views, labels) arrays."""
    return list(dataset.take(count).as_numpy_iterator())


def assert_equal(batches, others):
    for (views, labels), (other_views, other_labels) in zip(
        batches, others, strict=True
    ):
        np.testing.assert_array_equal(labels, other_labels)
        np.testing.assert_array_equal(views, other_views)


def views_by_label(batches):
    """Returns {label: views [V, S, S, 3]} of one epoch."""
    return {
        int(label): views
        for batch in batches
        for views, label in zip(*batch, strict=True)
    }


def plus_seed(images, seeds):
    """A policy that adds a number drawn from the seed."""
    amount = tf.cast(tf.abs(seeds[:, 0]) % 200, tf.uint8)
    return images + amount[:, None, None, None]


def test_shapes_are_static(source):
    views = data.make_views(source, 4, 3, plus_seed, image_size=12)
    images, labels = views.element_spec
    assert images.shape.as_list() == [4, 3, 12, 12, 3]
    assert labels.shape.as_list() == [4]
    assert (images.dtype, labels.dtype) == (tf.uint8, tf.int32)
    # For Keras to ask for the steps of an epoch.
    assert views.cardinality() == tf.data.INFINITE_CARDINALITY
    images, labels = next(iter(views))
    assert images.shape == [4, 3, 12, 12, 3] and labels.shape == [4]
    late = data.make_views(source, 4, start_step=10**9)  # Nothing is read.
    assert next(iter(late))[0].shape == [4, 2, 16, 16, 3]


def test_every_epoch_is_a_fresh_permutation(source):
    assert data.steps_per_epoch(source, 4) == 5
    batches = take(data.make_views(source, 4), 15)
    labels = np.array([labels for _, labels in batches]).reshape(3, 20)
    for epoch in labels:
        assert len(set(epoch)) == 20  # 22 // 4 * 4, none of them twice.
    assert len({tuple(epoch) for epoch in labels}) == 3
    assert len({frozenset(epoch) for epoch in labels}) > 1  # Others left out.


def test_the_same_seed_gives_the_same_sequence(source):
    dataset = data.make_views(source, 4, 2, plus_seed, seed=5)
    batches = take(dataset, 12)
    tf.random.set_seed(99)  # Nothing outside takes part.
    assert_equal(batches, take(dataset, 12))
    again = take(data.make_views(source, 4, 2, plus_seed, seed=5), 12)
    assert_equal(batches, again)
    other = take(data.make_views(source, 4, 2, plus_seed, seed=6), 5)
    orders = [[list(labels) for _, labels in b[:5]] for b in (batches, other)]
    assert orders[0] != orders[1]


def test_neither_batch_size_nor_number_of_views_changes_a_view(source):
    """A view depends on its epoch, position and number only."""
    large = take(data.make_views(source, 22, 3, plus_seed), 2)
    small = take(data.make_views(source, 11, 2, plus_seed), 4)
    views, labels = map(np.concatenate, zip(*large, strict=True))
    others, other_labels = map(np.concatenate, zip(*small, strict=True))
    np.testing.assert_array_equal(labels, other_labels)
    np.testing.assert_array_equal(views[:, :2], others)


@pytest.mark.parametrize(
    "options",
    [
        {"horizontal_flip": False},  # Crops alone.
        {"crop_area": None, "horizontal_flip": False,
         "augmentation": plus_seed},  # The policy alone.
    ],
)  # fmt: skip
def test_views_epochs_and_seeds_get_their_own_draw(source, options):
    epochs = take(data.make_views(source, 22, 3, seed=1, **options), 2)
    other_seed = take(data.make_views(source, 22, 3, seed=2, **options), 1)
    first, second, other = (
        views_by_label([batch]) for batch in [*epochs, *other_seed]
    )
    pairs = []
    for label in range(22):
        pairs += itertools.combinations(first[label], 2)
        pairs += zip(first[label], second[label], strict=True)
        pairs += zip(first[label], other[label], strict=True)
    equal = sum(np.array_equal(a, b) for a, b in pairs)
    assert equal <= 0.05 * len(pairs)  # plus_seed has 200 values only.


def test_images_of_one_batch_get_their_own_draw():
    same = data.from_arrays(
        np.tile(noise(1, 16, 16, 3), [32, 1, 1, 1]), [0] * 32
    )
    ((views, _),) = take(data.make_views(same, 32, horizontal_flip=False), 1)
    assert len({view.tobytes() for view in views.reshape(64, -1)}) > 60


def test_flips_are_drawn_per_view(source):
    dataset = data.make_views(source, 22, 2, crop_area=None)
    plain = data.make_views(
        source, 22, 2, crop_area=None, horizontal_flip=False
    )
    flipped = []
    for (views, _), (others, _) in zip(
        take(dataset, 10), take(plain, 10), strict=True
    ):
        same = (views == others).all((2, 3, 4))
        mirrored = (views == others[:, :, :, ::-1]).all((2, 3, 4))
        np.testing.assert_array_equal(same, ~mirrored)
        flipped.append(mirrored)
    flipped = np.concatenate(flipped)  # [220, 2]
    assert 0.4 < flipped.mean() < 0.6
    assert 0.4 < (flipped[:, 0] != flipped[:, 1]).mean() < 0.6


@pytest.mark.parametrize("area", [None, (1.0, 1.0)])
def test_without_crop_and_flip_the_image_is_unchanged(source, area):
    """Crops of the whole area and aspect 1 are the image itself."""
    dataset = data.make_views(
        source, 22, 1, crop_area=area, crop_aspect=(1.0, 1.0),
        horizontal_flip=False,
    )  # fmt: skip
    ((views, labels),) = take(dataset, 1)
    np.testing.assert_array_equal(views[:, 0], noise(22, 16, 16, 3)[labels])


@pytest.mark.slow(but=["5"])
@pytest.mark.parametrize("start_step", [1, 5, 12])
def test_any_step_can_come_first(source, start_step):
    options = {"num_views": 2, "augmentation": plus_seed, "seed": 3}
    batches = take(data.make_views(source, 4, **options), start_step + 7)
    resumed = data.make_views(source, 4, start_step=start_step, **options)
    assert_equal(batches[start_step:], take(resumed, 7))


def test_batches_can_be_class_balanced(source):
    """In the order of `class_balanced`, with the views of any order."""
    classes = dataclasses.replace(source, labels=np.arange(22) % 3)
    options = {"seed": 3, "images_per_class": 2}
    batches = take(data.make_views(classes, 6, **options), 9)
    for _, indices in batches:  # Here, labels are still the indices.
        assert (np.bincount(indices % 3) == 2).all()
        assert len(set(indices)) == 6
    resumed = data.make_views(classes, 6, start_step=4, **options)
    assert_equal(batches[4:], take(resumed, 5))  # 3 steps per epoch.


@pytest.mark.slow(but=["3-3"])
@pytest.mark.parametrize("images_per_class, count", [(None, 2), (3, 3)])
def test_shards_are_the_rows_of_the_global_batch(
    source, images_per_class, count
):
    source = dataclasses.replace(source, labels=np.arange(22) % 4)
    options = {
        "augmentation": plus_seed, "crop_area": None, "horizontal_flip": False,
        "start_step": 2, "images_per_class": images_per_class,
    }  # fmt: skip
    batches = take(data.make_views(source, 6, **options), 8)
    parts = [
        take(data.make_views(source, 6, shard=(i, count), **options), 8)
        for i in range(count)
    ]
    joined = [
        [np.concatenate(rows) for rows in zip(*step, strict=True)]
        for step in zip(*parts, strict=True)
    ]
    assert_equal(batches, joined)


def test_a_shard_reads_its_own_rows_only(source):
    """Here in the same order in each epoch: rows 2 and 3 of every 4."""

    def read(index):
        tf.debugging.assert_greater_equal(index % 4, tf.constant(2, tf.int64))
        return source.read(index)

    ordered = dataclasses.replace(
        source, read=read, records=lambda seeds: source.records(None)
    )
    shard_views = data.make_views(ordered, 4, shard=(1, 2))
    assert shard_views.element_spec[0].shape.as_list() == [2, 2, 16, 16, 3]
    labels = np.array([labels for _, labels in take(shard_views, 10)])
    assert (labels.flat == [2, 3, 6, 7, 10, 11, 14, 15, 18, 19] * 2).all()
    with pytest.raises(tf.errors.InvalidArgumentError):
        take(data.make_views(ordered, 4, shard=(0, 2)), 1)


def test_skipped_images_are_not_read(tmp_path):
    write(tmp_path, noise(10, 8, 8, 3))
    source = data.load("folder", "train", str(tmp_path))
    ((views, _),) = take(data.make_views(source, 2, seed=1), 1)
    assert len(source.ids) == 8 and views.shape == (2, 2, 8, 8, 3)
    for name in source.ids:
        (tmp_path / name).unlink()
    with pytest.raises(tf.errors.NotFoundError):
        take(data.make_views(source, 2, seed=1, start_step=2), 1)


def test_files_of_several_sizes(tmp_path):
    sizes = [(20, 30), (40, 25), (9, 9), (64, 48)]
    write(tmp_path / "train", [noise(*size, 3) for size in sizes])
    (tmp_path / "test").symlink_to(tmp_path / "train")
    source = data.load("folder", "train", str(tmp_path))
    for make in (data.make_views, data.make_examples):
        with pytest.raises(ValueError, match="`image_size` must be given in p"):
            make(source, 2)
    views, labels = take(data.make_views(source, 4, image_size=16), 1)[0]
    assert views.shape == (4, 2, 16, 16, 3)
    assert sorted(labels) == [0, 0, 1, 1]
    images, labels = take(data.make_examples(source, 4, image_size=16), 1)[0]
    assert images.shape == (4, 16, 16, 3) and list(labels) == [0, 0, 1, 1]
    for name, view in zip(source.ids, images, strict=True):  # as it is served
        contents = tf.io.read_file(str(tmp_path / name))
        expected = data.decode_central_view(contents, 16)
        np.testing.assert_array_equal(view, expected)


@pytest.mark.slow(but=["decoded_in_part"])
@pytest.mark.parametrize(
    "side, area",
    [(16, (0.2, 1.0)), (80, (0.2, 1.0)), (80, None)],
    ids="decoded_whole decoded_in_part no_crop".split(),
)
def test_files_give_the_views_of_their_pixels(tmp_path, side, area):
    write(tmp_path, noise(6, side, side, 3))
    for path in list(tmp_path.glob("*/[345].png")):
        Image.open(path).save(path.with_suffix(".jpg"))
        path.unlink()
    files = data.load("folder", "train", str(tmp_path), test_fraction=0.3)
    assert files.num_examples == 4 and files.image_size == side
    paths = [str(tmp_path / name) for name in files.ids]
    pixels = [data.decode_image(tf.io.read_file(path)) for path in paths]
    arrays = data.from_arrays(np.stack(pixels), [0, 1, 2, 3])
    options = {"image_size": 24, "crop_area": area, "seed": 4}
    batches = take(data.make_views(files, 4, **options), 2)
    expected = take(data.make_views(arrays, 4, **options), 2)
    for (views, _), (others, _) in zip(batches, expected, strict=True):
        np.testing.assert_array_equal(views, others)


def test_examples_come_once_in_order_with_the_rest(source):
    dataset = data.make_examples(source, 8)
    assert dataset.element_spec[0].shape.as_list() == [None, 16, 16, 3]
    batches = take(dataset, -1)
    assert [len(labels) for _, labels in batches] == [8, 8, 6]
    images = np.concatenate([images for images, _ in batches])
    np.testing.assert_array_equal(images, noise(22, 16, 16, 3))
    labels = np.concatenate([labels for _, labels in batches])
    np.testing.assert_array_equal(labels, np.arange(22))
    assert labels.dtype == np.int32


@pytest.mark.parametrize("in_file_order", [False, True])
@pytest.mark.parametrize("positions", [[0, 3, 4, 9, 20], [21], []])
def test_examples_at_positions_are_all_that_is_read(
    source, in_file_order, positions
):
    position_tensor = tf.constant(positions, tf.int64)

    def read(index):
        tf.debugging.Assert(tf.reduce_any(index == position_tensor), [index])
        return source.read(index)

    some = dataclasses.replace(source, read=read)
    if in_file_order:
        some = dataclasses.replace(some, labels=None)
    batches = take(data.make_examples(some, 3, positions=positions), -1)
    sizes = [len(labels) for _, labels in batches]
    assert sizes == {5: [3, 2], 1: [1], 0: []}[len(positions)]
    if positions:
        images, labels = map(np.concatenate, zip(*batches, strict=True))
        assert labels.tolist() == positions
        np.testing.assert_array_equal(images, noise(22, 16, 16, 3)[labels])
    with pytest.raises(tf.errors.InvalidArgumentError):
        take(data.make_examples(some, 3), -1)


def test_records_after_the_last_position_are_not_passed(source):
    def check(index):
        tf.debugging.assert_less(index, tf.constant(6, tf.int64))
        return index

    ordered = dataclasses.replace(
        source,
        records=lambda seeds: source.records(seeds).map(check),
        labels=None,
    )
    dataset = data.make_examples(ordered, 3, positions=[1, 5])
    assert [labels.tolist() for _, labels in take(dataset, -1)] == [[1, 5]]


def test_batches_are_divided_over_replicas(source, mirrored_strategy):
    """The replicas' parts, in order, are the global batch."""
    dataset = data.make_views(source, 4)
    distributed = mirrored_strategy.experimental_distribute_dataset(dataset)
    _, per_replica = next(iter(distributed))
    parts = mirrored_strategy.experimental_local_results(per_replica)
    assert [len(part) for part in parts] == [2, 2]
    assert np.concatenate(parts).tolist() == take(dataset, 1)[0][1].tolist()


@pytest.mark.parametrize(
    "options, message",
    [
        ({"batch_size": 23},
         r"`batch_size` must be in 1..num_examples, got 23 for the 22 examples "
         r"of arrays \(train\)"),
        ({"batch_size": 0}, "`batch_size` must be in 1..num_examples, got 0"),
        ({"num_views": 0}, r"`num_views` must be in 1..2\^31-1, got 0"),
        ({"seed": -1}, r"`seed` must be in 0..2\^31-1, got -1"),
        ({"seed": 2**31}, r"`seed` must be in 0..2\^31-1, got 2147483648"),
        ({"start_step": -1}, r"`start_step` must be in 0..2\^31-1, got -1"),
        ({"image_size": 0}, "`image_size` must be given .*, got 0"),
        ({"shard": (2, 2)}, r"`shard` must be .*, got \(2, 2\) and 4"),
        ({"shard": (-1, 2)}, r"`shard` must be .*, got \(-1, 2\) and 4"),
        ({"shard": (0, 3)},
         r"count must divide `batch_size`, got \(0, 3\) and 4"),
        ({"images_per_class": 3},
         "`images_per_class` must divide `batch_size`, got 3 and 4"),
    ],
)  # fmt: skip
def test_mistakes_are_named(source, options, message):
    with pytest.raises(ValueError, match=message):
        data.make_views(source, **{"batch_size": 4, **options})


@pytest.mark.parametrize("positions", [[3, 1], [2, 2], [-1, 0], [0, 22]])
def test_positions_are_places_in_order(source, positions):
    with pytest.raises(ValueError, match="`batch_size` must be in 1.*, got 0"):
        data.make_examples(source, 0)
    with pytest.raises(ValueError, match="`positions` must be asc.* 0..21, go"):
        data.make_examples(source, 4, positions=positions)
