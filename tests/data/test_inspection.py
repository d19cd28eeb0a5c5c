"""The inspection of images, and its cache."""

import dataclasses
import os
import pathlib
import shutil

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from supcon_tf import data
from supcon_tf.data import cache, inspection, progress, subsets
from tests.data.test_folder import make_folder, write_image


@pytest.fixture(autouse=True)
def cache_home(tmp_path_factory, monkeypatch):
    home = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("XDG_CACHE_HOME", str(home))
    return home / "supcon_tf/images"


@pytest.fixture
def counts(monkeypatch):
    """How many images each inspection decodes."""
    counts, decode_all = [], inspection._decode_all

    def counted(dataset, read, count, inspected):
        counts.append(count)
        decode_all(dataset, read, count, inspected)

    monkeypatch.setattr(inspection, "_decode_all", counted)
    return counts


@pytest.fixture
def folder(tmp_path):
    make_folder(tmp_path / "train", {"a": 3, "b": 4})
    make_folder(tmp_path / "test", {"a": 2, "b": 1})
    return tmp_path


def load(root, split="train", **options):
    return data.load("folder", split, str(root), **options)


def test_inspected_images_are_not_read_again(folder, counts):
    train, test = load(folder), load(folder, "test")
    assert counts == [7, 3]
    again = load(folder)
    assert counts == [7, 3] and again.image_size == 8
    np.testing.assert_array_equal(again.digests, train.digests)
    assert again.fingerprint() == train.fingerprint() != test.fingerprint()
    # By another way to the folder, too.
    (folder.parent / "link").symlink_to(folder)
    load(folder.parent / "link")
    assert counts == [7, 3]
    # Another image, one that is new, one that is gone: those alone are read.
    write_image(folder / "train/a/00.png", seed=99, size=(9, 9))
    write_image(folder / "train/a/new.png", seed=98)
    (folder / "train/b/03.png").unlink()
    changed = load(folder)
    assert counts == [7, 3, 2] and changed.image_size is None
    assert changed.fingerprint() != train.fingerprint()
    os.utime(folder / "train/a/01.png", ns=(1, 1))
    load(folder)
    assert counts == [7, 3, 2, 1]


def test_a_bad_image_is_cached_until_its_file_changes(folder, counts):
    bad = folder / "train/a/00.png"
    bad.write_bytes(b"no image")
    for _ in range(2):
        with pytest.raises(ValueError, match="1 bad files of 7 .*a/00.png"):
            load(folder)
    assert counts == [7]
    write_image(bad)
    assert load(folder).num_examples == 7
    assert counts == [7, 1]


def test_an_image_that_evaluation_refuses_is_bad(folder):
    """More scans than are decoded for anybody: not after the training."""
    from tests.data.test_image_bytes import with_scans

    (folder / "train/a/scans.jpg").write_bytes(with_scans(200))
    with pytest.raises(ValueError, match="the first: JPEG file must have at m"):
        load(folder)


@pytest.mark.slow(but=["<"])
@pytest.mark.parametrize("order", ["<", ">"])
def test_images_that_exif_turns_are_told(folder, order):
    """They are used as they are stored: a phone's photographs lie on a side."""
    for orientation in (1, 3, 6, 8):
        exif = Image.Exif()
        exif.endian = order
        exif[0x010F], exif[0x0112] = "Maker", orientation
        image = Image.fromarray(np.full([8, 8, 3], orientation, np.uint8))
        image.save(folder / f"train/a/{orientation}.jpg", exif=exif)
    names = tuple(f"train/a/{orientation}.jpg" for orientation in (3, 6, 8))
    source = load(folder)
    assert source.turned == names and source.num_examples == 11
    splits = {"train": source, "test": load(folder, "test")}
    data.write_tfrecords(splits, folder / "records")
    again = data.load("tfrecord", "train", str(folder / "records"))
    assert len(again.turned) == 3


def test_a_damaged_cache_is_ignored(folder, counts, cache_home):
    load(folder)
    (file,) = cache_home.iterdir()
    contents = file.read_bytes()
    keys, columns = np.zeros(1, np.uint64), {"peaks": np.zeros(1, np.int16)}
    for damage in (b"", contents[:100], b"PK\x03\x04" + bytes(99)):
        file.write_bytes(damage)
        assert not cache.read(os.fspath(folder), keys, columns)[0]
    file.write_bytes(contents[:-50])
    assert load(folder).num_examples == 7
    file.unlink()
    cache_home.rmdir()
    cache_home.write_text("no folder")
    assert load(folder).num_examples == 7
    assert counts == [7] * 3


def test_the_cache_keeps_the_files_that_were_read_last(cache_home, monkeypatch):
    monkeypatch.setattr(cache, "_MAX_BYTES", 12_000)
    keys = np.arange(400, dtype=np.uint64)
    for name in "abcde":
        columns = {"x": np.arange(400)}
        assert not cache.read(name, keys, columns).any()
        cache.write(name, keys, columns)
        os.utime(cache._path(name), (ord(name), ord(name)))
    # Files of 7 KB: of those before the last one, none fits beside it.
    cached_names = [
        n for n in "abcde" if cache.read(n, keys, {"x": keys.copy()}).any()
    ]
    assert cached_names == ["e"]


def test_a_cache_of_another_user_is_read(tmp_path, monkeypatch):
    keys, columns = np.arange(3, dtype=np.uint64), {"x": np.arange(3)}
    cache.write("a", keys, columns)

    def refuse(path):
        raise PermissionError(path)

    monkeypatch.setattr(os, "utime", refuse)
    assert cache.read("a", keys, {"x": np.zeros(3, int)}).all()


def test_duplicates_are_found_between_splits(folder):
    def duplicates():
        test = load(folder, "test")
        rows = subsets.duplicates(test, load(folder))
        return [test.ids[row] for row in rows]

    # The same bytes under two names, in train and in test.
    assert duplicates() == ["test/a/00.png", "test/a/01.png", "test/b/00.png"]
    write_image(folder / "test/a/00.png", seed=50)
    assert duplicates() == ["test/a/01.png", "test/b/00.png"]
    unchecked = load(folder, "test", check_images=False)
    assert not len(subsets.duplicates(unchecked, load(folder)))
    part = subsets.subset(load(folder), [0])
    assert len(subsets.duplicates(load(folder, "test"), part)) == 1


def test_copies_of_another_label_are_found(folder):
    def contradictions(**options):
        train = load(folder, **options)
        return [train.ids[row] for row in subsets.contradictions(train)]

    for seed, file in enumerate(sorted(folder.glob("train/*/*"))):
        write_image(file, seed=seed)
    assert contradictions() == []
    shutil.copy(folder / "train/a/00.png", folder / "train/a/copy.png")
    assert contradictions() == []
    shutil.copy(folder / "train/a/00.png", folder / "train/b/copy.png")
    copies = ["train/a/00.png", "train/a/copy.png", "train/b/copy.png"]
    assert contradictions() == copies
    assert contradictions(check_images=False) == []
    train = load(folder)
    labels = np.eye(2, dtype=np.float32)[train.labels]
    labels[train.ids.index("train/b/copy.png")] = 1
    label_sets = dataclasses.replace(train, labels=labels)
    rows = subsets.contradictions(label_sets)
    assert [train.ids[row] for row in rows] == copies


def test_a_long_inspection_prints_its_progress(capsys, monkeypatch):
    clock = iter(range(0, 1000, 1))
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    items = [[0] * 10] * 40
    assert [*progress.track(items, 400, "checking images", len)] == items
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "checking images 30 of 400, 37 s left",
        "checking images 340 of 400, 6 s left",
    ]


def test_keys_tell_everything_apart():
    assert cache.key("a", 1) != cache.key("a", 11) != cache.key("a1", 1)
    assert cache.key("ab", "c") != cache.key("a", "bc")
    assert cache.key(b"a") == cache.key("a")
    path = pathlib.Path("x")
    assert 0 <= cache.key(path) < 2**64


def test_rows_have_the_positions_of_slow_and_fast_records():
    """Every third record takes longer."""

    def record(number):
        size = tf.where(number % 3 == 0, 300, 2)
        noise = tf.random.stateless_normal([size, size], [number, 0])
        late = tf.cast(0 * tf.reduce_sum(noise @ noise), tf.int64)
        pixel = tf.cast(number + late, tf.uint8)
        return tf.io.encode_png(tf.fill([2, 2, 3], pixel))

    numbers = np.arange(250)
    records = tf.data.Dataset.range(250).map(record, num_parallel_calls=4)
    inspected = inspection.inspect(
        None,
        numbers.astype(np.uint64),
        lambda positions: records.enumerate(),
        lambda contents: contents,
    )
    digests = [int(inspection.digest(record(n))) for n in numbers]
    np.testing.assert_array_equal(inspected.digests, digests)


def test_an_image_that_could_not_be_read_for_a_moment_is_no_bad_image(
    tmp_path, counts
):
    image = tf.io.encode_png(np.zeros([3, 4, 3], np.uint8)).numpy()
    readings = []

    def contents(number):
        readings.append(int(number))
        if number == 1 and readings.count(1) == 1:
            raise OSError("the server does not answer")
        return b"no image" if number == 2 else image

    def inspect():
        return inspection.inspect(
            os.fspath(tmp_path),
            np.arange(4, dtype=np.uint64),
            lambda positions: tf.data.Dataset.from_tensor_slices(
                (positions, positions)
            ),
            lambda number: tf.ensure_shape(
                tf.numpy_function(contents, [number], tf.string), []
            ),
        )

    for inspected in (inspect(), inspect()):  # then from the cache
        assert inspected.is_image.tolist() == [True, True, False, True]
        assert inspected.sides[1].tolist() == [3, 4]
        assert inspected.digests[1] == inspected.digests[0]
    assert counts == [4]


def test_an_image_without_memory_to_decode_it_is_inspected_again(
    folder, monkeypatch
):
    def exhaust(contents):
        raise tf.errors.ResourceExhaustedError(None, None, "no memory")

    (folder / "train/a/00.png").write_bytes(b"no image")
    with monkeypatch.context() as context:
        context.setattr(inspection, "_probe", exhaust)
        context.setattr(inspection, "_decode_all", lambda *_: None)
        with pytest.raises(ValueError, match="7 bad files of 7"):
            load(folder)
    assert load(folder, skip_bad_images=True).num_examples == 6
