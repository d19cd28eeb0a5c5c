"""TFRecord files: our own, and as others write them."""

import hashlib
import json

import numpy as np
import pytest
import tensorflow as tf

from supcon_tf import data
from supcon_tf.data import sources, subsets, tfrecord_writer

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
    return data.load("tfrecord", split, str(directory), **options)


def contents(source, seeds=None):
    """[(gray level, label)] in the order of the records."""
    dataset = source.records(seeds).map(source.read)
    return [
        (int(data.decode_image(image)[0, 0, 0]), label.numpy().tolist())
        for image, label in dataset
    ]


def test_what_is_written_is_read(tmp_path):
    lines = write(tmp_path, shard_examples=6)
    assert lines[0] == "train-00000-of-00004  5 of 20 images"
    assert lines[-1] == "test-00001-of-00002  7 of 7 images"
    train, test = load(tmp_path), load(tmp_path, "test")
    assert (train.num_examples, test.num_examples) == (20, 7)
    assert train.class_names == test.class_names == CLASSES
    assert train.image_size == 8 and not train.is_multi_label
    found = contents(train)
    assert sorted(found) == [(i, i % 3) for i in range(20)]
    assert found != sorted(found)  # classes are mixed
    assert sorted(contents(test)) == [(i, i % 3) for i in range(7)]
    shuffled = contents(train, tf.constant([1, 2]))
    assert sorted(shuffled) == sorted(found) and shuffled != found
    assert contents(train, tf.constant([1, 2])) == shuffled
    views, labels = next(iter(data.make_views(train, 4)))
    assert views.shape == (4, 2, 8, 8, 3)
    np.testing.assert_array_equal(views[:, 0, 0, 0, 0] % 3, labels)


def test_workers_share_the_files(tmp_path):
    write(tmp_path, shard_examples=6)
    parts = [contents(load(tmp_path, shard=(i, 3))) for i in range(3)]
    assert [len(part) for part in parts] == [10, 5, 5]
    assert sorted(sum(parts, [])) == [(i, i % 3) for i in range(20)]
    with pytest.raises(ValueError, match=r"the 4 files .* got \(0, 5\)"):
        load(tmp_path, shard=(0, 5))


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
    files = {x.name: x.read_bytes() for x in (tmp_path / "whole").iterdir()}
    assert len(files) == 8
    for name, content in files.items():
        assert (tmp_path / "part" / name).read_bytes() == content, name
    after = (tmp_path / "part/train-00000-of-00004").stat().st_mtime_ns
    assert before == after
    assert write(tmp_path / "part", shard_examples=6) == []
    for options in ({"shard_examples": 4}, {"seed": 1}):
        with pytest.raises(ValueError, match="be empty, or .* the same call"):
            write(tmp_path / "part", **{"shard_examples": 6, **options})


def test_a_source_without_labels_goes_on_in_another_process(tmp_path):
    """Its plan has nothing that only this process knows."""
    write(tmp_path / "first")
    in_file_order = load(tmp_path / "first"), load(tmp_path / "first", "test")
    write(tmp_path / "second", *in_file_order)
    hashed = hashlib.sha256(repr((CLASSES, None)).encode() * 2).hexdigest()
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
    held = subsets.subset(train, np.arange(4))
    assert held.is_multi_label and held.labels.shape == (4, 3)
    _, labels = next(iter(data.make_views(train, 4)))
    assert labels.shape == (4, 3) and labels.dtype == tf.uint8


def write_others(path, pairs, image="image", label="label"):
    """As TFDS or the Model Garden write them: no index, other labels."""
    with tf.io.TFRecordWriter(str(path)) as writer:
        for level, value in pairs:
            pixels = tf.fill([8, 8, 3], tf.constant(level, tf.uint8))
            content = tf.io.encode_png(pixels).numpy()
            if isinstance(value, str):
                of_label = tf.train.Feature(
                    bytes_list=tf.train.BytesList(value=[value.encode()])
                )
            else:
                of_label = tf.train.Feature(
                    int64_list=tf.train.Int64List(value=[value])
                )
            feature = {
                image: tf.train.Feature(
                    bytes_list=tf.train.BytesList(value=[content])
                ),
                label: of_label,
            }
            example = tf.train.Example(
                features=tf.train.Features(feature=feature)
            )
            writer.write(example.SerializeToString())


@pytest.mark.parametrize("values", [(7, 3), ("tabby", "poodle")])
def test_files_of_others(tmp_path, values):
    """Labels are counted from what is there; the look is kept."""
    first, second = values
    write_others(tmp_path / "latest-train-00000-of-00002", [(1, first)] * 3)
    write_others(tmp_path / "x-train.tfrecord-00001-of-00002", [(2, second)])
    write_others(
        tmp_path / "x-validation.tfrecord-00000-of-00001", [(3, first)]
    )
    names = {"tfrecord_features": ("image", "label", "text")}
    for _ in range(2):
        train = load(tmp_path, **names)
        assert train.class_names == tuple(sorted(map(str, values)))
        assert contents(train) == [(1, 1)] * 3 + [(2, 0)]
        assert contents(load(tmp_path, "test", **names)) == [(3, 1)]
        index = json.loads((tmp_path / "tfrecords.json").read_text())
        assert index["values"] == sorted(values)
    # More files, another look.
    write_others(tmp_path / "x-train.tfrecord-00002-of-00003", [(4, first)])
    assert load(tmp_path, **names).num_examples == 5


def test_what_is_wrong_is_named(tmp_path):
    with pytest.raises(ValueError, match="`data_dir` must be a folder"):
        load(tmp_path / "none")
    with pytest.raises(ValueError, match="must hold TFRecord files .* got 0"):
        load(tmp_path)
    write_others(tmp_path / "train-00000-of-00001", [(1, 1), (2, 2)])
    test = tmp_path / "test-00000-of-00001"
    write_others(test, [(1, 1)])
    with pytest.raises(
        ValueError,
        match="must have the features image/enc.*"
        "--tfrecord_features names others, got image, label",
    ):
        load(tmp_path)
    names = {"tfrecord_features": ("image", "label", "text")}
    write_others(test, [(1, 1), (3, 9)])
    with pytest.raises(ValueError, match=r"every label, got 1 .* \[9\]"):
        load(tmp_path, **names)
    write_others(test, [(1, 1), (2, 2)])
    test.write_bytes(test.read_bytes()[:-9])
    with pytest.raises(ValueError, match="test-00000-of-00001:2 must be an ex"):
        load(tmp_path, **names)
    assert not (tmp_path / "tfrecords.json").exists()
    floats = data.from_arrays(
        np.zeros([4, 8, 8, 3]), [0, 1, 0, 1], pixel_range=(0, 1)
    )
    with pytest.raises(ValueError, match="RGB images of bytes, got 3 channels"):
        tfrecord_writer.write_tfrecords({"train": floats}, tmp_path / "new")
