"""Batches: shapes, epochs, seeds, resuming and evaluation order."""

import dataclasses
import itertools

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from supcon_tf import data

IMAGES = np.random.default_rng(0).integers(0, 256, [22, 16, 16, 3], np.uint8)
UNCHANGED = {"crop_area": None, "horizontal_flip": False}


def plus_seed(images, seeds):
    """A policy that adds a number drawn from the seed."""
    amount = tf.cast(tf.abs(seeds[:, 0]) % 200, tf.uint8)
    return images + amount[:, None, None, None]


@pytest.fixture(scope="module")
def source():
    """22 noise images of 16 px; the label of an image is its index."""
    return data.from_arrays(IMAGES, np.arange(22))


@pytest.fixture(scope="module")
def batches(source):
    """Three epochs of five steps."""
    return take(data.make_views(source, 4, 2, plus_seed, seed=5), 15)


@pytest.fixture(scope="module")
def epochs(source):
    """Three epochs of one step."""
    return take(data.make_views(source, 22, 3, plus_seed, seed=5), 3)


def take(dataset, count):
    """Returns `count` batches as lists of (views, labels) arrays."""
    return list(dataset.take(count).as_numpy_iterator())


def joined(batches):
    """The batches as one: (views, labels)."""
    return tuple(map(np.concatenate, zip(*batches, strict=True)))


def assert_equal(batches, others):
    for arrays, other_arrays in zip(batches, others, strict=True):
        for array, other_array in zip(arrays, other_arrays, strict=True):
            np.testing.assert_array_equal(array, other_array)


def test_shapes_are_static(source):
    late = {"start_step": 10**9}  # No earlier step is read.
    views = data.make_views(source, 4, 3, plus_seed, image_size=12, **late)
    images, labels = views.element_spec
    assert images == tf.TensorSpec([4, 3, 12, 12, 3], tf.uint8)
    assert labels == tf.TensorSpec([4], tf.int32)
    # For Keras to ask for the steps of an epoch.
    assert views.cardinality() == tf.data.INFINITE_CARDINALITY
    images, labels = next(iter(views))
    assert images.shape == [4, 3, 12, 12, 3] and labels.shape == [4]


def test_every_epoch_is_a_fresh_permutation(source, batches):
    assert data.steps_per_epoch(source, 4) == 5
    labels = np.array([labels for _, labels in batches]).reshape(3, 20)
    for epoch in labels:
        assert len(set(epoch)) == 20  # 22 // 4 * 4, none of them twice.
    assert len({tuple(epoch) for epoch in labels}) == 3
    assert len({frozenset(epoch) for epoch in labels}) > 1  # Others left out.


def test_the_seed_alone_gives_the_sequence_from_any_step(source, batches):
    tf.random.set_seed(99)
    options = {"seed": 5, "start_step": 6}
    resumed = data.make_views(source, 4, 2, plus_seed, **options)
    for _ in range(2):
        assert_equal(batches[6:], take(resumed, 9))


def test_neither_batch_size_nor_number_of_views_changes_a_view(batches, epochs):
    """A view depends on its epoch, position and number only."""
    for index, (views, labels) in enumerate(epochs):
        small_batches = joined(batches[5 * index : 5 * index + 5])
        assert_equal([small_batches], [(views[:20, :2], labels[:20])])


def test_views_and_seeds_get_draws_of_their_own(source):
    """The same position of the same epoch, by two seeds."""
    orders, amounts = [], []
    for seed in (1, 2):
        options = {"augmentation": plus_seed, "seed": seed, **UNCHANGED}
        ((views, order),) = take(data.make_views(source, 22, 3, **options), 1)
        changes = views - IMAGES[order][:, None]  # modulo 256
        orders.append(order)
        amounts.append(changes[..., 0, 0, 0])  # [22, 3]
    assert (orders[0] != orders[1]).any()
    assert (amounts[0] == amounts[1]).mean() < 0.05
    for first, second in itertools.combinations(amounts[0].T, 2):
        assert (first == second).mean() < 0.1


@pytest.mark.parametrize(
    "options",
    [{"horizontal_flip": False}, {"augmentation": plus_seed} | UNCHANGED],
    ids=["crops", "policy"],
)
def test_images_of_a_batch_and_epochs_get_draws_of_their_own(options):
    copies = data.from_arrays(np.repeat(IMAGES[:1], 32, 0), [0] * 32)
    views, _ = joined(take(data.make_views(copies, 32, **options), 2))
    assert len({view.tobytes() for view in views.reshape(128, -1)}) > 80


def test_flips_are_drawn_per_view(source):
    dataset = data.make_views(source, 22, 2, crop_area=None)
    views, labels = joined(take(dataset, 10))
    images = IMAGES[labels][:, None]  # [220, 1, S, S, C]
    is_same = (views == images).all((2, 3, 4))
    is_mirrored = (views == images[:, :, :, ::-1]).all((2, 3, 4))  # [220, 2]
    np.testing.assert_array_equal(is_same, ~is_mirrored)
    assert 0.4 < is_mirrored.mean() < 0.6
    assert 0.4 < (is_mirrored[:, 0] != is_mirrored[:, 1]).mean() < 0.6


def test_a_crop_of_the_whole_area_is_the_image(source):
    whole = {"crop_area": (1.0, 1.0), "crop_aspect": (1.0, 1.0)}
    dataset = data.make_views(source, 22, 1, horizontal_flip=False, **whole)
    ((views, labels),) = take(dataset, 1)
    np.testing.assert_array_equal(views[:, 0], IMAGES[labels])


def test_batches_can_be_class_balanced_and_sharded(source):
    """In the order of `class_balanced`, with the views of any order."""
    classes = dataclasses.replace(source, labels=np.arange(22) % 3)
    options = {"seed": 3, "images_per_class": 2, "augmentation": plus_seed}
    options |= UNCHANGED
    batches = take(data.make_views(classes, 6, **options), 9)
    for _, indices in batches:  # `read` still gives the indices as labels.
        assert (np.bincount(indices % 3) == 2).all()
        assert len(set(indices)) == 6
    options |= {"start_step": 4}  # 3 steps per epoch.
    parts = [
        take(data.make_views(classes, 6, shard=(index, 2), **options), 5)
        for index in range(2)
    ]
    assert_equal(batches[4:], map(joined, zip(*parts, strict=True)))


def test_only_rows_of_the_shard_and_of_later_steps_are_read(source):
    """Here in the same order in each epoch."""

    def reading(rule):
        def read(index):
            tf.debugging.Assert(rule(index), [index])
            return source.read(index)

        return dataclasses.replace(
            source, read=read, records=lambda seeds: source.records(None)
        )

    last_rows = reading(lambda index: index % 4 >= 2)
    shard_views = data.make_views(last_rows, 4, shard=(1, 2), **UNCHANGED)
    assert shard_views.element_spec[0].shape.as_list() == [2, 2, 16, 16, 3]
    labels = np.array([labels for _, labels in take(shard_views, 10)])
    assert (labels.flat == [2, 3, 6, 7, 10, 11, 14, 15, 18, 19] * 2).all()
    with pytest.raises(tf.errors.InvalidArgumentError):
        take(data.make_views(last_rows, 4, shard=(0, 2), **UNCHANGED), 1)
    late = reading(lambda index: index >= 4)
    views = data.make_views(late, 2, start_step=2, **UNCHANGED)
    assert joined(take(views, 8))[1].tolist() == [*range(4, 20)]


def write(root, images):
    """Writes images into the class folders a and b by turns, as PNG."""
    for index, image in enumerate(images):
        path = root / "ab"[index % 2]
        path.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(path / f"{index}.png")


def test_files_of_several_sizes(tmp_path):
    sizes = [(20, 30), (40, 25), (9, 9), (64, 48)]
    write(tmp_path / "train", [np.resize(IMAGES, [*s, 3]) for s in sizes])
    (tmp_path / "test").symlink_to(tmp_path / "train")
    source = data.load(tmp_path, check_images=False)
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
    noise = np.random.default_rng(0).integers(0, 256, [6, side, side, 3])
    write(tmp_path, noise.astype(np.uint8))
    for path in list(tmp_path.glob("*/[345].png")):
        Image.open(path).save(path.with_suffix(".jpg"))
        path.unlink()
    files = data.load(tmp_path, test_fraction=0.3)
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
    assert batches[0][1].dtype == np.int32
    assert_equal([joined(batches)], [(IMAGES, np.arange(22))])


@pytest.mark.parametrize("in_file_order", [False, True])
@pytest.mark.parametrize("positions", [[0, 3, 4, 9, 20], []])
def test_examples_at_positions_are_all_that_is_read(
    source, in_file_order, positions
):
    def read(index):
        is_chosen = tf.reduce_any(index == tf.constant(positions, tf.int64))
        tf.debugging.Assert(is_chosen, [index])
        return source.read(index)

    some = dataclasses.replace(source, read=read)
    if in_file_order:
        some = dataclasses.replace(some, labels=None)
    batches = take(data.make_examples(some, 3, positions=positions), -1)
    assert [len(labels) for _, labels in batches] == [3, 2][: len(positions)]
    if positions:
        assert_equal([joined(batches)], [(IMAGES[positions], positions)])
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
    dataset = data.make_views(source, 4, **UNCHANGED)
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
        ({"seed": 2**31}, r"`seed` must be in 0..2\^31-1, got 2147483648"),
        ({"start_step": -1}, r"`start_step` must be in 0..2\^31-1, got -1"),
        ({"image_size": 0}, "`image_size` must be given .*, got 0"),
        ({"shard": (2, 2)}, r"`shard` must be .*, got \(2, 2\) and 4"),
        ({"shard": (0, 3)},
         r"count must divide `batch_size`, got \(0, 3\) and 4"),
        ({"images_per_class": 3},
         "`images_per_class` must divide `batch_size`, got 3 and 4"),
    ],
)  # fmt: skip
def test_mistakes_are_named(source, options, message):
    with pytest.raises(ValueError, match=message):
        data.make_views(source, **{"batch_size": 4, **options})


def test_positions_of_examples_rise(source):
    with pytest.raises(ValueError, match="`batch_size` must be in 1.*, got 0"):
        data.make_examples(source, 0)
    for positions in ([3, 1], [2, 2], [-1, 0], [0, 22]):
        with pytest.raises(ValueError, match="`positions` must be asc.* 0..21"):
            data.make_examples(source, 4, positions=positions)
