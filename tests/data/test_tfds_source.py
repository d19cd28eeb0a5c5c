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

from supcon_tf import config, data
from supcon_tf.data import sources, subsets
from supcon_tf.training import input_pipeline
from tests import forks

# TFDS looks for the source file of a builder, and fails on `tests`, a package
# without __init__.py; a module that does not exist is no error.
_MODULE = "tiny_sets"
SIZES = {"train": 30, "test": 10}


def tiny_image(level):
    return np.full([8, 8, 3], level, np.uint8)


def photo(channels=3, dtype=np.uint8):
    shape = (8, 8, channels)
    return tfds.features.Image(shape=shape, dtype=dtype, encoding_format="png")


def classes(names):
    return tfds.features.ClassLabel(names=[*names])


def builder(name, features, splits, keys=None, **attributes):
    """The class of a set with these examples in each split."""

    def info(self):
        return tfds.core.DatasetInfo(
            builder=self,
            features=tfds.features.FeaturesDict(features),
            supervised_keys=keys,
        )

    methods = {
        "__module__": _MODULE,
        "VERSION": tfds.core.Version("1.0.0"),
        "_info": info,
        "_split_generators": lambda self, manager: {
            split: enumerate(examples) for split, examples in splits.items()
        },
        "_generate_examples": None,
    }
    bases = (tfds.core.GeneratorBasedBuilder,)
    return type(name, bases, methods | attributes)


def mixed_files():
    """As oxford_iiit_pet: a file of another format, and a damaged one."""
    for i in range(12):
        file = io.BytesIO()
        Image.fromarray(tiny_image(i)).save(file, "GIF" if i == 5 else "PNG")
        part = io.BytesIO(file.getvalue()[: 40 if i == 9 else None])
        yield {"image": part, "label": i % 2}


TinyPhotos = builder(  # Gray levels are positions; label = position modulo 3.
    "TinyPhotos",
    {"photo": photo(), "kind": classes("abc"), "size": tf.int64},
    {
        split: [
            {"photo": tiny_image(i), "kind": i % 3, "size": 8}
            for i in range(count)
        ]
        for split, count in SIZES.items()
    },
    keys=("photo", "kind"),
)
BUILDERS = [
    TinyPhotos,
    builder(  # As imagenet2012: no labels in test; and no supervised_keys.
        "TinyUnlabelled",
        {"image": tfds.features.Image(), "label": classes("ab")},
        {
            split: [
                {"image": tiny_image(i), "label": label}
                for i, label in enumerate(labels)
            ]
            for split, labels in (("test", [-1] * 4), ("validation", [0, 1, 1]))
        },
    ),
    builder(
        "TinyGray",
        {"image": photo(1), "label": classes("ab")},
        {
            split: [
                {"image": tiny_image(i)[..., :1], "label": i % 2}
                for i in range(12)
            ]
            for split in SIZES
        },
    ),
    builder(  # As voc/2007: images of several labels, and of none.
        "TinySeveral",
        {"image": photo(), "labels": tfds.features.Sequence(classes("abc"))},
        {
            split: [
                {"image": tiny_image(i), "labels": labels}
                for i, labels in enumerate(([], [0, 2], [1]))
            ]
            for split in SIZES
        },
    ),
    builder(
        "TinyMixed",
        {"image": tfds.features.Image(), "label": classes("ab")},
        {split: [*mixed_files()] for split in SIZES},
    ),
    builder(  # TFDS stores float32 as bytes of four channels.
        "TinyFloats",
        {"image": photo(1, np.float32), "label": classes("ab")},
        {
            split: [{"image": np.zeros([8, 8, 1], np.float32), "label": 0}]
            for split in SIZES
        },
    ),
    builder(
        "TinyText",
        {"text": tfds.features.Text()},
        {"train": [{"text": "words"}]},
    ),
]
builder(  # Its archives are missing.
    "TinyByHand",
    {"text": tfds.features.Text()},
    {"train": []},
    MANUAL_DOWNLOAD_INSTRUCTIONS="Fetch the tar.",
    _split_generators=lambda self, manager: manager.manual_dir,
)


def load(root, name="tiny_photos", split="train", **options):
    options = {"check_images": False, **options}
    return data.load(f"tfds:{name}", split, root, **options)


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


@pytest.fixture(scope="module")
def tfds_dir(tmp_path_factory):
    """Prepares the sets that can be prepared once."""
    root = str(tmp_path_factory.mktemp("tfds"))
    for builder_class in BUILDERS:
        builder_class(data_dir=root).download_and_prepare()
    return root


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
        (int(data.decode_image(contents)[0, 0, 0]), label.numpy().tolist())
        for contents, label in dataset
    ]


def test_a_sequence_of_labels_is_several(tfds_dir):
    source = load(tfds_dir, "tiny_several", "test")
    assert source.is_multi_label and source.class_names == ("a", "b", "c")
    expected = {0: [0, 0, 0], 1: [1, 0, 1], 2: [0, 1, 0]}
    assert dict(gray_levels(source)) == expected
    in_memory = subsets.subset(source, np.arange(3))
    assert in_memory.is_multi_label and in_memory.labels.shape == (3, 3)


def test_a_set_is_read_encoded(tfds_dir):
    source = load(tfds_dir, check_images=True)
    assert (source.name, source.split) == ("tfds:tiny_photos", "train")
    assert source.class_names == ("a", "b", "c")
    assert (source.num_examples, source.image_size) == (30, 8)
    contents, label = source.read(next(iter(source.records(None))))
    assert contents.dtype == tf.string and label.dtype == tf.int32
    expected = [(i, i % 3) for i in range(30)]
    levels = gray_levels(source)
    assert sorted(levels) == expected and gray_levels(source) == levels
    assert load(tfds_dir, split="test").num_examples == 10


def test_splits_can_be_joined_and_cut(tfds_dir):
    """As the protocols of transfer train on train + validation."""
    union = load(tfds_dir, tfds_split="train+test")
    expected = sorted((i, i % 3) for count in (10, 30) for i in range(count))
    assert sorted(gray_levels(union)) == expected
    assert union.split == "train" and union.num_examples == 40
    assert load(tfds_dir, tfds_split="train[:50%]").num_examples == 15
    parts = [
        load(tfds_dir, tfds_split="train+test", shard=(i, 2)) for i in range(2)
    ]
    examples = [example for part in parts for example in gray_levels(part)]
    assert sorted(examples) == expected
    with pytest.raises(ValueError, match="split nowhere, got .'train'"):
        load(tfds_dir, tfds_split="nowhere")


def test_a_tool_names_the_flag_of_the_missing_split(tfds_dir):
    settings = config.DataSettings(
        "x",
        dataset="tfds:tiny_photos",
        data_dir=tfds_dir,
        train_split="nowhere",
        test_split="nowhere",
    )
    for split in ("train", "test"):
        message = f"`{split}_split` names a part of another"
        with pytest.raises(ValueError, match=message):
            input_pipeline.source(settings, split)


def test_only_the_seeds_determine_the_order(tfds_dir):
    source = load(tfds_dir)
    tf.random.set_seed(1)
    first = gray_levels(source, tf.constant([3, 4]))
    tf.random.set_seed(2)
    assert gray_levels(source, tf.constant([3, 4])) == first
    other = gray_levels(source, tf.constant([3, 5]))
    assert other != first and sorted(other) == sorted(first)


def test_an_unlabelled_test_split_is_passed_over(tfds_dir):
    source = load(tfds_dir, "tiny_unlabelled", "test", check_images=True)
    assert source.num_examples == 3  # Of "validation".
    assert source.image_size == 8  # The inspection finds the size.
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
    source = load(tfds_dir)
    assert pixels == [level for level, _ in gray_levels(source)]
    assert (class_names, num_test) == (["a", "b", "c"], 3)


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
    parts = [load(directory, shard=(i, 2)) for i in range(2)]
    return parts, [{level for level, _ in gray_levels(part)} for part in parts]


def test_workers_share_the_files(three_files_dir):
    """One of two workers has two files, the other one."""
    _, levels = parts_of_two(three_files_dir)
    assert [*map(len, levels)] == [20, 10]
    assert levels[0] | levels[1] == set(range(30))


@pytest.mark.slow
def test_the_worker_of_one_file_reads_it_twice(three_files_dir):
    parts, part_levels = parts_of_two(three_files_dir)
    _, all_draws = levels_and_draws(load(three_files_dir), 6)
    for i, part in enumerate(parts):
        assert part.num_examples == 30 and part.shard == (i, 2)
        levels, draws = levels_and_draws(part, 6, shard=(i, 2))  # [6, 5]
        for epoch in np.split(levels, 2):  # 15 images.
            assert set(epoch.flat) <= part_levels[i]
            assert len(set(epoch.flat)) == min(15, len(part_levels[i]))
        assert (levels[:3] != levels[3:]).any()
        # The draws are those of the same rows of the whole batch.
        assert (draws == all_draws[:, 5 * i : 5 * (i + 1)]).all()
    late, _ = levels_and_draws(part, 2, shard=(1, 2), start_step=4)
    assert (late == levels[4:]).all()


def test_shards_that_do_not_fit_are_refused(three_files_dir):
    message = r"the 3 files of tiny_photos/1.0.0 \(train\), got "
    for shard in ((0, 4), (3, 3)):
        with pytest.raises(ValueError, match=message + rf"\({shard[0]}"):
            load(three_files_dir, shard=shard)
    part = load(three_files_dir, shard=(0, 2))
    for shard in ((0, 1), (1, 2)):
        with pytest.raises(ValueError, match="`shard` must be that of tfds:t"):
            data.make_views(part, 10, shard=shard)
    with pytest.raises(ValueError, match="`images_per_class` must be left out"):
        data.make_views(part, 10, shard=(0, 2), images_per_class=5)


@pytest.mark.slow
def test_a_set_can_be_class_balanced(tfds_dir, monkeypatch):
    source = load(tfds_dir)
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
        ("tiny_unlabelled", r"split train, got \['test', 'validation'"),
        (
            "tiny_text",
            "must have an Image and a ClassLabel, or .* tfds:tiny_te",
        ),
        ("no_such_set", "`dataset` must name a TFDS set, got tfds:no_such_set"),
    ],
)
def test_missing_splits_and_features_are_named(tfds_dir, name, message):
    with pytest.raises(ValueError, match=message):
        load(tfds_dir, name)


def test_a_set_that_cannot_be_prepared(tmp_path):
    with pytest.raises(RuntimeError) as error:
        load(str(tmp_path), "tiny_by_hand")
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


def test_only_tfds_sets_import_tfds():
    """Which takes seconds; a fork has imported the whole package."""
    program = "import sys; assert 'tensorflow_datasets' not in sys.modules"
    assert forks.run(program).returncode == 0


def test_a_large_set_is_shuffled_through_a_buffer(tfds_dir, monkeypatch):
    monkeypatch.setattr(sources, "SHUFFLE_BUFFER", 5)
    source = load(tfds_dir)
    fixed = gray_levels(source)
    mixed = gray_levels(source, tf.constant([3, 4]))
    assert mixed != fixed and sorted(mixed) == sorted(fixed)
    # The i-th example drawn is one of the first i + 5 in the file.
    assert all(fixed.index(e) < i + 5 for i, e in enumerate(mixed))


def test_one_channel_is_read_if_asked(tfds_dir):
    gray = load(tfds_dir, "tiny_gray", channels=1)
    images, labels = next(iter(data.make_examples(gray, 12)))
    assert images.shape == (12, 8, 8, 1)
    levels = images.numpy()[:, 0, 0, 0].tolist()
    expected = gray_levels(load(tfds_dir, "tiny_gray"))  # in RGB
    assert [*zip(levels, labels.numpy(), strict=True)] == expected
    with pytest.raises(ValueError, match="`channels` must be 3, or those of t"):
        load(tfds_dir, channels=1)


def test_images_that_evaluation_refuses_are_named(tfds_dir):
    checking = {"name": "tiny_mixed", "check_images": True}
    with pytest.raises(
        ValueError, match=r"tiny_mixed \(train\) must hold .* 2 bad ones of 12"
    ):
        load(tfds_dir, **checking)
    unchecked = load(tfds_dir, "tiny_mixed")
    assert (unchecked.num_examples, unchecked.skipped) == (12, ())
    source = load(tfds_dir, skip_bad_images=True, **checking)
    assert (source.num_examples, len(source.skipped)) == (10, 2)
    levels = sorted(level for level, _ in gray_levels(source))
    assert levels == [0, 1, 2, 3, 4, 6, 7, 8, 10, 11]
    test = load(tfds_dir, split="test", skip_bad_images=True, **checking)
    assert len(subsets.duplicates(test, source)) == 10
    with pytest.raises(ValueError, match="have images of bytes, .*float32"):
        load(tfds_dir, "tiny_floats")


def test_another_preparation_is_another_set(tfds_dir, tmp_path):
    """Same name, version and number: files of another time."""
    first, again = (load(tfds_dir).fingerprint() for _ in range(2))
    shutil.copytree(tfds_dir, tmp_path / "copy")
    for file in (tmp_path / "copy").glob("tiny_photos/*/*train*"):
        os.utime(file, (1, 1))
    other = load(str(tmp_path / "copy")).fingerprint()
    assert first == again != other
