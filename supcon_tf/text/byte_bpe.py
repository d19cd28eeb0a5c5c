"""Byte-level BPE in a graph: strings to pieces, as RoBERTa's tokenizer does.

Letters in the shapes: N texts, W words, P characters and S pieces of all texts.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from supcon_tf.text import lookup

_OTHER, _LETTER, _NUMBER, _SPACE = range(4)  # kinds of characters
_ENDINGS = ("s", "t", "m", "d", "re", "ve", "ll")  # behind an apostrophe
_NEVER = 2**31 - 1  # the rank of a pair that is not merged


class ByteBpe(tf.Module):
    """The pieces of texts, by the merges and the rules of GPT-2.

    The tokenizers library tells letters, numbers and spaces apart.

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
        # Tables: their names are in the variables of old exports.
        self.kinds = lookup.constant(_character_kinds())
        vocabulary = model["vocab"]
        letters = tokenization_gpt2.bytes_to_unicode()
        self.of_bytes = lookup.constant(
            [vocabulary[letters[byte]] for byte in range(256)]
        )
        self.size = max(vocabulary.values()) + 1
        merges = {}  # left * size + right -> rank, merged piece
        for rank, merge in enumerate(model["merges"]):
            left, right = merge.split(" ") if isinstance(merge, str) else merge
            key = vocabulary[left] * self.size + vocabulary[right]
            merges[key] = rank, vocabulary[left + right]
        keys = sorted(merges)
        self.merged = lookup.constant(keys, tf.int64)
        self.ranks = lookup.constant([merges[key][0] for key in keys])
        self.becomes = lookup.constant([merges[key][1] for key in keys])

    def __call__(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Texts [N] to pieces [N, (pieces)] int32, without special tokens."""
        characters = tf.strings.unicode_split(texts, "UTF-8")
        text_ids = tf.cast(characters.value_rowids(), tf.int32)  # [P]
        points = tf.strings.unicode_decode(texts, "UTF-8").flat_values  # [P]
        starts_word = self._word_starts(points, text_ids)
        word_ids = tf.cumsum(tf.cast(starts_word, tf.int32)) - 1  # [P]
        word_texts = tf.math.segment_min(text_ids, word_ids)  # [W]
        # BPE begins with one piece for each byte, not for each character.
        utf8 = tf.strings.bytes_split(characters.flat_values)
        byte_values = tf.io.decode_raw(utf8.flat_values, tf.uint8)
        byte_values = tf.cast(tf.reshape(byte_values, [-1]), tf.int32)  # [S]
        pieces, word_ids = self._merge(
            tf.gather(self.of_bytes, byte_values),
            tf.gather(word_ids, utf8.value_rowids()),
        )
        return tf.RaggedTensor.from_value_rowids(
            pieces,
            tf.cast(tf.gather(word_texts, word_ids), tf.int64),
            tf.shape(texts, tf.int64)[0],
        )

    def _word_starts(self, points: tf.Tensor, text_ids: tf.Tensor) -> tf.Tensor:
        """Whether a word starts at a character [P], as GPT-2 splits texts."""
        kinds = tf.gather(self.kinds, points)
        starts_text = _previous(text_ids, -1) != text_ids
        previous_kinds = tf.where(starts_text, -1, _previous(kinds, -1))
        follows_blank = _previous(points, 0) == ord(" ")
        follows_blank &= ~starts_text
        # A blank belongs to the word behind it; other spaces stand alone.
        starts_word = kinds != previous_kinds
        starts_word &= (kinds == _SPACE) | ~follows_blank
        # Of several spaces before a word, the last one is apart.
        ends_spaces = _next(text_ids, 1, -1) == text_ids
        ends_spaces &= _next(kinds, 1) != _SPACE
        starts_word |= (kinds == _SPACE) & ends_spaces
        # An ending such as 's is a word, except behind a blank or a mark.
        apostrophe = points == ord("'")
        apostrophe &= (previous_kinds != _OTHER) & ~follows_blank
        for ending in _ENDINGS:
            has_ending = apostrophe
            for offset, letter in enumerate(ending, start=1):
                has_ending &= _next(points, offset) == ord(letter)
            has_ending &= _next(text_ids, len(ending), -1) == text_ids
            starts_word &= ~_shift_right(has_ending, 1)
            starts_word |= _shift_right(has_ending, len(ending) + 1)
        return starts_text | starts_word

    def _merge(
        self, pieces: tf.Tensor, word_ids: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Merges pairs of the pieces [S] of each word until there are none."""

        def merge_once(
            _: tf.Tensor, pieces: tf.Tensor, word_ids: tf.Tensor
        ) -> tuple:
            keys = tf.cast(pieces, tf.int64) * self.size  # [S]
            keys += tf.cast(_next(pieces, 1), tf.int64)
            merges = lookup.find(self.merged, keys)
            is_pair = (merges >= 0) & (_next(word_ids, 1, -1) == word_ids)
            merges = tf.maximum(merges, 0)
            # Of the pairs of a word, those of the lowest rank are merged first.
            ranks = tf.where(is_pair, tf.gather(self.ranks, merges), _NEVER)
            best_ranks = tf.gather(
                tf.math.segment_min(ranks, word_ids), word_ids
            )
            is_best = is_pair & (ranks == best_ranks)
            # Overlapping pairs, as in "aaa", make a run: every second pair of
            # a run is merged, from the left.
            positions = tf.range(tf.size(pieces))
            starts_run = is_best & ~_previous(is_best, False)
            run_ids = tf.cumsum(tf.cast(starts_run, tf.int32))
            run_starts = tf.where(starts_run, positions, _NEVER)
            run_starts = tf.math.segment_min(run_starts, run_ids)
            run_starts = tf.gather(run_starts, run_ids)  # [S]
            is_merged = is_best & ((positions - run_starts) % 2 == 0)
            pieces = tf.where(
                is_merged, tf.gather(self.becomes, merges), pieces
            )
            # The right piece of a merged pair is part of its left piece now.
            is_left = ~_previous(is_merged, False)
            return (
                tf.reduce_any(is_merged),
                tf.boolean_mask(pieces, is_left),
                tf.boolean_mask(word_ids, is_left),
            )

        vector = tf.TensorShape([None])
        _, pieces, word_ids = tf.while_loop(
            lambda has_merged, *_: has_merged,
            merge_once,
            (tf.size(pieces) > 0, pieces, word_ids),
            shape_invariants=(tf.TensorShape([]), vector, vector),
        )
        return pieces, word_ids


@functools.cache
def _character_kinds() -> npt.NDArray[np.int32]:
    """Returns the kind of every character, by its splits from other kinds."""
    from tokenizers import pre_tokenizers

    split = pre_tokenizers.ByteLevel(add_prefix_space=False).pre_tokenize_str
    kinds = np.full(0x110000, _OTHER, np.int32)
    kinds[ord(" ")] = _SPACE
    # Of all characters in a row, those of a word are of a kind. A blank would
    # belong to the word behind it.
    points = np.array([point for point in lookup.points() if point != ord(" ")])
    for _, (start, end) in split("".join(map(chr, points))):
        first = chr(points[start])
        if len(split(f"a{first}")) == 1:
            kinds[points[start:end]] = _LETTER
        elif len(split(f"1{first}")) == 1:
            kinds[points[start:end]] = _NUMBER
        elif len(split(f"!{first}")) == 2:
            kinds[points[start:end]] = _SPACE
    return kinds


def _previous(values: tf.Tensor, first: object) -> tf.Tensor:
    """Returns the value before each of `values` [N], `first` for the first."""
    return tf.concat([[first], values], axis=0)[:-1]


def _next(values: tf.Tensor, count: int, last: int = 0) -> tf.Tensor:
    """Returns the value `count` places behind each of `values`, else `last`."""
    return tf.pad(values, [[0, count]], constant_values=last)[count:]


def _shift_right(values: tf.Tensor, count: int) -> tf.Tensor:
    """Returns the truth `count` places before each of `values`, else False."""
    return tf.pad(values, [[count, 0]])[: tf.size(values)]
