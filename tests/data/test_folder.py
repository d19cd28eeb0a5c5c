"""Image folders made of real files, good and bad."""

import json
import os
import pathlib
import shutil
import subprocess
import unicodedata

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from supcon_tf import data
from supcon_tf.data import partition

SPLITS = "train", "test"


def write_image(path, seed=0, size=(8, 8)):
    path.parent.mkdir(parents=True, exist_ok=True)
    shape = [size[1], size[0], 3]
    pixels = np.random.default_rng(seed).integers(0, 256, shape, np.uint8)
    Image.fromarray(pixels).save(path)


def make_folder(root, counts):
    """Writes `counts[class]` PNG files into root/class."""
    for name, count in counts.items():
        for i in range(count):
            write_image(root / name / f"{i:02d}.png", i)
    return root


def load(root, split="train", **options):
    """Without decoding all images, if the test is not about images."""
    skips = "skip_bad_images" in options
    options = {"check_images": skips, **options}
    return data.load("folder", split, str(root), **options)


@pytest.fixture
def image_root(tmp_path):
    """A folder with train/ of 3 + 2 and test/ of 1 + 2 images."""
    make_folder(tmp_path / "train", {"dog": 3, "cat": 2})
    make_folder(tmp_path / "test", {"dog": 1, "cat": 2})
    return tmp_path


def test_given_split(image_root):
    train = load(image_root, check_images=True)
    test = load(image_root, "test")
    assert train.class_names == test.class_names == ("cat", "dog")
    assert (train.num_examples, test.num_examples) == (5, 3)
    assert (train.name, train.split) == ("folder", "train")
    assert train.skipped == train.ignored == ()
    assert train.image_size == 8
    assert test.ids == ("test/cat/00.png", "test/cat/01.png", "test/dog/00.png")
    pairs = list(test.records(None).map(test.read).as_numpy_iterator())
    assert [label for _, label in pairs] == [0, 0, 1]
    assert [contents for contents, _ in pairs] == [
        (image_root / name).read_bytes() for name in test.ids
    ]
    (image_root / "test").rename(image_root / "val")
    assert load(image_root, "test").ids[0] == "val/cat/00.png"


def names(ids):
    return sorted(pathlib.PurePath(name).name for name in ids)


def make_empty_files(root, counts):
    """Files that are images by their names alone."""
    for name, count in counts.items():
        (root / name).mkdir(parents=True)
        for i in range(count):
            (root / name / f"{i:04d}.jpg").touch()


def test_a_split_by_hash_is_seeded_and_has_its_share(tmp_path):
    make_empty_files(tmp_path, {"a": 1000, "b": 2000})
    train, test = (load(tmp_path, split) for split in SPLITS)
    assert set(train.ids) | set(test.ids) == {
        str(path.relative_to(tmp_path)) for path in tmp_path.glob("*/*")
    }
    assert not set(train.ids) & set(test.ids)
    assert list(test.ids) == sorted(test.ids)
    for label, count in ((0, 1000), (1, 2000)):
        # Of a binomial distribution: within four standard deviations.
        spread = 4 * (0.2 * 0.8 * count) ** 0.5
        assert abs((test.labels == label).sum() - 0.2 * count) < spread
    assert load(tmp_path, "test").ids == test.ids
    other = load(tmp_path, "test", split_seed=1)
    share = len(set(other.ids) & set(test.ids)) / len(test.ids)
    assert 0.1 < share < 0.3  # independent of the other
    more = load(tmp_path, "test", test_fraction=0.5)
    assert set(more.ids) > set(test.ids)


def test_the_name_of_a_file_alone_decides_on_its_split(tmp_path):
    """No other file moves a file, nor does another class or data folder."""
    make_empty_files(tmp_path / "one", {"a": 30, "b": 40})
    before = load(tmp_path / "one", "test").ids
    for index in (0, 7, 23):
        (tmp_path / f"one/a/{index:04d}.jpg").unlink()
    (tmp_path / "one/b/new.jpg").touch()
    remaining = {path for path in before if (tmp_path / "one" / path).exists()}
    assert {*load(tmp_path / "one", "test").ids} - {"b/new.jpg"} == remaining
    (tmp_path / "one/a").rename(tmp_path / "one/c")
    moved = {path.replace("a/", "c/") for path in remaining}
    assert {*load(tmp_path / "one", "test").ids} - {"b/new.jpg"} == moved
    # Classes whose files are named alike are split alike.
    make_empty_files(tmp_path / "two", {"x": 30, "y": 30})
    names_x, names_y = (
        names(path for path in load(tmp_path / "two", "test").ids if c in path)
        for c in "xy"
    )
    assert names_x == names_y and 0 < len(names_x) < 30
    (tmp_path / "two/x").rename(tmp_path / "two/train")  # as a class may be
    assert load(tmp_path / "two").class_names == ("train", "y")

    # The hash is the same in every process and on every platform.
    paths = [f"c/{i}.png" for i in range(20)]
    drawn = np.flatnonzero(partition.is_test(paths, [0] * 20, 0.3, 0))
    np.testing.assert_array_equal(drawn, [1, 2, 6, 7, 14, 15])


def test_image_size_is_that_of_all_or_none(image_root):
    write_image(image_root / "train/cat/wide.png", size=(8, 10))
    assert load(image_root, check_images=True).image_size is None
    assert load(image_root, "test").image_size is None  # unknown


def test_extensions_in_any_case_and_hidden_files(image_root):
    write_image(image_root / "train/cat/a.JPEG")
    write_image(image_root / "train/cat/b.Jpg")
    (image_root / "train/cat/.DS_Store").write_text("hidden")
    (image_root / "train/.cache").mkdir()
    write_image(image_root / "train/cat/.thumbs/a.png")
    (image_root / "train/README.txt").write_text("beside the classes")
    assert load(image_root).ids == (
        "train/cat/00.png", "train/cat/01.png", "train/cat/a.JPEG",
        "train/cat/b.Jpg", "train/dog/00.png", "train/dog/01.png",
        "train/dog/02.png",
    )  # fmt: skip


@pytest.fixture
def with_bad(image_root):
    """The given folder with five bad files in train/."""
    cat = image_root / "train/cat"
    (cat / "empty.png").write_bytes(b"")
    (cat / "bytes.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    (cat / "text.jpg").write_text("not an image")
    write_image(cat / "moving.gif")
    (cat / "moving.gif").rename(cat / "gif.png")
    write_image(cat / "whole.jpg", size=(64, 64))
    contents = (cat / "whole.jpg").read_bytes()
    (cat / "cut.jpg").write_bytes(contents[: len(contents) // 2])
    (cat / "whole.jpg").unlink()
    return image_root


def test_bad_files_stop_with_their_paths(with_bad):
    message = (
        "`data_dir` must hold only readable .jpg .jpeg .jpe .jfif .png images, "
        f"got 5 bad files of 10 in {with_bad}: train/cat/bytes.png, "
        "train/cat/cut.jpg, train/cat/empty.png, train/cat/gif.png, "
        "train/cat/text.jpg (the first: PNG file must begin with its header, "
        "got another chunk). Remove them, or leave them out with "
        "`skip_bad_images`"
    )
    with pytest.raises(ValueError) as error:
        load(with_bad, check_images=True)
    assert str(error.value) == message
    assert load(with_bad).num_examples == 10
    for i in range(2):
        (with_bad / f"train/cat/z{i}.png").write_text("x")
    with pytest.raises(ValueError, match="text.jpg, ... [(]the first"):
        load(with_bad, check_images=True)


def test_bad_files_can_be_skipped(with_bad):
    source = load(with_bad, skip_bad_images=True)
    assert source.num_examples == 5
    assert names(source.skipped) == [
        "bytes.png", "cut.jpg", "empty.png", "gif.png", "text.jpg",
    ]  # fmt: skip
    assert source.ids[:2] == ("train/cat/00.png", "train/cat/01.png")
    assert source.image_size == 8
    labels = [int(source.read(i)[1]) for i in source.records(None)]
    assert labels == source.labels.tolist() == [0, 0, 1, 1, 1]


def test_files_of_other_kinds_are_no_images(image_root):
    for name in ("dog/notes.txt", "dog/Thumbs.db", "cat/a.webp"):
        (image_root / "train" / name).write_text("no image")
    source = load(image_root)
    assert (source.num_examples, source.skipped) == (5, ())
    assert source.ignored == (
        "train/cat/a.webp", "train/dog/Thumbs.db", "train/dog/notes.txt",
    )  # fmt: skip
    write_image(image_root / "train/a.png")  # of no class
    write_image(image_root / "b.png")  # of no split
    assert load(image_root).ignored[0] == "train/a.png"
    assert len(load(image_root).ignored) == 4
    for path in (image_root / "train/cat").glob("*.png"):
        path.unlink()
    with pytest.raises(
        ValueError,
        match="`train/cat` must hold at least one .jpg .* .png image, got none "
        "in .* but a.webp",
    ):
        load(image_root)


@pytest.mark.parametrize(
    "change, options, message",
    [
        ("true", {"check_images": False, "skip_bad_images": True},
         "`check_images` must be True for `skip_bad_images`"),
        ("for f in train/cat/*; do echo x > $f; done",
         {"skip_bad_images": True},
         "class `cat` must have .*one readable image"),
        ("for f in test/*/*; do echo x > $f; done",
         {"split": "test", "skip_bad_images": True},
         "the test split must hold images"),
        ("mv test/dog test/fox", {},
         r"must have training images of every class that is tested, or of "
         r"none, got a difference \(- only in train, \+ only in test\): - dog, "
         r"\+ fox"),
        ("mkdir train/cat/more && cp train/cat/00.png train/cat/more", {},
         "`train/cat` must hold image files only, .*got .*`more`"),
        ("mkdir train/ant test/ant", {}, "`train/ant` must hold at least one"),
        ("mv test holdout", {},
         r"`data_dir` must hold train and test \(or val\), .*"
         r"got \{'train': 2\} classes in "),
        ("cp -r test Testing", {}, "one folder of the split test, got Testing "
         "and test in"),
        ("mv test/dog test/Dog; mv test/cat test/CAT", {}, "a difference"),
        ("mv train/dog 'train/a\nb'; mv test/dog 'test/a\nb'", {},
         "classes that are called by a line of text each, got 'a"),
        ("mv */cat/*.png train; rm -r */cat */dog; mv train/00.png test", {},
         r"got \{'test': 0, 'train': 0\} cl"),  # splits, not classes
        ("mkdir set; mv train set; rm -r test", {}, "image files only"),
        ("mv test/cat/* .; rm -r test train", {},
         "one sub-folder per class.*no folder"),
    ],
)  # fmt: skip
def test_mistakes_in_a_folder_are_named(image_root, change, options, message):
    subprocess.run(change, shell=True, check=True, cwd=image_root)
    with pytest.raises(ValueError, match=message):
        load(image_root, **options)


def test_few_images_are_split(tmp_path):
    make_empty_files(tmp_path, {"a": 1, "b": 1})
    for fraction in (0.0, 1.0, 20):
        with pytest.raises(ValueError, match=rf"in \(0, 1\), got {fraction}"):
            load(tmp_path, test_fraction=fraction)
    with pytest.raises(
        ValueError,
        match="the test split must hold images, got 0; of a class of one image",
    ):
        load(tmp_path, "test", test_fraction=1e-9)
    assert load(tmp_path, test_fraction=1 - 1e-9).num_examples == 2


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "counts, name",
    [
        ({f"{i:03d}": 2 for i in range(60)}, "{c}_{i}.png"),
        ({f"{i:03d}": 1 if i else 9 for i in range(40)}, "{c}_{i}.png"),
        ({f"{i:03d}": 2 for i in range(10)}, "{i}.png"),  # 1.png in each class
    ],
)
def test_every_class_keeps_training_images(counts, name, seed):
    """However few images a class has; and the test split has an image."""
    paths = [
        f"{c}/{name.format(c=c, i=i)}"
        for c, count in counts.items()
        for i in range(count)
    ]
    labels = np.array([int(path[:3]) for path in paths])
    is_test = partition.is_test(paths, labels, 0.2, seed)
    assert {*labels[~is_test]} == {*labels} and is_test.any()
    # By its own name alone, but for an image that its class cannot spare.
    hashed = np.array(
        [partition._share(path[4:], seed) < 0.2 for path in paths]
    )
    changed = np.flatnonzero(is_test != hashed)
    assert hashed[changed].all() or not is_test[hashed].any()
    # Other classes move nothing.
    first = labels < 5
    alone = partition.is_test(
        [path for path in paths if int(path[:3]) < 5], labels[first], 0.2, seed
    )
    assert (alone == is_test[first]).all() or not hashed[first].any()


def test_of_several_labels_each_keeps_training_images():
    rng = np.random.default_rng(0)
    labels = (rng.random([40, 30]) < 0.1).astype(np.uint8)
    labels[:, labels.sum(axis=0) == 0] = 1
    for fraction in (1e-9, 0.2, 0.9):
        is_test = partition.is_test(map(str, range(40)), labels, fraction, 0)
        assert labels[~is_test].any(axis=0).all()


def test_splits_have_many_names(image_root):
    before = SPLITS
    for names in (
        ("Training", "Testing"), ("TRAIN", "Val"), ("Train", "validation"),
        ("training", "valid"),
    ):  # fmt: skip
        for old, new in zip(before, names, strict=True):
            (image_root / old).rename(image_root / "moving")
            (image_root / "moving").rename(image_root / new)
        assert load(image_root).ids[0] == f"{names[0]}/cat/00.png"
        assert load(image_root, "test").num_examples == 3
        before = names


def test_a_rare_class_may_be_missing_in_test(image_root):
    for name in ("cat", "dog"):
        write_image(image_root / "train" / name / "more.png")
    shutil.rmtree(image_root / "test/dog")
    test = load(image_root, "test")
    assert test.class_names == load(image_root).class_names == ("cat", "dog")
    assert test.labels.tolist() == [0, 0]
    (image_root / "test/dog").mkdir()
    assert load(image_root, "test").labels.tolist() == [0, 0]


def test_names_in_any_bytes_and_form(image_root):
    """Bytes that are no UTF-8, letters in two forms, brackets, links."""
    for split in ("train", "test"):
        folder = image_root / split
        latin = os.fsdecode(os.fsencode(folder) + b"/caf\xe9")
        os.mkdir(latin)
        shutil.copy(
            folder / "cat/00.png", os.fsencode(latin) + b"/\xff[0]*?.png"
        )
        form = "NFC" if split == "train" else "NFD"
        (folder / unicodedata.normalize(form, "\xe9t\xe9")).symlink_to("dog")
        (folder / "__MACOSX/dog").mkdir(parents=True)
        (folder / "__MACOSX/dog/._00.png").write_bytes(b"no image")
    train, test = load(image_root), load(image_root, "test")
    class_names = ("caf\\xe9", "cat", "dog", "\xe9t\xe9")
    assert train.class_names == test.class_names == class_names
    assert train.num_examples == 1 + 2 + 3 + 3
    assert train.ids[0] == "train/caf\\xe9/\\xff[0]*?.png"
    for source in (train, test):
        for record in source.records(None):
            assert source.read(record)[0].numpy()[:4] == b"\x89PNG"
    json.dumps(train.ids, ensure_ascii=False).encode()  # can be saved


def test_runs_beside_the_classes_are_no_classes(tmp_path):
    """Of --data_dir=. and --run_dir=runs/mine, say."""
    make_empty_files(tmp_path, {"a": 9, "b": 9})
    before = load(tmp_path)
    for run in ("runs/mine", "one"):
        (tmp_path / run / "checkpoints").mkdir(parents=True)
        (tmp_path / run / "settings.flags").write_text("")
    assert load(tmp_path).ids == before.ids
    (tmp_path / "c/more").mkdir(parents=True)
    with pytest.raises(ValueError, match="`c` must hold image files only"):
        load(tmp_path)


def test_16_bits_that_hold_12_are_refused(image_root):
    values = np.arange(64, dtype=np.uint16).reshape(8, 8)
    Image.fromarray(values * 64).save(image_root / "train/cat/deep.png")
    with pytest.raises(ValueError, match="16 bits must .* below 4096 of 65536"):
        load(image_root, check_images=True)
    Image.fromarray(values * 1024).save(image_root / "train/cat/whole.png")
    # An image uses the whole range.
    assert load(image_root, check_images=True).num_examples == 7


def test_a_vanished_file_is_an_error_that_names_it(image_root):
    source = load(image_root)
    pathlib.Path(image_root / source.ids[0]).unlink()
    with pytest.raises(tf.errors.NotFoundError, match="00.png"):
        source.read(tf.constant(0))


def test_a_split_by_class_holds_whole_classes_out(tmp_path):
    """A class is in the split of its own hash, whatever other classes come."""
    classes = [f"class {index}" for index in range(12)]
    make_empty_files(tmp_path, dict.fromkeys(classes, 2))
    options = {"split_by": "class"}
    train, test = (load(tmp_path, split, **options) for split in SPLITS)
    assert sorted(train.class_names + test.class_names) == sorted(classes)
    assert len(test.class_names) >= 2 and len(train.class_names) >= 2
    for part in (train, test):
        assert part.num_examples == 2 * len(part.class_names)
        for label, path in zip(part.labels, part.ids, strict=True):
            assert path.startswith(f"{part.class_names[label]}/")
    shutil.rmtree(tmp_path / test.class_names[-1])
    fewer = load(tmp_path, "test", **options)
    assert {*fewer.class_names} >= {*test.class_names[:-1]}
    other = load(tmp_path, "test", split_seed=3, **options)
    assert other.class_names != fewer.class_names
    make_empty_files(tmp_path, {test.class_names[-1]: 2})
    half = load(tmp_path, "test", test_fraction=0.5, **options)
    assert {*half.class_names} >= {*test.class_names}


def test_a_split_by_class_needs_four_classes_and_no_splits(
    image_root, tmp_path
):
    with pytest.raises(ValueError, match="must be image for a folder that has"):
        load(image_root, split_by="class")
    make_empty_files(tmp_path / "three", dict.fromkeys("abc", 1))
    with pytest.raises(
        ValueError, match="must have 4 classes or more .* got 3"
    ):
        load(tmp_path / "three", split_by="class")
