"""Small TFDS sets that the test itself prepares on disk."""

import io
import json
import os
import shutil
import sys
import types

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds
from PIL import Image

from supcon_tf import data
from supcon_tf.data import sources, subsets
from tests import forks

# TFDS looks for the source file of a builder and stumbles over `tests`, a
# package without __init__.py; a module it cannot find is well with it.
_MODULE = "tiny_sets"
SIZES = {"train": 30, "test": 10}


def tiny_image(i):
    return np.full([8, 8, 3], i, np.uint8)


class Tiny(tfds.core.GeneratorBasedBuilder):
    """A set that a subclass describes by its features."""

    __module__ = _MODULE
    VERSION = tfds.core.Version("1.0.0")
    FEATURES = {"text": tfds.features.Text()}
    KEYS = None

    def _info(self):
        return tfds.core.DatasetInfo(
            builder=self,
            features=tfds.features.FeaturesDict(self.FEATURES),
            supervised_keys=self.KEYS,
        )


def test_a_set_of_strangers_imports_no_module(tmp_path, monkeypatch):
    """Of the folder of the data, or of the current one, where both lie."""
    folder = tmp_path / "sets" / "theirs" / "1.0.0"
    folder.mkdir(parents=True)
    info = {"name": "theirs", "version": "1.0.0", "fileFormat": "tfrecord"}
    split = {"name": "train", "numBytes": "1", "shardLengths": ["1"]}
    written = json.dumps(info | {"splits": [split]})
    (folder / "dataset_info.json").write_text(written)
    for directory in (tmp_path, tmp_path / "sets"):
        file = directory / "their_features.py"
        file.write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
        written = json.dumps({"pythonClassName": "their_features.Image"})
        (folder / "features.json").write_text(written)
        monkeypatch.syspath_prepend(directory)
        monkeypatch.chdir(tmp_path if directory == tmp_path else "/")
        with pytest.raises(ValueError, match="must name no module that is not"):
            data.load("tfds:theirs", "train", data_dir=str(tmp_path / "sets"))
        assert not (tmp_path / "ran").exists()
        file.unlink()


@pytest.mark.parametrize("name", ["huggingface:mnist", "kubric:frames/x:1.0"])
def test_no_code_of_a_set_is_downloaded(name):
    with pytest.raises(ValueError, match="code of others would be downloaded"):
        data.load(f"tfds:{name}", "train")


class TinyPhotos(Tiny):
    """Images whose gray level is their number; label = number modulo 3."""

    __module__ = _MODULE
    FEATURES = {
        "photo": tfds.features.Image(shape=(8, 8, 3), encoding_format="png"),
        "kind": tfds.features.ClassLabel(names=["a", "b", "c"]),
        "size": tf.int64,
    }
    KEYS = ("photo", "kind")

    def _split_generators(self, dl_manager):
        return {n: self._generate_examples(c) for n, c in SIZES.items()}

    def _generate_examples(self, count):
        for i in range(count):
            yield i, {"photo": tiny_image(i), "kind": i % 3, "size": 8}


class TinyUnlabelled(Tiny):
    """Like imagenet2012: no labels in test; and no supervised_keys."""

    __module__ = _MODULE
    FEATURES = {
        "file": tfds.features.Text(),
        "image": tfds.features.Image(),
        "label": tfds.features.ClassLabel(names=["a", "b"]),
    }

    def _split_generators(self, dl_manager):
        return {
            "test": self._generate_examples([-1] * 4),
            "validation": self._generate_examples([0, 1, 1]),
        }

    def _generate_examples(self, labels):
        for i, label in enumerate(labels):
            yield i, {"file": str(i), "image": tiny_image(i), "label": label}


class TinyGray(Tiny):
    """Images of one channel."""

    __module__ = _MODULE
    FEATURES = {
        "image": tfds.features.Image(shape=(8, 8, 1), encoding_format="png"),
        "label": tfds.features.ClassLabel(names=["a", "b"]),
    }
    KEYS = ("image", "label")

    def _split_generators(self, dl_manager):
        return {n: self._generate_examples(12) for n in SIZES}

    def _generate_examples(self, count):
        for i in range(count):
            yield i, {"image": tiny_image(i)[..., :1], "label": i % 2}


class TinySeveral(Tiny):
    """Images of several labels, as voc/2007 has them, and of none."""

    __module__ = _MODULE
    FEATURES = {
        "image": tfds.features.Image(shape=(8, 8, 3), encoding_format="png"),
        "labels": tfds.features.Sequence(
            tfds.features.ClassLabel(names=["a", "b", "c"])
        ),
    }

    def _split_generators(self, dl_manager):
        return {name: self._generate_examples() for name in SIZES}

    def _generate_examples(self):
        for i, labels in enumerate(([], [0, 2], [1])):
            yield i, {"image": tiny_image(i), "labels": labels}


class TinyMixed(Tiny):
    """As oxford_iiit_pet: files of other formats, and a damaged one."""

    __module__ = _MODULE
    FEATURES = {
        "image": tfds.features.Image(),
        "label": tfds.features.ClassLabel(names=["a", "b"]),
    }

    def _split_generators(self, dl_manager):
        return {name: self._generate_examples() for name in SIZES}

    def _generate_examples(self):
        for i in range(12):
            content = io.BytesIO()
            Image.fromarray(tiny_image(i)).save(
                content, "GIF" if i == 5 else "PNG"
            )
            end = 40 if i == 9 else None
            part = io.BytesIO(content.getvalue()[:end])
            yield i, {"image": part, "label": i % 2}


class TinyFloats(Tiny):
    """Images of float32, which TFDS keeps as bytes of four channels."""

    __module__ = _MODULE
    FEATURES = {
        "image": tfds.features.Image(
            shape=(8, 8, 1), dtype=np.float32, encoding_format="png"
        ),
        "label": tfds.features.ClassLabel(names=["a", "b"]),
    }

    def _split_generators(self, dl_manager):
        return {name: self._generate_examples() for name in SIZES}

    def _generate_examples(self):
        image = np.zeros([8, 8, 1], np.float32)
        yield 0, {"image": image, "label": 0}


class TinyText(Tiny):
    """A set without images."""

    __module__ = _MODULE

    def _split_generators(self, dl_manager):
        return {"train": self._generate_examples()}

    def _generate_examples(self):
        yield 0, {"text": "words"}


class TinyByHand(TinyText):
    """A set whose archives are not there."""

    __module__ = _MODULE
    MANUAL_DOWNLOAD_INSTRUCTIONS = "Fetch the tar."

    def _split_generators(self, dl_manager):
        raise AssertionError(dl_manager.manual_dir)


@pytest.fixture(scope="module")
def tfds_dir(tmp_path_factory):
    """Prepares the sets that can be prepared once."""
    root = tmp_path_factory.mktemp("tfds")
    for builder in (
        TinyPhotos,
        TinyUnlabelled,
        TinyGray,
        TinySeveral,
        TinyMixed,
        TinyFloats,
        TinyText,
    ):
        builder(data_dir=str(root)).download_and_prepare()
    return str(root)


@pytest.fixture(scope="module")
def three_files_dir(tmp_path_factory):
    """Prepares the 30 photos in three files of 10."""
    root = str(tmp_path_factory.mktemp("three_files"))
    TinyPhotos(data_dir=root).download_and_prepare(
        download_config=tfds.download.DownloadConfig(num_shards=3)
    )
    return root


def gray_levels(source, seeds=None):
    """Reads a source: [(gray level of the image, label)]."""
    dataset = source.records(seeds).map(source.read)
    return [
        (int(data.decode_image(contents)[0, 0, 0]), int(label))
        for contents, label in dataset
    ]


def test_a_sequence_of_labels_is_several(tfds_dir):
    source = data.load("tfds:tiny_several", "test", tfds_dir)
    assert source.is_multi_label and source.class_names == ("a", "b", "c")
    labels_by_level = {
        int(data.decode_image(image)[0, 0, 0]): label.numpy().tolist()
        for image, label in source.records(None).map(source.read)
    }
    assert labels_by_level == {0: [0, 0, 0], 1: [1, 0, 1], 2: [0, 1, 0]}
    held = subsets.subset(source, np.arange(3))
    assert held.is_multi_label and held.labels.shape == (3, 3)
    _, labels = next(iter(data.make_views(source, 3)))
    assert sorted(labels.numpy().tolist()) == sorted(labels_by_level.values())


def test_a_set_is_read_encoded(tfds_dir):
    source = data.load("tfds:tiny_photos", "train", tfds_dir)
    assert (source.name, source.split) == ("tfds:tiny_photos", "train")
    assert source.class_names == ("a", "b", "c")
    assert (source.num_examples, source.image_size) == (30, 8)
    contents, label = next(iter(source.records(None).map(source.read)))
    assert contents.dtype == tf.string and label.dtype == tf.int32
    expected = [(i, i % 3) for i in range(30)]
    assert sorted(gray_levels(source)) == expected
    assert gray_levels(source) == gray_levels(source)
    test = data.load("tfds:tiny_photos", "test", tfds_dir)
    assert test.num_examples == 10


def test_splits_can_be_joined_and_cut(tfds_dir):
    """As the protocols of transfer train on train + validation."""

    def load(split, **options):
        return data.load(
            "tfds:tiny_photos", "train", tfds_dir, tfds_split=split, **options
        )

    union = load("train+test")
    expected = [(i, i % 3) for count in (10, 30) for i in range(count)]
    assert sorted(gray_levels(union)) == sorted(expected)
    seeds = tf.constant([3, 4])
    assert sorted(gray_levels(union, seeds)) == sorted(expected)
    assert union.split == "train" and union.num_examples == 40
    assert load("train[:50%]").num_examples == 15
    parts = [load("train+test", shard=(i, 2)) for i in range(2)]
    examples = [example for part in parts for example in gray_levels(part)]
    assert sorted(examples) == sorted(expected)
    with pytest.raises(ValueError, match="split nowhere, got .'train'"):
        load("nowhere")
    with pytest.raises(
        ValueError, match="`tfds_split` must be None except for"
    ):
        data.load("digits", "train", tfds_split="train[:5]")


def test_only_the_seeds_determine_the_order(tfds_dir):
    source = data.load("tfds:tiny_photos", "train", tfds_dir)
    tf.random.set_seed(1)
    first = gray_levels(source, tf.constant([3, 4]))
    tf.random.set_seed(2)
    assert gray_levels(source, tf.constant([3, 4])) == first
    for seeds in ([3, 5], [2, 4]):
        other = gray_levels(source, tf.constant(seeds))
        assert other != first and sorted(other) == sorted(first)


def test_an_unlabelled_test_split_is_passed_over(tfds_dir):
    source = data.load("tfds:tiny_unlabelled", "test", tfds_dir)
    assert source.num_examples == 3  # Of "validation".
    assert source.image_size == 8  # as it was found
    assert sorted(gray_levels(source)) == [(0, 0), (1, 1), (2, 1)]


def test_a_fresh_process_reads_the_files(tfds_dir):
    """It does not know the builder classes of this test."""
    program = f"""if True:
        import json
        from supcon_tf import data
        train = data.load("tfds:tiny_photos:1.0.0", "train", {tfds_dir!r})
        test = data.load("tfds:tiny_unlabelled", "test", {tfds_dir!r})
        pixels = [
            int(data.decode_image(train.read(record)[0])[0, 0, 0])
            for record in train.records(None)
        ]
        print(json.dumps([pixels, train.class_names, test.num_examples]))
    """
    process = forks.run(program)
    assert process.returncode == 0, process.stderr[-2000:]
    pixels, class_names, num_test = json.loads(process.stdout.splitlines()[-1])
    source = data.load("tfds:tiny_photos", "train", tfds_dir)
    assert pixels == [level for level, _ in gray_levels(source)]
    assert (class_names, num_test) == (["a", "b", "c"], 3)


@pytest.mark.slow
def test_views_of_a_set(tfds_dir):
    source = data.load("tfds:tiny_photos", "train", tfds_dir)
    levels, _ = levels_and_draws(source, 6)
    first, second = levels.reshape(2, 30)
    assert sorted(first) == sorted(second) == list(range(30))
    assert (first != second).any()
    resumed, _ = levels_and_draws(source, 1, start_step=5)
    assert (resumed == levels[5]).all()


def show_seed(images, seeds):
    """A policy that puts a number drawn from the seed beside the level."""
    draws = tf.cast(seeds[:, 0] % 200, tf.uint8)[:, None, None]
    draws = tf.broadcast_to(draws, tf.shape(images)[:3])
    return tf.stack([images[..., 0], draws, images[..., 2]], axis=-1)


def levels_and_draws(source, steps, **options):
    """Returns gray levels [steps, rows] and draws [steps, rows]."""
    batches = data.make_views(
        source, 10, 1, show_seed, crop_area=None, horizontal_flip=False,
        **options,
    )  # fmt: skip
    views, labels = map(np.array, zip(*batches.take(steps), strict=True))
    levels, draws = views[:, :, 0, 0, 0, 0], views[:, :, 0, 0, 0, 1]
    np.testing.assert_array_equal(levels % 3, labels)
    return levels, draws


def parts_of_two(directory):
    """Of two workers, the parts and the levels of their images."""
    arguments = "tfds:tiny_photos", "train", directory
    parts = [data.load(*arguments, shard=(i, 2)) for i in range(2)]
    return parts, [{level for level, _ in gray_levels(part)} for part in parts]


def test_workers_share_the_files(three_files_dir):
    """One of two workers has two files, the other one."""
    _, held = parts_of_two(three_files_dir)
    assert [len(levels) for levels in held] == [20, 10]
    assert held[0] | held[1] == set(range(30))


@pytest.mark.slow
def test_the_worker_of_one_file_reads_it_twice(three_files_dir):
    arguments = "tfds:tiny_photos", "train", three_files_dir
    parts, held = parts_of_two(three_files_dir)
    _, all_draws = levels_and_draws(data.load(*arguments), 6)
    for i, part in enumerate(parts):
        assert part.num_examples == 30 and part.shard == (i, 2)
        levels, draws = levels_and_draws(part, 6, shard=(i, 2))  # [6, 5]
        for epoch in np.split(levels, 2):  # 15 images.
            assert set(epoch.flat) <= held[i]
            assert len(set(epoch.flat)) == min(15, len(held[i]))
        assert (levels[:3] != levels[3:]).any()
        # The draws are those of the same rows of the whole batch.
        assert (draws == all_draws[:, 5 * i : 5 * (i + 1)]).all()
    late, _ = levels_and_draws(part, 2, shard=(1, 2), start_step=4)
    assert (late == levels[4:]).all()


def test_what_cannot_be_shared(three_files_dir):
    arguments = "tfds:tiny_photos", "train", three_files_dir
    message = r"the 3 files of tiny_photos/1.0.0 \(train\), got "
    for shard in ((0, 4), (3, 3)):
        with pytest.raises(ValueError, match=message + rf"\({shard[0]}"):
            data.load(*arguments, shard=shard)
    with pytest.raises(ValueError, match="None except for TFDS.*for digits"):
        data.load("digits", "train", shard=(0, 2))
    part = data.load(*arguments, shard=(0, 2))
    for shard in ((0, 1), (1, 2)):
        with pytest.raises(ValueError, match="`shard` must be that of tfds:t"):
            data.make_views(part, 10, shard=shard)
    with pytest.raises(ValueError, match="`images_per_class` must be left out"):
        data.make_views(part, 10, shard=(0, 2), images_per_class=5)


@pytest.mark.slow
def test_a_set_can_be_class_balanced(tfds_dir, monkeypatch):
    source = data.load("tfds:tiny_photos", "train", tfds_dir)
    levels, _ = levels_and_draws(source, 6, images_per_class=5)
    for batch in levels:
        assert sorted(np.bincount(batch % 3, minlength=3)) == [0, 5, 5]
        assert len(set(batch)) == 10
    assert set(levels.flat) == set(range(30))
    balanced = data.class_balanced(source, 10, 5)
    assert balanced.labels.tolist() == [k for _, k in gray_levels(source)]
    monkeypatch.setattr(subsets, "MAX_IN_MEMORY", 29)
    with pytest.raises(ValueError, match="more than 29 images .* of 30 images"):
        data.class_balanced(source, 10, 5)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "tiny_unlabelled",
            r"split train, got \['test', 'validation'",
        ),
        (
            "tiny_text",
            "must have an Image and a ClassLabel, or .* tfds:tiny_te",
        ),
        ("no_such_set", "`dataset` must name a TFDS set, got tfds:no_such_set"),
    ],
)
def test_what_a_set_lacks_is_named(tfds_dir, name, message):
    with pytest.raises(ValueError, match=message):
        data.load(f"tfds:{name}", "train", tfds_dir)


def test_a_set_that_cannot_be_prepared(tmp_path):
    with pytest.raises(RuntimeError) as error:
        data.load("tfds:tiny_by_hand", "train", str(tmp_path))
    message = str(error.value)
    assert "TFDS could not prepare tiny_by_hand: " in message
    assert "Fetch the tar." in message
    assert f"belongs in {tmp_path}/downloads/manual" in message


@pytest.mark.parametrize(
    "module", [None, types.ModuleType("tensorflow_datasets")]
)
def test_a_broken_installation_names_the_pin(monkeypatch, module):
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", module)
    with pytest.raises(ImportError, match="tensorflow-metadata<=1.15.0"):
        data.load("tfds:tiny_photos", "train")


def test_only_a_set_of_it_imports_tfds():
    """Which takes seconds; a fork has imported the whole package."""
    program = "import sys; assert 'tensorflow_datasets' not in sys.modules"
    assert forks.run(program).returncode == 0


def test_a_large_set_is_shuffled_through_a_buffer(tfds_dir, monkeypatch):
    monkeypatch.setattr(sources, "SHUFFLE_BUFFER", 5)
    source = data.load("tfds:tiny_photos", "train", tfds_dir)
    fixed = gray_levels(source)
    mixed = gray_levels(source, tf.constant([3, 4]))
    assert mixed != fixed and sorted(mixed) == sorted(fixed)
    # The i-th example drawn is one of the first i + 5 in the file.
    assert all(fixed.index(e) < i + 5 for i, e in enumerate(mixed))


def test_one_channel_is_read_as_it_is_if_asked(tfds_dir):
    rgb = data.load("tfds:tiny_gray", "train", tfds_dir)
    gray = data.load("tfds:tiny_gray", "train", tfds_dir, channels=1)
    (images, labels), (repeated, _) = (
        next(iter(data.make_examples(source, 12))) for source in (gray, rgb)
    )
    assert images.shape == (12, 8, 8, 1) and repeated.shape == (12, 8, 8, 3)
    np.testing.assert_array_equal(images[..., 0], repeated[..., 2])
    assert sorted(labels.numpy()) == [0] * 6 + [1] * 6
    with pytest.raises(ValueError, match="`channels` must be 3, or those of t"):
        data.load("tfds:tiny_photos", "train", tfds_dir, channels=1)
    with pytest.raises(ValueError, match="3 except for TFDS and functions"):
        data.load("digits", "train", channels=1)


def test_what_evaluation_would_refuse_is_found_before(tfds_dir, tmp_path):
    with pytest.raises(
        ValueError, match=r"tiny_mixed \(train\) must hold .* 2 bad ones of 12"
    ):
        data.load("tfds:tiny_mixed", "train", tfds_dir)
    unchecked = data.load(
        "tfds:tiny_mixed", "train", tfds_dir, check_images=False
    )
    assert (unchecked.num_examples, unchecked.skipped) == (12, ())
    source = data.load(
        "tfds:tiny_mixed", "train", tfds_dir, skip_bad_images=True
    )
    assert (source.num_examples, len(source.skipped)) == (10, 2)
    levels = sorted(level for level, _ in gray_levels(source))
    assert levels == [0, 1, 2, 3, 4, 6, 7, 8, 10, 11]
    test = data.load("tfds:tiny_mixed", "test", tfds_dir, skip_bad_images=True)
    assert len(subsets.duplicates(test, source)) == 10
    with pytest.raises(
        ValueError, match="must have images of bytes, .*float32"
    ):
        data.load("tfds:tiny_floats", "train", tfds_dir)


def test_another_preparation_is_another_set(tfds_dir, tmp_path):
    """Same name, version and number: files of another time."""
    first = data.load("tfds:tiny_photos", "train", tfds_dir).fingerprint()
    again = data.load("tfds:tiny_photos", "train", tfds_dir).fingerprint()
    shutil.copytree(tfds_dir, tmp_path / "copy")
    files = (tmp_path / "copy").glob("tiny_photos/*/*train*")
    for file in files:
        os.utime(file, (1, 1))
    other = data.load("tfds:tiny_photos", "train", str(tmp_path / "copy"))
    assert first == again != other.fingerprint()
