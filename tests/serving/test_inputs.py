"""The content of requests, as the graph of an export reads it."""

import sys

import pytest
import tensorflow as tf

from supcon_tf.serving import inputs

SPACES = "".join(filter(str.isspace, map(chr, range(sys.maxunicode + 1))))


def strip(texts, pairs):
    """What reaches the tokenizer of an export."""

    def tokens(texts):
        return texts

    tokens.pairs, tokens.variables = pairs, ()
    ((_, spec, views),) = inputs.Texts(tokens).kinds()
    traced = tf.function(views, input_signature=[spec])
    return [text.decode() for text in traced(texts).numpy()]


@pytest.mark.parametrize("pairs", [False, True])
def test_sentences_lose_the_spaces_that_training_takes_off(pairs):
    """A blank behind a sentence is a token to RoBERTa."""
    texts = ["a fine film ", "", " ", "a \n b", "é\u200b", "x\r\n"]
    texts.append(f"{SPACES}a{SPACES}".replace("\t", ""))
    end = "\t" * pairs  # before an empty second sentence
    assert strip(texts, pairs) == [text.strip() + end for text in texts]
    assert strip([" a \t b c\t d\n", "\ta"], pairs) == (
        ["a\tb c\t d", "\ta"] if pairs else ["a \t b c\t d", "a"]
    )
    assert strip(tf.constant([], tf.string), pairs) == []
