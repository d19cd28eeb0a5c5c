"""Files of labelled sentences: what is read, and what is named."""

import sys
import types

import pytest
import tensorflow as tf
import tensorflow_datasets as tfds

from supcon_tf import text


def write_file(tmp_path, name, contents):
    path = tmp_path / name
    if isinstance(contents, str):
        contents = contents.encode()
    path.write_bytes(contents)
    return str(path)


def test_every_format_gives_the_same(tmp_path):
    """With quotes, a mark at the start, and ends of lines of all systems."""
    tsv = 'label\tsentence\r\n1\tsaid "no\r\n\r\n0\t nie \u2028 wieder \r\n'
    csv = 'label,sentence\n1,"said ""no"\n\n0," nie \u2028 wieder "\n'
    lines = (
        '{"label": 1, "sentence": "said \\"no"}\n\n'
        '{"sentence": " nie \u2028 wieder ", "label": "0", "more": [1]}'
    )
    for name, contents in (
        ("a.tsv", "\ufeff" + tsv),
        ("a.tsv", tsv.replace("\r\n", "\r")),
        ("a.csv", "\ufeff" + csv),
        ("a.csv", csv.replace("\n", "\r")),
        ("a.jsonl", lines),
    ):
        read = text.read_texts(
            write_file(tmp_path, name, contents), ["sentence"], "label"
        )
        assert read.texts == (('said "no',), ("nie \u2028 wieder",)), name
        assert read.labels == ("1", "0")
        assert read.name == name
        first = 1 if name == "a.jsonl" else 2
        assert read.ids == (f"{name}:{first}", f"{name}:{first + 2}")


def test_columns_are_numbers_without_a_header(tmp_path):
    path = write_file(tmp_path, "a.tsv", "b c\td\t1\nx\ty z\t0\n")
    read = text.read_texts(path, ["0", "1"], "2")
    assert read.texts == (("b c", "d"), ("x", "y z"))
    assert read.ids == ("a.tsv:1", "a.tsv:2")


@pytest.mark.parametrize("columns", [("0", "1"), ("1", "0")])
def test_a_header_of_numbers_is_no_example(tmp_path, columns):
    """As pandas writes columns that have no names."""
    path = write_file(tmp_path, "a.csv", "0,1\nx,1\n0,1\n")
    read = text.read_texts(path, columns[:1], columns[1])
    assert read.ids == ("a.csv:2", "a.csv:3")


def test_a_quoted_field_may_have_lines(tmp_path):
    path = write_file(tmp_path, "a.csv", 's,l\n"a\nb",1\nc,0\n')
    read = text.read_texts(path, ["s"], "l")
    assert read.texts == (("a\nb",), ("c",))
    assert read.ids == ("a.csv:2", "a.csv:4")


def test_rows_may_end_with_empty_fields(tmp_path):
    """As spreadsheets write them."""
    path = write_file(tmp_path, "a.csv", "s,l,\nx,1,,\ny,0\n")
    assert text.read_texts(path, ["s"], "l").labels == ("1", "0")


@pytest.mark.parametrize(
    ("name", "contents", "columns", "message"),
    [
        (
            "a.csv",
            "s,l\na c,1\na c, b,0\n",
            ("s", "l"),
            "a.csv:3 must have at most 2 fields, as the first line .put a field"
            ".* in double quotes.*, got 3, the last '0'",
        ),
        ("a.csv", "s;l\na; c;1\n", ("s", "l"), "a.csv:2 must .* 2 .*, got 3"),
        ("a.tsv", "s\tl\na\tb\t1\n", ("s", "l"), ":2 must .* have no tab.*3"),
        ("a.csv", "a c,1\na c, b,0\n", ("0", "1"), "a.csv:2 must .* 2 .*, got"),
    ],
)
def test_a_row_of_more_fields_than_the_first_line(
    tmp_path, name, contents, columns, message
):
    """Its text would be cut, and the rest of the text be its label."""
    path = write_file(tmp_path, name, contents)
    with pytest.raises(ValueError, match=message):
        text.read_texts(path, columns[:1], columns[1])


@pytest.mark.parametrize(
    ("name", "contents", "message"),
    [
        ("a.txt", "s\tl\n", "must be a file .tsv, .csv, .jsonl, got .*'.txt'"),
        ("a.tsv", "text\tl\nx\t1\n", "a.tsv:1, the header, must have a column"),
        ("a.tsv", "s\tl\ts\nx\t1\ty\n", "header, must have one .* s; "),
        ("a.tsv", "s\tl\nx\t1\nonly\n", "a.tsv:3 must have 2 fields, got 1"),
        ("a.tsv", "s\tl\n \t1\n", "a.tsv:2 must have a s that is not empty"),
        ("a.tsv", "s\tl\nx\t \n", "a.tsv:2 must have a l that is not empty"),
        ("a.tsv", b"s\tl\nok\t1\n\xff\t0\n", "a.tsv:3 must be UTF-8, got"),
        ("a.csv", b's,l\n"\xff",0\n', "a.csv:2 must be UTF-8, got"),
        ("a.csv", 's,l\nx,1\n"a"b,1\n', "a.csv:3 must be CSV, got"),
        ("a.tsv", "", "a.tsv:1, the header, must have a column s"),
        ("a.tsv", "s\tl\n", "a.tsv must have examples, got none"),
        ("a.jsonl", '{"s": "x"\n', "a.jsonl:1 must be JSON, got"),
        ("a.jsonl", '{"s": "x"}\n', "a.jsonl:1 must have a l, a string or"),
        ("a.jsonl", '{"s": 1.5, "l": 1}\n', "a.jsonl:1 must have a s, .* 1.5"),
        ("a.jsonl", '{"s": "x", "l": true}\n', "a.jsonl:1 must have a l, .*Tr"),
        (
            "a.jsonl",
            '{"s": "x\\ud83d", "l": 1}\n',
            r"a.jsonl:1 must have a s of whole .*, got 'x\\ud83d'",
        ),
        ("a.jsonl", "[" * 100_000, "a.jsonl:1 must be JSON, got"),
        ("a.jsonl", '{"s": %s}' % ("1" * 5000), "a.jsonl:1 must be JSON, got"),
        ("a.jsonl", "[1]\n", "a.jsonl:1 must have a s, .* the fields none"),
    ],
)
def test_what_is_wrong_is_named_by_line(tmp_path, name, contents, message):
    path = write_file(tmp_path, name, contents)
    with pytest.raises(ValueError, match=message):
        text.read_texts(path, ["s"], "l")


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (("s", "l"), "`label_column` must be different columns, got s, l, l"),
        (("s", "s"), "`text_columns` and .* different columns, got s, s, l"),
        ("s", "`text_columns` must be a list of columns, .*, got 's'"),
    ],
)
def test_no_column_is_read_twice(tmp_path, columns, message):
    path = write_file(tmp_path, "a.tsv", "s\tl\nx\t1\n")
    with pytest.raises(ValueError, match=message):
        text.read_texts(path, columns, "l")


def test_a_file_that_is_not_there(tmp_path):
    message = "none.tsv must be a file .*, got no f"
    with pytest.raises(ValueError, match=message):
        text.read_texts(str(tmp_path / "none.tsv"), ["s"], "l")


# TFDS looks for the source file of a builder; see tests/data/test_tfds_source.
class TinySentences(tfds.core.GeneratorBasedBuilder):
    """Two sentences and a label, which the last one lacks."""

    __module__ = "tiny_sets"
    VERSION = tfds.core.Version("1.0.0")

    def _info(self):
        text_, names = tfds.features.Text(), ["no", "yes"]
        features = {"one": text_, "other": text_, "number": tf.int64}
        features["label"] = tfds.features.ClassLabel(names=names)
        return tfds.core.DatasetInfo(
            builder=self, features=tfds.features.FeaturesDict(features)
        )

    def _split_generators(self, dl_manager):
        return {
            "train": self._generate_examples([1, 0, 1]),
            "test": self._generate_examples([-1]),
        }

    def _generate_examples(self, labels):
        for i, label in enumerate(labels):
            texts = {"one": f"é {i}", "other": "b"}
            yield i, {**texts, "number": i, "label": label}


@pytest.fixture
def tiny_set(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "tiny_sets", types.ModuleType("tiny_sets"))
    monkeypatch.setattr(
        tfds, "builder", lambda *_, **__: TinySentences(data_dir=tmp_path)
    )


def test_a_set_of_tfds_is_read_by_its_features(tiny_set):
    read = text.read_texts("tfds:tiny:train", ["one", "other"], "label")
    order = sorted(zip(read.texts, read.labels, strict=True))
    assert order == [
        (("é 0", "b"), "yes"),
        (("é 1", "b"), "no"),
        (("é 2", "b"), "yes"),
    ]
    assert read.name == "tfds:tiny:train"
    assert read.ids == tuple(f"tfds:tiny:train:{i}" for i in range(3))
    part = text.read_texts("tfds:tiny:train[:2]", ["one"], "number")
    assert len(part.texts) == 2 and {*part.labels} <= {"0", "1", "2"}


@pytest.mark.parametrize(
    ("path", "columns", "message"),
    [
        ("tfds:tiny", ["one"], "tfds:tiny must be tfds:NAME:SPLIT"),
        ("tfds:tiny:dev", ["one"], "must name a split of .*train.*, got dev"),
        ("tfds:tiny:train", ["s"], "must have a feature s, got "),
        ("tfds:tiny:test", ["one"], "tfds:tiny:test:0 must have a label"),
    ],
)
def test_what_is_wrong_with_a_set_is_named(tiny_set, path, columns, message):
    with pytest.raises(ValueError, match=message):
        text.read_texts(path, columns, "label")
