"""Sentences to tokens: padding, two sentences, what is too long."""

import pathlib
import re

import numpy as np
import pytest

from supcon_tf import text
from tests import language_model
from tests.language_model import WORDS


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("model")
    language_model.write_model(path)
    return path


def words(row):
    assert not row[0].any()
    return " ".join(WORDS[i] for i in row[1:, 0] if i >= 0)


def test_a_sentence_is_cut_and_padded(folder):
    tokenizer = text.load_tokenizer(folder)
    texts = [("A b",), ("ab q",), ("c d e f c d e f",)]
    tokens = text.tokenize(tokenizer, texts, 8)
    assert tokens.shape == (3, 9, 2) and tokens.dtype == np.int32
    assert [words(row) for row in tokens] == [
        "[CLS] a b [SEP]",
        "[CLS] a ##b [UNK] [SEP]",
        "[CLS] c d e f c d [SEP]",
    ]
    assert (tokens[0, 5:, 0] == -1).all() and not tokens[..., 1].any()


def test_of_two_sentences_the_longer_one_is_cut(folder):
    tokenizer = text.load_tokenizer(folder)
    tokens = text.tokenize(tokenizer, [("a b", "c d e f c d e f")], 10)
    assert words(tokens[0]) == "[CLS] a b [SEP] c d e f c [SEP]"
    assert tokens[0, 1:, 1].tolist() == [0] * 4 + [1] * 6


def test_texts_that_lose_words_are_told(folder):
    tokenizer = text.load_tokenizer(folder)

    def note(*sentences):
        texts = text.Texts(
            "a.tsv",
            tuple((sentence,) for sentence in sentences),
            tuple("01"[i % 2] for i in range(len(sentences))),
            tuple(f"a.tsv:{i}" for i in range(len(sentences))),
        )
        return text.to_source(texts, tokenizer, max_length=6).note

    assert note("a b", "c d e") == ""
    assert note("a b", "c d e f", "c d e f a b") == (
        "2 of 3 texts have the maximum of 6 tokens, and lose what is longer: "
        "a.tsv:1, a.tsv:2"
    )
    assert note("q b", "c d") == (
        "12% of all tokens are [UNK], words that the tokenizer does not know; "
        "choose a model of the language of the texts"
    )
    assert note("q b a e", "c d").count("; ") == 2  # both


@pytest.mark.parametrize(
    ("name", "labels", "is_told"),
    [
        ("a.tsv", ["label", *"01" * 4], True),
        ("a.jsonl", ["label", *"01" * 4], False),  # has no header
        ("a.tsv", ["0", *"12"], False),  # a few lines of a class each
        ("a.tsv", [*"01" * 4], False),
    ],
)
def test_a_header_that_is_read_as_an_example_is_told(
    folder, name, labels, is_told
):
    """As by the numbers of columns: a class more, without a word."""
    texts = text.Texts(
        name,
        (("a",),) * len(labels),
        tuple(labels),
        tuple(f"{name}:{i + 1}" for i in range(len(labels))),
    )
    note = text.to_source(texts, text.load_tokenizer(folder), max_length=6).note
    assert note == is_told * (
        "a.tsv:1 alone has the label label; if this line is a header, name its "
        "columns in place of numbers"
    )


@pytest.mark.parametrize(("name", "is_told"), [("a.tsv", 1), ("a.csv", 0)])
def test_quotes_that_pandas_writes_into_a_tsv_are_told(folder, name, is_told):
    texts = text.Texts(
        name,
        (('"a"',), ('"a ""b"" c"',), ('a ""b"" c',), ('""',)),
        tuple("0011"),
        tuple(f"{name}:{line}" for line in range(2, 6)),
    )
    note = text.to_source(
        texts, text.load_tokenizer(folder), max_length=12
    ).note
    told = "1 of 4 texts have the double quotes of a .csv, .*: a.tsv:3; write"
    assert bool(re.search(told, note)) == is_told


def test_what_is_wrong_is_named(folder, tmp_path):
    tokenizer = text.load_tokenizer(folder)
    for length in (3, 13):
        message = f"must be in 4..12, .*got {length}"
        with pytest.raises(ValueError, match=message):
            text.tokenize(tokenizer, [("a",)], length)
    # Letters are no sentences, be the strings of one length or not.
    for texts in ([], ["abc", "ab"], ["ab", "cd"], [("a",), ("a", "b")]):
        message = f"all of one sentence or .*got {re.escape(str(texts))}"
        with pytest.raises(ValueError, match=message):
            text.tokenize(tokenizer, texts, 8)
    with pytest.raises(ValueError, match="`model` must have a tokenizer of t"):
        text.load_tokenizer(tmp_path)


def test_a_label_that_training_has_not_is_named(folder, tmp_path):
    tokenizer = text.load_tokenizer(folder)
    path = tmp_path / "a.tsv"
    path.write_text("a\tyes\nb c\tno\n")
    texts = text.read_texts(str(path), ["0"], "1")
    source = text.to_source(texts, tokenizer, 8)
    assert source.class_names == ("no", "yes")
    assert source.labels.tolist() == [1, 0]
    assert source.name == "a.tsv" and source.ids == ("a.tsv:1", "a.tsv:2")
    with pytest.raises(ValueError, match="be different names, got 2 of 3"):
        text.to_source(texts, tokenizer, 8, class_names=["no", "yes", "no"])
    message = "a.tsv:2 must have a label of yes, got"
    with pytest.raises(ValueError, match=message):
        text.to_source(texts, tokenizer, 8, class_names=["yes"])


@pytest.mark.slow
def test_the_documents_python_runs(folder, tmp_path, monkeypatch):
    page = pathlib.Path(__file__).parents[2] / "docs" / "guides" / "texts.md"
    (code,) = re.findall("```python\n(.*?)```", page.read_text(), re.DOTALL)
    language_model.write_sentences(tmp_path / "train.tsv", 32)
    monkeypatch.chdir(tmp_path)
    code = code.replace('"roberta-base"', repr(str(folder)))
    code = code.replace("max_length=64", "max_length=8").replace("2e-5", "1e-3")
    code = code.replace("epochs=3", "epochs=60")
    names = {}
    exec(code, names)
    predicted = names["probabilities"].numpy().argmax(axis=1)
    assert np.mean(predicted == names["labels"].numpy()) > 0.9
