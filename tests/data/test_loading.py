"""Data by their path alone, and the third split."""

import pathlib

import numpy as np
import pytest
from PIL import Image

from supcon_tf import data


def write_images(root, counts):
    """So many images of two classes in each split, each its own shade."""
    shade = 0
    for split, count in counts.items():
        for name in ("cat", "dog"):
            (root / split / name).mkdir(parents=True)
            for index in range(count):
                shade += 1
                image = np.full([8, 8, 3], shade, np.uint8)
                path = root / split / name / f"{split}{index}.png"
                Image.fromarray(image).save(path)
    return root


@pytest.fixture
def photos(tmp_path):
    counts = {"train": 3, "val": 1, "test": 2}
    return write_images(tmp_path / "photos", counts)


def write_manifest(photos, splits=("train", "val", "test")):
    rows = [
        f"{path.relative_to(photos)},{path.parent.name},{split}"
        for split in splits
        for path in sorted(photos.glob(f"{split}/*/*"))
    ]
    path = photos / "list.csv"
    path.write_text("\n".join(["path,label,split", *rows]) + "\n")
    return path


def shades(source):
    examples = map(source.read, source.records(None))
    return {int(data.decode_image(image)[0, 0, 0]) for image, _ in examples}


def test_a_class_may_be_called_as_files_of_records(photos):
    (photos / "train/dog").rename(photos / "train/birds-of-prey")
    source = data.load(photos / "train", check_images=False)
    assert source.class_names == ("birds-of-prey", "cat")


@pytest.mark.slow(but=["False-str", "True-Path"])
@pytest.mark.parametrize("kind", [str, pathlib.Path])
@pytest.mark.parametrize("is_manifest", [False, True])
def test_a_path_is_a_data_set_of_three_splits(photos, kind, is_manifest):
    path = kind(write_manifest(photos) if is_manifest else photos)
    train = data.load(path, check_images=False)
    assert train.split == "train" and train.num_examples == 6
    validation, test = (
        data.load(path, split, check_images=False) for split in ("val", "test")
    )
    parts = train, validation, test
    assert [part.num_examples for part in parts] == [6, 2, 4]
    assert validation.split == "validation"
    assert {part.class_names for part in parts} == {("cat", "dog")}
    assert set.union(*map(shades, parts)) == set(range(1, 13))


def test_the_path_of_tfrecord_files(photos, tmp_path):
    splits = {
        name: data.load(photos, name, check_images=False)
        for name in ("train", "test")
    }
    data.write_tfrecords(splits, tmp_path / "records")
    source = data.load(tmp_path / "records", "test", check_images=False)
    assert shades(source) == shades(splits["test"])
    with pytest.raises(ValueError, match="except for folders and manifests"):
        data.load(tmp_path / "records", "validation")


@pytest.mark.parametrize("split_names", ["train test", "train val", ""])
def test_without_three_splits_there_is_no_validation(photos, split_names):
    """What tests, as val where there is no other, never chooses too."""
    splits = split_names.split()
    manifest = write_manifest(photos, splits or ("train",))
    if not splits:  # a hash decides what tests
        photos = photos / "train"
        lines = manifest.read_text().replace(",split", "").splitlines()
        lines = [line.removesuffix(",train") for line in lines]
        manifest.write_text("\n".join(lines) + "\n")
    else:
        left_out = ({"train", "val", "test"} - {*splits}).pop()
        for path in (photos / left_out).rglob("*.png"):
            path.unlink()
        for path in (photos / left_out).iterdir():
            path.rmdir()
        (photos / left_out).rmdir()
    for path in (photos, manifest):
        with pytest.raises(ValueError, match="train, test and val for the spl"):
            data.load(path, "validation")


def test_val_tests_and_does_not_choose_where_test_has_no_classes(photos):
    for path in sorted(photos.glob("test/*/*")):
        path.rename(photos / "test" / f"{path.parent.name}_{path.name}")
    for name in ("cat", "dog"):
        (photos / "test" / name).rmdir()
    test = data.load(photos, "test", check_images=False)
    assert {name.partition("/")[0] for name in test.ids} == {"val"}
    assert not data.has_validation("folder", str(photos))
    with pytest.raises(ValueError, match="train, test and val for the split v"):
        data.load(photos, "validation")


def test_a_part_of_the_training_split_is_held_out(photos):
    source = data.load(photos, check_images=False)
    train, validation = data.train_and_validation(source, 0.3, seed=1)
    assert (train.split, validation.split) == ("train", "validation")
    assert (train.num_examples, validation.num_examples) == (4, 2)
    assert shades(train) | shades(validation) == shades(source)
    assert sorted(validation.labels) == [0, 1]
