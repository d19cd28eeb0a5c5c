"""Byte-level BPE in a graph: strings to pieces, as RoBERTa's tokenizer does."""

from __future__ import annotations

import functools
from collections.abc import Mapping

import tensorflow as tf

from supcon_tf.text import lookup

_OTHER, _LETTER, _NUMBER, _SPACE = range(4)  # kinds of characters
_ENDINGS = ("s", "t", "m", "d", "re", "ve", "ll")  # behind an apostrophe
_NEVER = 2**31 - 1  # the rank of a pair that is not merged


class ByteBpe(tf.Module):
    """The pieces of texts, by the merges and the rules of GPT-2.

    Which characters are letters, numbers and spaces is asked of the library.

    Args:
      model: "model" of the JSON of a tokenizer of RoBERTa, DeBERTa or another
        model with byte-level BPE.
    """

    NAME = "byte-level BPE"
    # Types of normalizer, pre-tokenizer and model in the JSON.
    KINDS = (None, "ByteLevel", "BPE")

    def __init__(self, model: Mapping[str, object]):
        from transformers.models.gpt2 import tokenization_gpt2

        super().__init__()
        self.kinds = lookup.constant(_kinds())
        vocabulary = model["vocab"]
        letters = tokenization_gpt2.bytes_to_unicode()
        self.of_bytes = lookup.constant(
            [vocabulary[letters[byte]] for byte in range(256)]
        )
        self.size = max(vocabulary.values()) + 1
        ranks = {}
        for rank, merge in enumerate(model["merges"]):
            one, other = merge.split(" ") if isinstance(merge, str) else merge
            key = vocabulary[one] * self.size + vocabulary[other]
            ranks[key] = rank, vocabulary[one + other]
        self.merged = lookup.constant(sorted(ranks), tf.int64)
        self.ranks = lookup.constant([ranks[key][0] for key in sorted(ranks)])
        self.becomes = lookup.constant([ranks[key][1] for key in sorted(ranks)])

    def __call__(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """The pieces of texts [N], [N, (pieces)] int32, without any frame."""
        letters = tf.strings.unicode_split(texts, "UTF-8")
        text = tf.cast(letters.value_rowids(), tf.int32)
        points = tf.strings.unicode_decode(texts, "UTF-8").flat_values
        word = tf.cumsum(tf.cast(self._begins(points, text), tf.int32)) - 1
        text_of = tf.math.segment_min(text, word)
        letters = tf.strings.bytes_split(letters.flat_values)
        values = tf.io.decode_raw(letters.flat_values, tf.uint8)
        values = tf.cast(tf.reshape(values, [-1]), tf.int32)
        pieces, word = self._merge(
            tf.gather(self.of_bytes, values),
            tf.gather(word, letters.value_rowids()),
        )
        return tf.RaggedTensor.from_value_rowids(
            pieces,
            tf.cast(tf.gather(text_of, word), tf.int64),
            tf.shape(texts, tf.int64)[0],
        )

    def _begins(self, points: tf.Tensor, text: tf.Tensor) -> tf.Tensor:
        """Whether a word begins with a character [P], as GPT-2 splits texts."""
        kind = tf.gather(self.kinds, points)
        is_new = _before(text, -1) != text
        previous = tf.where(is_new, -1, _before(kind, -1))
        after_blank = _before(points, 0) == ord(" ")
        after_blank &= ~is_new
        # A blank goes to the word behind it; other spaces stay alone.
        begins = (kind != previous) & ((kind == _SPACE) | ~after_blank)
        # Of several spaces before a word, the last one is apart.
        ends = (_ahead(text, 1, -1) == text) & (_ahead(kind, 1) != _SPACE)
        begins |= (kind == _SPACE) & ends
        # An ending such as 's is a word, but for one behind a blank or a mark.
        apostrophe = (points == ord("'")) & (previous != _OTHER) & ~after_blank
        for ending in _ENDINGS:
            found = apostrophe
            for place, letter in enumerate(ending, start=1):
                found &= _ahead(points, place) == ord(letter)
            found &= _ahead(text, len(ending), -1) == text
            begins &= ~_delayed(found, 1)
            begins |= _delayed(found, len(ending) + 1)
        return is_new | begins

    def _merge(
        self, pieces: tf.Tensor, word: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Merges pairs [S] of each word until there are none."""

        def go_on(_: tf.Tensor, pieces: tf.Tensor, word: tf.Tensor) -> tuple:
            key = tf.cast(pieces, tf.int64) * self.size
            key += tf.cast(_ahead(pieces, 1), tf.int64)
            found = lookup.find(self.merged, key)
            is_pair = (found >= 0) & (_ahead(word, 1, -1) == word)
            at = tf.maximum(found, 0)
            rank = tf.where(is_pair, tf.gather(self.ranks, at), _NEVER)
            best = tf.gather(tf.math.segment_min(rank, word), word)
            is_best = is_pair & (rank == best)
            # Of a run of such pairs every second one, from the left.
            place = tf.range(tf.size(pieces))
            begins = is_best & ~_before(is_best, False)
            run = tf.cumsum(tf.cast(begins, tf.int32))
            first = tf.where(begins, place, _NEVER)
            first = tf.gather(tf.math.segment_min(first, run), run)
            chosen = is_best & ((place - first) % 2 == 0)
            pieces = tf.where(chosen, tf.gather(self.becomes, at), pieces)
            kept = ~_before(chosen, False)
            return (
                tf.reduce_any(chosen),
                tf.boolean_mask(pieces, kept),
                tf.boolean_mask(word, kept),
            )

        any_number = tf.TensorShape([None])
        _, pieces, word = tf.while_loop(
            lambda goes_on, *_: goes_on,
            go_on,
            (tf.size(pieces) > 0, pieces, word),
            shape_invariants=(tf.TensorShape([]), any_number, any_number),
        )
        return pieces, word


@functools.cache
def _kinds() -> list[int]:
    """The kind of every character, by what it makes a word with."""
    from tokenizers import pre_tokenizers

    split = pre_tokenizers.ByteLevel(add_prefix_space=False).pre_tokenize_str
    kinds = [_OTHER] * 0x110000
    for point in lookup.points():
        letter = chr(point)
        if len(split(f"a{letter}")) == 1:
            kinds[point] = _LETTER
        elif len(split(f"1{letter}")) == 1:
            kinds[point] = _NUMBER
        elif len(split(f"!{letter}")) == 2:
            kinds[point] = _SPACE
    return kinds


def _before(values: tf.Tensor, first: object) -> tf.Tensor:
    """Of every place, the value before it."""
    return tf.concat([[first], values], axis=0)[:-1]


def _ahead(values: tf.Tensor, count: int, last: int = 0) -> tf.Tensor:
    """Of every place, the value so many places behind it."""
    return tf.pad(values, [[0, count]], constant_values=last)[count:]


def _delayed(values: tf.Tensor, count: int) -> tf.Tensor:
    """Of every place, the truth so many places before it."""
    return tf.pad(values, [[count, 0]])[: tf.size(values)]
