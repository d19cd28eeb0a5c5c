"""TFRecord files: written by this package, and by other programs."""

import dataclasses
import hashlib
import json
import os

import numpy as np
import pytest
import tensorflow as tf

from supcon_tf import data
from supcon_tf.data import (
    partition,
    sources,
    subsets,
    tfrecord_index,
    tfrecord_writer,
)

CLASSES = ("cat", "dog", "emu")


def make_source(split="train", count=20, labels=None):
    """Images whose gray level is their number; label = number modulo 3."""
    images = np.broadcast_to(
        np.arange(count, dtype=np.uint8)[:, None, None, None], [count, 8, 8, 3]
    )
    if labels is None:
        return data.from_arrays(images, np.arange(count) % 3, CLASSES, split)
    return sources.Source(
        split, split, CLASSES, image_size=8, **sources.by_index(images, labels)
    )


def write(directory, train=None, test=None, **options):
    splits = {
        "train": train or make_source(),
        "test": test or make_source("test", 7),
    }
    lines = []
    data.write_tfrecords(splits, directory, tell=lines.append, **options)
    return lines


def load(directory, split="train", **options):
    options = {"check_images": False, **options}
    return data.load("tfrecord", split, str(directory), **options)


def contents(source, seeds=None):
    """[(gray level, label)] in the order of the records."""
    dataset = source.records(seeds).map(source.read)
    return [
        (int(data.decode_image(image)[0, 0, 0]), label.numpy().tolist())
        for image, label in dataset
    ]


def test_written_records_are_read(tmp_path):
    lines = write(tmp_path, shard_examples=6)
    assert lines[0] == "train-00000-of-00004  5 of 20 images"
    assert lines[-1] == "test-00001-of-00002  7 of 7 images"
    train, test = load(tmp_path, check_images=True), load(tmp_path, "test")
    assert (train.num_examples, test.num_examples) == (20, 7)
    assert train.class_names == test.class_names == CLASSES
    assert train.image_size == 8 and not train.is_multi_label
    examples = contents(train)
    assert sorted(examples) == [(i, i % 3) for i in range(20)]
    assert examples != sorted(examples)  # classes are mixed
    assert sorted(contents(test)) == [(i, i % 3) for i in range(7)]
    shuffled = contents(train, tf.constant([1, 2]))
    assert sorted(shuffled) == sorted(examples) and shuffled != examples
    assert contents(train, tf.constant([1, 2])) == shuffled


def test_workers_share_the_files(tmp_path):
    write(tmp_path, shard_examples=6)
    parts = [contents(load(tmp_path, shard=(i, 3))) for i in range(3)]
    assert [len(part) for part in parts] == [10, 5, 5]
    assert sorted(sum(parts, [])) == [(i, i % 3) for i in range(20)]
    message = r"the 4 files .* got \(0, 5\); `auto_shard` has no such"
    with pytest.raises(ValueError, match=message):
        load(tmp_path, shard=(0, 5))


def test_a_worker_must_have_images(tmp_path):
    """It would look for a first image for ever."""
    write(tmp_path, shard_examples=10)
    (tmp_path / "train-00001-of-00002").write_bytes(b"")
    assert load(tmp_path).num_examples == 10
    for index in range(2):  # else one worker would wait for the other
        with pytest.raises(
            ValueError, match="images in the files of each of the 2 .* for 1$"
        ):
            load(tmp_path, shard=(index, 2))


@pytest.mark.parametrize("values", [(7, 3), ("tabby", "poodle")])
def test_a_label_may_be_its_own_name(tmp_path, values):
    for split in ("train", "test"):
        path = tmp_path / f"{split}-00000-of-00001"
        write_foreign(path, [*enumerate(values)])
    source = load(tmp_path, tfrecord_features=("image", "label", "label"))
    assert source.class_names == tuple(sorted(map(str, values)))
    assert contents(source) == [(0, 1), (1, 0)]


@pytest.mark.parametrize("compression", ["", "GZIP"])
def test_the_first_file_may_be_empty(tmp_path, compression):
    write(tmp_path, shard_examples=10)
    for path in tmp_path.glob("*-of-*"):
        examples = [*tf.data.TFRecordDataset(str(path)).as_numpy_iterator()]
        if path.name.startswith("train-00000"):
            examples = []
        with tf.io.TFRecordWriter(str(path), compression) as writer:
            for example in examples:
                writer.write(example)
    assert load(tmp_path).num_examples == 10


def test_a_stopped_writer_goes_on(tmp_path):
    """The same files as without a stop, and those that were whole stay."""
    write(tmp_path / "whole", shard_examples=6)

    def stop(line):
        if line.startswith("train-00001"):
            raise KeyboardInterrupt

    splits = {"train": make_source(), "test": make_source("test", 7)}
    with pytest.raises(KeyboardInterrupt):
        data.write_tfrecords(splits, tmp_path / "part", 6, tell=stop)
    assert not (tmp_path / "part/tfrecords.json").exists()
    with pytest.raises(ValueError, match="must hold TFRecord files"):
        load(tmp_path / "part")
    (tmp_path / "part/.train-00002-of-00004.partial").write_bytes(b"half")
    before = (tmp_path / "part/train-00000-of-00004").stat().st_mtime_ns
    lines = write(tmp_path / "part", shard_examples=6)
    assert lines[0].startswith("train-00002-of-00004  15 of 20")
    files = {
        path.name: path.read_bytes() for path in (tmp_path / "whole").iterdir()
    }
    assert len(files) == 8
    index = json.loads(files.pop("tfrecords.json"))
    part_index = json.loads((tmp_path / "part/tfrecords.json").read_text())
    assert index.pop("states") and part_index.pop("states")  # times
    assert index == part_index
    for name, content in files.items():
        assert (tmp_path / "part" / name).read_bytes() == content, name
    after = (tmp_path / "part/train-00000-of-00004").stat().st_mtime_ns
    assert before == after
    assert write(tmp_path / "part", shard_examples=6) == []
    for options in ({"shard_examples": 4}, {"seed": 1}):
        with pytest.raises(ValueError, match="be empty, or .* the same call"):
            write(tmp_path / "part", **{"shard_examples": 6, **options})


@pytest.mark.slow
def test_a_source_without_labels_goes_on_in_another_process(tmp_path):
    """Its plan has nothing that only this process knows."""
    write(tmp_path / "first")
    in_file_order = load(tmp_path / "first"), load(tmp_path / "first", "test")
    write(tmp_path / "second", *in_file_order)
    names = [(CLASSES, None, source.fingerprint()) for source in in_file_order]
    hashed = hashlib.sha256("".join(map(repr, names)).encode()).hexdigest()
    plan = json.loads((tmp_path / "second/.plan.json").read_text())
    assert plan["data"] == hashed
    assert sorted(contents(load(tmp_path / "second"))) == [
        (i, i % 3) for i in range(20)
    ]


def test_several_labels(tmp_path):
    labels = np.array([[1, 0, 1], [0, 0, 0], [0, 1, 0], [1, 1, 1]])
    several = make_source(count=4, labels=labels)
    write(tmp_path, several, make_source("test", 2, labels[:2]))
    train = load(tmp_path)
    assert train.is_multi_label and train.class_names == CLASSES
    assert sorted(contents(train)) == [
        (i, row.tolist()) for i, row in enumerate(labels)
    ]
    in_memory = subsets.subset(train, np.arange(4))
    assert in_memory.is_multi_label and in_memory.labels.shape == (4, 3)
    assert train.read(next(iter(train.records(None))))[1].dtype == tf.uint8


def test_labels_are_no_flags_of_all_classes(tmp_path):
    """Of boxes in an image, whose number differs, any label may come again."""

    def write_labels(*label_lists):
        paths = [tmp_path / f"{split}-1-of-1" for split in ("train", "test")]
        for path in paths:
            for labels in label_lists:
                values = tf.train.Int64List(value=labels)
                options = {"label": tf.train.Feature(int64_list=values)}
                part = tmp_path / "part"
                write_foreign(part, [(1, 1)], **options)
                with path.open("ab") as file:
                    file.write(part.read_bytes())

    write_labels([1, 1, 0], [0, 1])
    assert load(tmp_path, **FOREIGN).class_names == ("0", "1")
    for path in tmp_path.glob("*-of-1"):
        path.unlink()
    write_labels([0, 1, 0], [1, 0, 0])
    with pytest.raises(
        ValueError, match="train-1-of-1:1 must .* not 0 or 1 fo"
    ):
        load(tmp_path, **FOREIGN)


def test_an_example_without_a_label_is_named(tmp_path):
    """Unless others have several, or the index says that they may."""
    labels = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 0]])
    write(tmp_path, *(make_source(s, 4, labels) for s in ("train", "test")))
    assert load(tmp_path).is_multi_label
    for path in tmp_path.glob("*-of-*"):
        os.utime(path, (1, 1))  # as of a copy
    assert load(tmp_path).is_multi_label
    (tmp_path / "tfrecords.json").unlink()
    with pytest.raises(
        ValueError,
        match="train-00000-of-00001:[1-4] must have a label, .*class/label, as "
        "no example has several, got none: .* a column labels",
    ):
        load(tmp_path)


def feature(value):
    if isinstance(value, int):
        numbers = tf.train.Int64List(value=[value])
        return tf.train.Feature(int64_list=numbers)
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))


def write_foreign(path, pairs, **others):
    """As TFDS or the Model Garden write files: no index, other labels.

    `others` are more features of each example.
    """
    with tf.io.TFRecordWriter(str(path)) as writer:
        for level, label in pairs:
            pixels = tf.fill([8, 8, 3], tf.constant(level, tf.uint8))
            values = {
                "image": tf.io.encode_png(pixels).numpy(),
                "label": label.encode() if isinstance(label, str) else label,
            }
            features = {name: feature(values[name]) for name in values}
            features |= others
            example = tf.train.Example(
                features=tf.train.Features(feature=features)
            )
            writer.write(example.SerializeToString())


FOREIGN = {"tfrecord_features": ("image", "label", "text")}


@pytest.mark.slow(but=["values0"])
@pytest.mark.parametrize("values", [(7, 3), ("tabby", "poodle")])
def test_foreign_files(tmp_path, values):
    """The records give the classes; the index is written once."""
    first, second = values
    write_foreign(tmp_path / "latest-train-00000-of-00002", [(1, first)] * 3)
    write_foreign(tmp_path / "x-train.tfrecord-00001-of-00002", [(2, second)])
    write_foreign(
        tmp_path / "x-validation.tfrecord-00000-of-00001", [(3, first)]
    )
    for _ in range(2):
        train = load(tmp_path, **FOREIGN)
        assert train.class_names == tuple(sorted(map(str, values)))
        assert contents(train) == [(1, 1)] * 3 + [(2, 0)]
        assert contents(load(tmp_path, "test", **FOREIGN)) == [(3, 1)]
        index = json.loads((tmp_path / "tfrecords.json").read_text())
        train_labels = [[value, str(value)] for value in sorted(values)]
        assert index["labels"]["train"] == train_labels
    # More files: another index.
    write_foreign(tmp_path / "x-train.tfrecord-00002-of-00003", [(4, first)])
    assert load(tmp_path, **FOREIGN).num_examples == 5


def test_other_features_of_the_same_files(tmp_path):
    """Their labels are among those of the first; the cache knows both."""
    mask = feature(tf.io.encode_png(np.full([6, 6, 3], 9, np.uint8)).numpy())
    others = {"mask": mask, "coarse": feature(1)}
    for split in ("train", "test"):
        path = tmp_path / f"{split}-00000-of-00001"
        write_foreign(path, [(1, 1), (2, 2)], **others)
    for _ in range(2):
        source = load(tmp_path, check_images=True, **FOREIGN)
        assert (source.image_size, source.class_names) == (8, ("1", "2"))
        assert contents(source) == [(1, 0), (2, 1)]
        digests = source.digests
        names = "mask", "coarse", "text"
        source = load(tmp_path, check_images=True, tfrecord_features=names)
        assert (source.image_size, source.class_names) == (6, ("1",))
        assert contents(source) == [(9, 0)] * 2
        assert not np.isin(source.digests, digests).any()


def write_weighted(directory, weights, last=None):
    """An example for each weight, of its own class; `last` is more features."""
    for split in ("train", "test"):
        path = directory / f"{split}-00000-of-00001"
        parts = []
        for level, weight in enumerate(weights):
            number = tf.train.FloatList(value=[weight])
            options = {"image/weight": tf.train.Feature(float_list=number)}
            if level + 1 == len(weights):
                options |= last or {}
            write_foreign(path, [(level, level)], **options)
            parts.append(path.read_bytes())
        path.write_bytes(b"".join(parts))


def test_new_weights_of_the_same_images(tmp_path):
    for weights in ([1, 3], [1, 7]):
        write_weighted(tmp_path, weights)
        source = load(tmp_path, **FOREIGN)
        expected = np.array(weights) / np.mean(weights)
        np.testing.assert_allclose(source.weights, expected)
        read = [*map(source.read_weight, source.records(None))]
        np.testing.assert_allclose(read, expected)


def test_weights_stay_0_without_the_image_of_all_weight(tmp_path):
    bad = {"image": feature(b"no image")}
    write_weighted(tmp_path, [0, 0, 5], last=bad)
    options = {"check_images": True, "skip_bad_images": True}
    source = load(tmp_path, **options, **FOREIGN)
    read = map(source.read_weight, source.records(None))
    assert source.weights.tolist() == [*map(float, read)] == [0, 0]


def test_a_record_without_an_image_is_a_bad_image(tmp_path):
    empty = tf.train.Feature(bytes_list=tf.train.BytesList(value=[]))
    for split in ("train", "test"):
        path = tmp_path / f"{split}-00000-of-00001"
        write_foreign(path, [(1, 1)], image=empty)
        last = path.read_bytes()
        write_foreign(path, [(1, 1), (2, 2)])
        path.write_bytes(path.read_bytes() + last)
    with pytest.raises(ValueError, match="00001:3 .*JPEG or PNG, got 0 bytes"):
        load(tmp_path, check_images=True, **FOREIGN)
    options = {"check_images": True, "skip_bad_images": True}
    source = load(tmp_path, **options, **FOREIGN)
    assert source.skipped == ("train-00000-of-00001:3",)
    assert contents(source) == [(1, 0), (2, 1)]


def test_mistakes_are_named(tmp_path):
    with pytest.raises(ValueError, match="`data_dir` must be a folder"):
        load(tmp_path / "none")
    with pytest.raises(ValueError, match="must hold TFRecord files .* got 0"):
        load(tmp_path)
    write_foreign(tmp_path / "train-00000-of-00001", [(1, 1), (2, 2)])
    test = tmp_path / "test-00000-of-00001"
    write_foreign(test, [(1, 1)])
    with pytest.raises(
        ValueError,
        match="must have the features image/enc.*"
        "`tfrecord_features` names others, got image, label",
    ):
        load(tmp_path)
    write_foreign(test, [(1, 1), (3, 9)])
    with pytest.raises(ValueError, match=r"every class .*: - 2, \+ 9"):
        load(tmp_path, **FOREIGN)
    write_foreign(test, [(1, 1), (2, 2)])
    (tmp_path / "tfrecords.json").unlink()
    test.write_bytes(test.read_bytes()[:-9])
    with pytest.raises(ValueError, match="test-00000-of-00001:2 must be an ex"):
        load(tmp_path, **FOREIGN)
    assert not (tmp_path / "tfrecords.json").exists()
    floats = data.from_arrays(
        np.zeros([4, 8, 8, 3]), [0, 1, 0, 1], pixel_range=(0, 1)
    )
    with pytest.raises(ValueError, match="RGB images of bytes, got 3 channels"):
        tfrecord_writer.write_tfrecords({"train": floats}, tmp_path / "new")


def test_changed_files_of_the_same_names_are_read_again(tmp_path):
    """Of the same number and size, even: only their time tells."""
    train, test = (
        tmp_path / f"{split}-00000-of-00001" for split in ("train", "test")
    )
    for labels in ((1, 2), (3, 4)):
        for path in (train, test):
            write_foreign(path, [(10, labels[0]), (20, labels[1])])
        source = load(tmp_path, **FOREIGN)
        assert source.class_names == tuple(map(str, labels))
        assert contents(source) == [(10, 0), (20, 1)]
        first = source.fingerprint()
    before = json.loads((tmp_path / "tfrecords.json").read_text())
    os.utime(train, (1, 1))  # as of a copy
    assert load(tmp_path, **FOREIGN).fingerprint() != first
    after = json.loads((tmp_path / "tfrecords.json").read_text())
    assert before.pop("states") != after.pop("states") and before == after
    for damage in ("{", "[]"):
        (tmp_path / "tfrecords.json").write_text(damage)
        assert load(tmp_path, **FOREIGN).class_names == ("3", "4")


def test_a_copy_keeps_classes_without_an_image(tmp_path):
    images = np.zeros([4, 8, 8, 3], np.uint8)
    source = data.from_arrays(images, [0, 1, 0, 1], CLASSES)
    write(tmp_path, source, source)
    assert load(tmp_path).class_names == CLASSES
    for path in tmp_path.glob("*-of-*"):
        os.utime(path, (1, 1))
    assert load(tmp_path).class_names == CLASSES


def test_two_labels_of_one_name_stay_two_classes(tmp_path):
    """As crane, the bird and the machine, of ImageNet."""
    several = make_source(), make_source("test", 7)
    write(tmp_path, *several)
    index = json.loads((tmp_path / "tfrecords.json").read_text())
    assert index["labels"]["train"][1] == [1, "dog"]
    labels = {"train": {3: "dog", 1: "crane", 2: "crane"}, "test": {2: "crane"}}
    assert tfrecord_index._distinct(labels) == {
        "train": [(1, "crane [0]"), (2, "crane [1]"), (3, "dog")],
        "test": [(2, "crane [1]")],
    }
    with pytest.raises(ValueError, match="label 1 must have one name .* a and"):
        tfrecord_index._distinct({"train": {1: "a"}, "test": {1: "b"}})


def test_weights_are_written_and_read(tmp_path):
    """Each stays with its image, in any order."""
    weights = np.arange(20, dtype=np.float32) / 9.5
    source = make_source()
    train = dataclasses.replace(
        source,
        **sources.by_index(
            np.arange(20), source.labels, lambda i: source.read(i)[0], weights
        ),
    )
    write(tmp_path, train, shard_examples=6)
    others = dataclasses.replace(train, weights=weights[::-1])
    with pytest.raises(ValueError, match="be empty, or .* the same call"):
        write(tmp_path, others, shard_examples=6)
    written = load(tmp_path)
    gray = [level for level, _ in contents(written)]
    np.testing.assert_allclose(written.weights, weights[gray], rtol=1e-6)
    assert load(tmp_path, "test").weights is None
    in_memory = subsets.subset(written, np.arange(3, 20))
    rest = written.weights[3:]
    np.testing.assert_allclose(in_memory.weights, rest / rest.mean())
    part = load(tmp_path, shard=(1, 3))
    unchanged = {"crop_area": None, "horizontal_flip": False}
    views = data.make_views(part, 6, shard=(1, 3), **unchanged)
    for images, _, batch_weights in views.take(4):
        levels = images[:, 0, 0, 0, 0].numpy()
        np.testing.assert_allclose(batch_weights, levels / 9.5, rtol=1e-5)


@pytest.mark.parametrize("weights", [[-1.0, 1.0], [1.0, np.nan], [0.0, 0.0]])
def test_weights_that_are_none_are_refused(weights, tmp_path):
    with pytest.raises(ValueError, match="must have weights of 0 or more, som"):
        tfrecord_index._check_weights(
            tmp_path, {"train": weights}, {"train": {"train-0-of-1": 2}}
        )


def test_an_index_that_cannot_be_written_is_not_needed(tmp_path, monkeypatch):
    """As in a bucket that others may only read."""
    write(tmp_path)
    (tmp_path / "tfrecords.json").unlink()

    def refuse(*_):
        raise tf.errors.PermissionDeniedError(None, None, "read-only")

    monkeypatch.setattr(tfrecord_index.Index, "write", refuse)
    assert load(tmp_path).num_examples == 20


@pytest.mark.slow
def test_a_test_split_of_unseen_classes(tmp_path):
    unseen = data.from_arrays(
        np.zeros([4, 8, 8, 3], np.uint8), [0, 1, 0, 1], ["elk", "fox"]
    )
    write(tmp_path, make_source(), unseen)
    for _ in range(2):
        assert load(tmp_path).class_names == CLASSES
        test = load(tmp_path, "test")
        assert test.class_names == ("elk", "fox")
        assert sorted(label for _, label in contents(test)) == [0, 0, 1, 1]
        (tmp_path / "tfrecords.json").unlink()  # as the files tell


@pytest.mark.slow(but=["GZIP"])
@pytest.mark.parametrize("compression", ["GZIP", "ZLIB"])
def test_compressed_files_are_read(tmp_path, compression):
    write(tmp_path / "plain")
    for path in (tmp_path / "plain").glob("*-of-*"):
        copy = str(tmp_path / path.name)
        with tf.io.TFRecordWriter(copy, compression) as writer:
            for record in tf.data.TFRecordDataset(str(path)):
                writer.write(record.numpy())
    assert contents(load(tmp_path)) == contents(load(tmp_path / "plain"))


def with_bad_images(directory):
    """Three files, of which the second has a text and a half PNG file."""
    write(directory, shard_examples=7)
    path = directory / "train-00001-of-00003"
    records = [tensor.numpy() for tensor in tf.data.TFRecordDataset(str(path))]
    with tf.io.TFRecordWriter(str(path)) as writer:
        for number, record in enumerate(records):
            example = tf.train.Example.FromString(record)
            values = example.features.feature["image/encoded"].bytes_list.value
            if number in (2, 5):
                values[0] = values[0][:30] if number == 2 else b"a text"
            writer.write(example.SerializeToString())
    return directory


def test_bad_images_are_found_before_a_training(tmp_path):
    directory = with_bad_images(tmp_path)
    for _ in range(2):  # what was seen is remembered
        with pytest.raises(
            ValueError,
            match="2 bad ones of 20: train-00001-of-00003:3, "
            r"train-00001-of-00003:6 \(the first: Invalid PNG",
        ):
            load(directory, check_images=True)
    assert load(directory).num_examples == 20
    skipping = {"check_images": True, "skip_bad_images": True}
    source = load(directory, **skipping)
    assert source.num_examples == len(source.digests) == 18
    names = [f"train-00001-of-00003:{number}" for number in (3, 6)]
    assert source.skipped == tuple(names)
    levels = sorted(level for level, _ in contents(source))
    assert len(levels) == 18
    parts = [
        contents(load(directory, shard=(i, 3), **skipping)) for i in range(3)
    ]
    assert [len(part) for part in parts] == [7, 5, 6]
    assert sorted(level for part in parts for level, _ in part) == levels
    views = data.make_views(source, 6, crop_area=None)
    assert len([*views.take(6)]) == 6  # two epochs


def test_a_split_is_a_word_of_a_name():
    for name, split in (
        ("strain-test-00000-of-00001", "test"),
        ("constraints-train.tfrecord-00000-of-00001", "train"),
        ("test_set-training-00000-of-00001", "train"),
        ("x_validation_00000-of-00001", "val"),
        ("trains-00000-of-00001", None),
    ):
        assert partition.split_of_file(name) == split
