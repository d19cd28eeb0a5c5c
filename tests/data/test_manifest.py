"""Manifests: lists of real image files, good and bad."""

import json

import numpy as np
import pytest

from supcon_tf import data, datasets
from supcon_tf.data import manifest, partition, subsets
from tests.data.test_folder import write_image


@pytest.fixture
def images(tmp_path):
    """Ten images, images/0.png to images/9.png."""
    for i in range(10):
        write_image(tmp_path / "images" / f"{i}.png", i)
    return tmp_path


def load(root, name, contents, split="train", **options):
    path = root / name
    if contents is not None:
        path.write_bytes(contents.encode())
    options = {"check_images": "skip_bad_images" in options, **options}
    return data.load("manifest", split, str(path), **options)


# Three training images, two of test, with what is not looked at.
CSV = (
    "label,note,path,split\r\n"
    "dog,,images/3.png,train\r\n"
    '"a, cat","said ""no""\n",images/1.png,train\r\n'
    "dog,,images/2.png,test\r\n"
    "\r\n"
    '"a, cat",,images/0.png,test\r\n'
    "dog,,images/4.png,train\r\n"
)


def table_text(contents):
    """The rows of `CSV` in the other formats."""
    rows = [
        ("dog", "images/3.png", "train"),
        ("a, cat", "images/1.png", "train"),
        ("dog", "images/2.png", "test"),
        ("a, cat", "images/0.png", "test"),
        ("dog", "images/4.png", "train"),
    ]
    if contents == "jsonl":
        names = "label", "path", "split"
        return "\n".join(
            json.dumps(dict(zip(names, row, strict=True))) for row in rows
        )
    return "label\tpath\tsplit\n" + "\n".join(map("\t".join, rows))


@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl"])
def test_every_format_gives_the_same(images, kind):
    contents = CSV if kind == "csv" else table_text(kind)
    train = load(images, f"a.{kind}", contents, check_images=True)
    test = load(images, f"a.{kind}", None, "test")
    assert train.class_names == test.class_names == ("a, cat", "dog")
    assert train.ids == ("images/3.png", "images/1.png", "images/4.png")
    assert test.ids == ("images/2.png", "images/0.png")
    assert (train.name, train.image_size) == ("manifest", 8)
    assert train.weights is None and not train.is_multi_label
    pairs = list(train.records(None).map(train.read).as_numpy_iterator())
    assert [label for _, label in pairs] == [1, 0, 1]
    assert [contents for contents, _ in pairs] == [
        (images / name).read_bytes() for name in train.ids
    ]


def test_paths_may_be_whole_and_val_tests_where_no_test_does(images):
    rows = f"path,label,split\n{images}/images/0.png,a,train\n"
    rows += f"file://{images}/images/1.png,b,train\n"
    rows += "images/2.png,a,validation\n"
    train = load(images, "a.csv", rows)
    assert train.read(1)[0] == (images / "images/1.png").read_bytes()
    assert train.read(0)[0] == (images / "images/0.png").read_bytes()
    assert load(images, "a.csv", None, "test").ids == ("images/2.png",)
    rows += "images/3.png,b,test\n"
    assert load(images, "a.csv", rows, "test").ids == ("images/3.png",)
    assert load(images, "a.csv", None).num_examples == 2


def test_without_a_split_a_hash_decides_as_in_a_folder(images):
    rows = "".join(f"images/{i}.png,{'ab'[i % 2]}\n" for i in range(10))
    splits = [
        load(images, "a.csv", "path,label\n" + rows, split, test_fraction=0.4)
        for split in ("train", "test")
    ]
    assert {*splits[0].ids, *splits[1].ids} == {
        f"images/{i}.png" for i in range(10)
    }
    names = [f"{i}.png" for i in range(10)]
    is_test = partition.is_test(names, [0, 1] * 5, 0.4, 0)
    expected = [f"images/{i}.png" for i in np.flatnonzero(is_test)]
    assert list(splits[1].ids) == expected


def test_several_labels(images):
    """Of a separator and as lists; an image may have none."""
    rows = "path,labels,split\nimages/0.png,cat|dog,train\n"
    rows += "images/1.png,,train\nimages/2.png,dog,test\n"
    lines = [
        {"path": "images/0.png", "labels": ["cat", "dog"], "split": "train"},
        {"path": "images/1.png", "labels": [], "split": "train"},
        {"path": "images/2.png", "labels": "dog", "split": "test"},
    ]
    json_lines = "\n".join(map(json.dumps, lines))
    for name, contents in (("a.csv", rows), ("a.jsonl", json_lines)):
        train = load(images, name, contents)
        assert train.class_names == ("cat", "dog") and train.is_multi_label
        np.testing.assert_array_equal(train.labels, [[1, 1], [0, 0]])
        test = load(images, name, None, "test")
        np.testing.assert_array_equal(test.labels, [[0, 1]])
    options = {"image_size": 8, "crop_area": None}
    (views, labels), *_ = data.make_views(train, 2, **options).take(1)
    assert views.shape == (2, 2, 8, 8, 3) and labels.dtype == np.uint8
    assert sorted(labels.numpy().tolist()) == [[0, 0], [1, 1]]
    with pytest.raises(ValueError, match="left out for images of several lab"):
        data.make_views(train, 2, images_per_class=1)


def test_weights_come_with_the_views(images):
    """Scaled to a mean of 1, each beside its own image, in any order."""
    for unit in (1e307, 1e-50, 0.5):  # the first two are beyond float32
        rows = "path,label,split,weight\n" + "".join(
            f"images/{i}.png,{i},train,{i * unit}\n" for i in range(10)
        )
        train = load(images, "a.csv", rows + "images/none.png,1,test,1\n")
        expected = np.arange(10) / 4.5
        np.testing.assert_allclose(train.weights, expected, rtol=1e-6)
    part = subsets.subset(train, [2, 4, 7, 8])
    options = {"image_size": 8, "crop_area": None}
    for _, labels, weights in data.make_views(part, 2, **options).take(4):
        np.testing.assert_allclose(weights, labels.numpy() / 5.25, rtol=1e-6)


def test_weights_have_a_mean_of_1_without_the_images_left_out(images):
    (images / "images/9.png").write_bytes(b"no image")
    rows = "path,label,split,weight\n" + "".join(
        f"images/{i}.png,{i % 2},{'test' if i < 2 else 'train'},"
        f"{1000 if i == 9 else i}\n"
        for i in range(10)
    )
    train = load(images, "a.csv", rows, skip_bad_images=True)
    assert train.skipped == ("images/9.png",)
    np.testing.assert_allclose(train.weights, np.arange(2, 9) / 5)
    kept, held_out = data.train_and_validation(train, 0.5)
    assert kept.weights.mean() == pytest.approx(1)
    assert held_out.weights.mean() == pytest.approx(1)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("images/0.png,a,train,1\nimages/1.png,a\n", "a.csv:3 must have 4 fie"),
        ("images/0.png,a,train,1\nimages/0.png,b,test,1\n",
         "a.csv:3 must have another path than those before, got 'images/0.png"),
        ("images/0.png,a,train,1\n./images//0.png,b,test,1\n",
         "a.csv:3 must have another path .* got './images//0.png'"),
        ("images/\xe9.png,a,train,1\nimages/e\u0301.png,b,test,1\n",
         "a.csv:3 must have another path than those before"),
        (",a,train,1\n", "a.csv:2 must have a path, got ''"),
        ("images/0.png,,train,1\n", "a.csv:2 must have a label or labels, got"),
        ("images/0.png,a,first,1\n", "a.csv:2 must have a split of train and"),
        ("https://x.org/0.png,a,train,1\n",
         "a.csv:2 must have the path of a file, or an address .* got https://"),
        ("images/0.png,a,train,1\nimages/1.png,b;a,train,1\n"
         "images/2.png,b,test,1\n", "the column labels, .* got ';' in b;a"),
        ("images/0.png,a,train,x\n", "a.csv:2 must have a weight .* got x"),
        ("images/0.png,a,train,-1\n", "a.csv:2 must have a weight .* got -1"),
        ("images/0.png,a,train,inf\n", "a.csv:2 must have a weight"),
        ("images/0.png, ,train,1\n", "a.csv:2 must have a label or labels"),
        ("images/0.png,a,train,0\nimages/1.png,a,test,1\n",
         "a.csv must have a weight above 0 in each split"),
        ("images/0.png,a,train,1\nimages/1.png,b,test,1\n"
         "images/2.png,a,test,1\n",
         r"a.csv must have training images of every class .*: \+ b"),
        ("images/0.png,a,train,1\nno.png,a,train,1\nimages/1.png,a,test,1\n",
         r"a.csv must name files that are there, got 1 .*: no.png \(a.csv:3\)"),
        ("images/0.png,a,test,1\n", "training images of every class"),
    ],
)  # fmt: skip
def test_wrong_rows_are_named_by_line(images, rows, message):
    with pytest.raises(ValueError, match=message):
        load(images, "a.csv", "path,label,split,weight\n" + rows)


def test_one_label_is_no_list_and_comes_without_labels(images):
    """A combination would be a class; one of two columns would be ignored."""
    row = {"path": "images/0.png", "label": ["a"], "split": "train"}
    assert load(images, "a.jsonl", json.dumps(row)).class_names == ("a",)
    row["label"] = ["a", "b"]
    with pytest.raises(
        ValueError,
        match=r"a.jsonl:1 must have one value for label; call the column labels"
        r" for several values, got \['a', 'b'\]",
    ):
        load(images, "a.jsonl", json.dumps(row))
    rows = "path,label,labels,split\nimages/0.png,a,,train\n"
    with pytest.raises(
        ValueError, match="a.csv:2 must have a label or labels, got both, 'a' a"
    ):
        load(images, "a.csv", rows)
    rows = "path,cat,dog,split\nimages/0.png,1,0,train\n"
    with pytest.raises(ValueError, match="a.csv:2 must .* got neither: name a"):
        load(images, "a.csv", rows)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (["['a']", "['a', 'b']", ""], r"brackets .* got \['a'\], \['a', 'b'"),
        (["0|1|0", [1, 0, 0], [0, 0, 0]], r"names of .* got 0\|1\|0, 1\|0\|0,"),
        (["a", "", ""], "a.jsonl must have a label of some test image.* got 2"),
        (["a", ["[b]", "[c]"], "[b]"], None),
        ([[0, 1], [1], []], None),  # numbers of classes
        ([[0, 0], [1, 1, 0], []], None),  # of boxes in an image
    ],
)  # fmt: skip
def test_labels_of_another_form_are_refused(images, labels, message):
    """Each combination would be a class, or 0 and 1 those of every image."""
    splits = "train", "test", "test"
    lines = [
        {"path": f"images/{i}.png", "labels": value, "split": split}
        for i, (value, split) in enumerate(zip(labels, splits, strict=True))
    ]
    lines.append(
        {"path": "images/9.png", "labels": labels[1], "split": "train"}
    )
    lines.append(
        {"path": "images/8.png", "labels": labels[2], "split": "train"}
    )
    contents = "\n".join(map(json.dumps, lines))
    if message is None:
        assert load(images, "a.jsonl", contents, "test").num_examples == 2
        return
    with pytest.raises(ValueError, match=message):
        load(images, "a.jsonl", contents, "test")


def test_the_end_of_a_name_may_have_capitals(images):
    rows = "path,label,split\nimages/0.png,a,train\n"
    assert load(images, "PROD.CSV", rows).ids == ("images/0.png",)
    load(images, "PROD.Tsv", rows.replace(",", "\t"))
    row = '{"path": "images/0.png", "label": "a", "split": "train"}'
    load(images, "PROD.JSONL", row)
    for name in ("PROD.CSV", "PROD.Tsv", "PROD.JSONL"):
        assert datasets.name_by_path(name, "folder") == "manifest"


def test_files_that_are_wrong(images):
    with pytest.raises(ValueError, match="a.csv:1, the header, must .* path"):
        load(images, "a.csv", "file,label\nimages/0.png,a\n")
    twice = "path,label,label,split\nimages/0.png,a,b,train\n"
    with pytest.raises(ValueError, match="a.csv:1, .* one column label; rena"):
        load(images, "a.csv", twice)
    lines = '{"path": "images/0.png", "labels": ["a|b", "c"]}'
    with pytest.raises(ValueError, match=r"a.jsonl:1 .* without \| in a li"):
        load(images, "a.jsonl", lines)
    with pytest.raises(ValueError, match="must be a file .tsv, .csv, .jsonl"):
        data.load("manifest", "train", str(images))
    mixed = '{"path": "images/0.png", "label": "a", "split": "train"}\n'
    mixed += '{"path": "images/1.png", "label": "a"}\n'
    with pytest.raises(ValueError, match="all rows a split, or none, got 1 wi"):
        load(images, "a.jsonl", mixed)
    (images / "images/1.png").write_bytes(b"no image")
    rows = "path,label,split\nimages/0.png,a,train\nimages/1.png,a,train\n"
    rows += "images/gone.png,a,train\nimages/2.png,a,test\n"
    with pytest.raises(ValueError, match="that are not: images/gone.png"):
        load(images, "a.csv", rows)
    source = load(images, "a.csv", None, skip_bad_images=True)
    assert source.skipped == ("images/1.png", "images/gone.png")
    assert source.ids == ("images/0.png",)


@pytest.mark.parametrize("mark", [";", ",", " "])
def test_other_separators_of_labels_are_refused(images, mark):
    """Each combination would become a class of its own."""
    alone = ["haze", "water", f"haze{mark}water", f"water{mark}haze"]
    never_alone = [f"{a}{mark}{b}" for a in "pqr" for b in "pqr" if a != b]
    for fields in (alone, never_alone):
        rows = "path,labels,split\n" + "".join(
            f'images/{i}.png,"{field}",{"test" if i % 2 else "train"}\n'
            for i, field in enumerate(fields)
        )
        with pytest.raises(ValueError, match="separate them by"):
            load(images, "a.csv", rows)
    names = ["polar bear", "sun bear", "sun hat", "a, b", "x; y", "cat"]
    for ends in ("", "|"):  # of names: few of their words come again
        rows = "path,labels,split\n" + "".join(
            f'images/{i}.png,"{name}{ends}",train\n'
            for i, name in enumerate(names)
        )
        assert load(images, "a.csv", rows).class_names == tuple(sorted(names))


def test_unseen_classes_and_rare_ones(images):
    rows = "path,label,split\nimages/0.png,a,train\nimages/1.png,b,train\n"
    test = "images/2.png,c,test\nimages/3.png,d,Testing\n"
    assert load(images, "a.csv", rows + test, "test").class_names == ("c", "d")
    assert load(images, "a.csv", None).class_names == ("a", "b")
    test = load(images, "a.csv", rows + "images/2.png,b,VAL\n", "test")
    assert (test.class_names, test.labels.tolist()) == (("a", "b"), [1])


@pytest.mark.parametrize("has_splits", [True, False])
def test_all_rows_are_loaded_whatever_their_split(images, has_splits):
    rows = "".join(
        f"images/{i}.png,{'aab'[i % 3]}{',test' * has_splits}\n"
        for i in range(9)
    )
    rows += "images/9.png,c" + ",train" * has_splits
    path = images / "a.csv"
    path.write_text("path,label" + ",split" * has_splits + "\n" + rows)
    everything = manifest.load_all_images(str(path))
    assert everything.ids == tuple(f"images/{i}.png" for i in range(10))
    assert everything.class_names == ("a", "b", "c")
    assert everything.labels.tolist() == [0, 0, 1] * 3 + [2]
    assert manifest.has_splits(str(path)) == has_splits


def test_paths_may_be_written_in_another_form(images):
    (images / "images/4.png").rename(images / "images/e\u0301.png")
    rows = "path,label,split\nimages/\xe9.png,a,train\n"
    rows += "images\\5.png,a,train\nimages/6.png,a,test\n"
    train = load(images, "a.csv", rows)
    assert train.num_examples == 2
    assert train.ids == ("images/\xe9.png", "images/5.png")


def test_long_fields_are_read(images):
    rows = f"path,label,mask\nimages/0.png,a,{'1 2 ' * 50_000}\n"
    rows += "images/1.png,b,\n"
    assert load(images, "a.csv", rows).num_examples == 2


def test_tables_as_excel_writes_them(images):
    """Semicolons where numbers have decimal commas; capitals; UTF-16."""
    rows = [("Path", "Label ", "notes"), ("images/0.png", "a", "1,5")]
    rows.append(("images/1.png", "b;c", "2"))
    text = "\r\n".join(";".join(f'"{cell}"' for cell in row) for row in rows)
    train = load(images, "a.csv", "\ufeff" + text)
    assert train.class_names == ("a", "b;c") and train.num_examples == 2
    (images / "b.csv").write_text(text, "utf-16")
    with pytest.raises(ValueError, match="b.csv:1 must be UTF-8, got UTF-16"):
        load(images, "b.csv", None)


def test_a_split_by_class_holds_whole_classes_out(images):
    rows = "".join(f"images/{i}.png,{'abcde'[i // 2]}\n" for i in range(10))
    train, test = (
        load(images, "a.csv", "path,label\n" + rows, split, split_by="class")
        for split in ("train", "test")
    )
    assert sorted(train.class_names + test.class_names) == [*"abcde"]
    is_test = partition.is_test_class([*"abcde"], 0.2, 0, "a.csv")
    expected = [f"images/{i}.png" for i in range(10) if is_test[i // 2]]
    assert list(test.ids) == expected
    split_rows = "path,label,split\nimages/0.png,a,train\nimages/1.png,b,test\n"
    with pytest.raises(ValueError, match="and no splits, for `split_by` class"):
        load(images, "b.csv", split_rows, split_by="class")
