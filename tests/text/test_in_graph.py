"""Tokens in a graph are those of the tokenizer, whatever the string."""

import random

import numpy as np
import pytest
import tensorflow as tf

from supcon_tf import text
from supcon_tf.text import encoder

tokenizers = pytest.importorskip("tokenizers")

ACCENTS = "éÉñÜßİıŁøæÆœſﬁǅ ΑΣσς ЁёЙй अआ ก็ ́̂"
SCRIPTS = "word un able ##s 한국어 テスト １２ ＡＢ 👩‍👩‍👧 🇫🇷 ﷺ \U000e0001"
CONTROLS = "[CLS][SEP]##un ab \t\n\r\0\u200b\ufffd\u00ad\u2028'\"-_."


def real():
    """Lines of prose and tables that scikit-learn comes with."""
    from sklearn import datasets

    names = "iris", "digits", "wine", "breast_cancer", "diabetes"
    texts = [getattr(datasets, f"load_{name}")().DESCR for name in names]
    return [line for line in "\n".join(texts).splitlines() if line.strip()]


def nasty(count):
    """Strings of all of Unicode, of one script, of what is no text."""
    rng = random.Random(0)
    point = [
        lambda: rng.choice(
            [rng.randrange(0xD800), rng.randrange(57344, 2**20)]
        ),
        lambda: rng.randrange(0x300),
        lambda: rng.randrange(0x4E00, 0x9FFF),
        lambda: rng.randrange(0x1F300, 0x1FAFF),
        lambda: ord(rng.choice(ACCENTS)),
        lambda: ord(rng.choice(SCRIPTS)),
        lambda: ord(rng.choice(CONTROLS)),
    ]
    texts = ["", " ", *("x" * n for n in (99, 100, 101, 10_000))]
    while len(texts) < count:
        draw = rng.choice(point)
        texts.append("".join(chr(draw()) for _ in range(rng.randrange(60))))
    return texts


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory):
    """Of pieces that both kinds of strings have."""
    trained = tokenizers.BertWordPieceTokenizer()
    trained.train_from_iterator(
        [*real(), ACCENTS, SCRIPTS], 900, min_frequency=1, show_progress=False
    )
    folder = tmp_path_factory.mktemp("vocabulary")
    trained.save_model(str(folder))
    with open(folder / "vocab.txt", "a") as file:
        file.write("<s>\n</s>\n<pad>\n<unk>\n<mask>\n")
    return str(folder / "vocab.txt")


def make_tokenizer(vocabulary, name="BertTokenizerFast", **options):
    return getattr(encoder.import_transformers(), name)(vocabulary, **options)


def assert_equal(tokenizer, texts, max_length, **options):
    """Ids and numbers of the sentences in texts, each one or a pair."""
    graph_tokenizer = text.GraphTokenizer(tokenizer, max_length, **options)
    traced = tf.function(
        graph_tokenizer, input_signature=[tf.TensorSpec([None], "string")]
    )
    if not options:  # an empty string, and bytes that are no text
        assert (traced([b""])[:, 1:, 0] >= 0).numpy().all()
        assert traced([b"\xff\xc3a"]).shape[0] == 1
    for start in range(0, len(texts), 50):
        batch = texts[start : start + 50]
        tokens = traced(["\t".join(pair).encode() for pair in batch]).numpy()
        expected = text.tokenize(tokenizer, batch, max_length)
        length = min(tokens.shape[1], expected.shape[1])
        np.testing.assert_array_equal(tokens[:, :length], expected[:, :length])
        assert (tokens[:, length:, 0] == -1).all()
        assert (expected[:, length:, 0] == -1).all()


@pytest.mark.slow(but=["True"])
@pytest.mark.parametrize("lower", [True, False])
def test_real_and_nasty_strings(vocabulary, lower):
    tokenizer = make_tokenizer(vocabulary, do_lower_case=lower)
    assert tokenizer.unk_token_id not in tokenizer(real()[0])["input_ids"]
    assert_equal(tokenizer, [*zip([*real(), *nasty(1000)])], 128)


@pytest.mark.slow(but=["BertTokenizerFast"])
@pytest.mark.parametrize("name", ["BertTokenizerFast", "MPNetTokenizerFast"])
def test_pairs_are_cut_as_the_tokenizer_cuts_them(vocabulary, name):
    tokenizer = make_tokenizer(vocabulary, name)
    counted = [("a " * i, "b " * j) for i in range(1, 14) for j in range(1, 14)]
    lines = real()
    real_pairs = [*zip(lines[:100], lines[100:200], strict=True)]
    assert_equal(tokenizer, [*counted, *real_pairs], 12, pairs=True)


@pytest.fixture(scope="module")
def byte_files(tmp_path_factory):
    """Of 2,000 merges of real and nasty strings."""
    folder = tmp_path_factory.mktemp("bytes")
    trained = tokenizers.ByteLevelBPETokenizer()
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    trained.train_from_iterator(
        [*real(), *nasty(300)], 2000, 2, False, special_tokens=special
    )
    trained.save_model(str(folder))
    return [str(folder / name) for name in ("vocab.json", "merges.txt")]


def roberta(files, **options):
    return encoder.import_transformers().RobertaTokenizerFast(*files, **options)


SPACES = ["a  b", " a", "a ", "  ", "a \n\n b", "\u00a0x", "a\t b\n", "1  2"]
ENDINGS = [
    *("it's", "IT'S we'll", "'s's'ss", " 's", "\n's", "!'s", "''s", "1'm"),
    *("they'really'velvet", "a's 'll", "'r", "'", "o'clock'd'd", "' s"),
]


@pytest.mark.not_quick
def test_bytes_are_merged_as_the_tokenizer_merges_them(byte_files):
    byte_tokenizer = roberta(byte_files)
    runs = ["a" * n for n in range(1, 30)] + ["ab" * 40, "é" * 50, "aab" * 30]
    rng = random.Random(1)
    alphabet = "ab 1'srevl!\n\t\u00a0\u2003é²"
    random_texts = ["".join(rng.choices(alphabet, k=20)) for _ in range(500)]
    texts = [*SPACES, *ENDINGS, *runs, *random_texts, *real(), *nasty(1000)]
    assert_equal(byte_tokenizer, [*zip(texts)], 128)


@pytest.mark.slow  # another trace
def test_pairs_of_merged_bytes_are_cut_as_the_tokenizer_cuts_them(byte_files):
    lines = real()
    pairs = [*zip(lines[:100], lines[100:200], strict=True)]
    assert_equal(roberta(byte_files), pairs, 20, pairs=True)


def test_a_tokenizer_of_other_rules_is_refused(vocabulary):
    tokenizer = make_tokenizer(vocabulary)
    tokenizer.backend_tokenizer.normalizer = tokenizers.normalizers.NFKC()
    with pytest.raises(ValueError, match="must have WordPiece .*, got BertTok"):
        text.GraphTokenizer(tokenizer, 16)


def test_a_tokenizer_that_keeps_control_characters_is_refused(vocabulary):
    tokenizer = make_tokenizer(vocabulary)
    tokenizer.backend_tokenizer.normalizer = (
        tokenizers.normalizers.BertNormalizer(clean_text=False)
    )
    with pytest.raises(ValueError, match="with clean_text=False$"):
        text.GraphTokenizer(tokenizer, 16)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"add_prefix_space": True}, "with add_prefix_space$"),
        ({"truncation_side": "left"}, "with truncation_side=left$"),
        ({"word": "covid19"}, "with added tokens$"),
    ],
)
def test_options_that_make_other_tokens_are_refused(
    byte_files, options, message
):
    """Their ids would differ in silence."""
    word = options.pop("word", None)
    tokenizer = roberta(byte_files, **options)
    if word:
        tokenizer.add_tokens([word])
    with pytest.raises(ValueError, match=message):
        text.GraphTokenizer(tokenizer, 16)
