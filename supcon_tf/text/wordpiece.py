"""WordPiece in a graph: strings to pieces, as the tokenizer of a model does."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from supcon_tf.data import tokens
from supcon_tf.text import lookup

_POINT_BITS = 21  # of a code point
_SPACE = ord(" ")
_WORDS, _REST = 0, 1  # states of the trie before a word, and within one
_PAD = tokens.NONE


class WordPiece(tf.Module):
    """The pieces of texts, by the vocabulary and the rules of BERT.

    The rules for characters are asked of the tokenizer, one by one: so its ids
    come out, but for accents that Unicode sorts among one another and that it
    keeps.

    Args:
      backend: `backend_tokenizer` of one of BERT, DistilBERT, ELECTRA, MiniLM,
        MPNet or another model with WordPiece.
      model: "model" of its JSON.
    """

    NAME = "WordPiece"
    # Types of normalizer, pre-tokenizer and model in the JSON.
    KINDS = ("BertNormalizer", "BertPreTokenizer", "WordPiece")

    def __init__(self, backend: object, model: Mapping[str, object]):
        super().__init__()
        self._set_characters(backend)
        self._set_trie(model["vocab"], model["continuing_subword_prefix"])
        self.unknown = model["vocab"][model["unk_token"]]
        self.longest_word = model["max_input_chars_per_word"]

    def _set_characters(self, backend: object) -> None:
        """What becomes of each character, and which ones stand alone."""
        normalize = backend.normalizer.normalize_str
        split = backend.pre_tokenizer.pre_tokenize_str
        made = {point: normalize(chr(point)) for point in lookup.points()}
        changed = {p: text for p, text in made.items() if text != chr(p)}
        self.changed = lookup.constant([*changed])
        lengths = [len(text) for text in changed.values()]
        self.splits = lookup.constant(np.cumsum([0, *lengths]))
        self.becomes = lookup.constant(
            [ord(x) for y in changed.values() for x in y]
        )
        # Between letters, words of one character are what stands alone.
        words = split("aa".join({*"".join(made.values())}))
        alone = {ord(word) for word, _ in words if len(word) == 1}
        self.alone = lookup.constant(sorted(alone))

    def _set_trie(self, vocabulary: Mapping[str, int], prefix: str) -> None:
        """Pieces letter by letter: edges, where they lead, what ends there."""
        edges: dict[int, int] = {}
        pieces = [_PAD, _PAD]

        def add(state: int, piece: str, number: int) -> None:
            for letter in piece:
                edge = state << _POINT_BITS | ord(letter)
                state = edges.setdefault(edge, len(pieces))
                if state == len(pieces):
                    pieces.append(_PAD)
            pieces[state] = number

        for piece, number in vocabulary.items():
            add(_WORDS, piece, number)
            if piece.startswith(prefix) and piece != prefix:
                add(_REST, piece[len(prefix) :], number)
        order = sorted(edges)
        self.edges = lookup.constant(order, tf.int64)
        self.targets = lookup.constant([edges[edge] for edge in order])
        self.pieces = lookup.constant(pieces)
        self.longest_piece = max(map(len, vocabulary))

    def __call__(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """The pieces of texts [N], [N, (pieces)] int32, without any frame."""
        points, text = self._normalized(texts)
        is_space = points == _SPACE
        is_alone = lookup.find(self.alone, points) >= 0
        before = tf.pad(is_space | is_alone, [[1, 0]], constant_values=True)
        is_first = before[:-1] | is_alone
        is_first |= tf.pad(text[1:] != text[:-1], [[1, 0]])[: tf.size(text)]
        kept = ~is_space
        points, text, is_first = (
            tf.boolean_mask(x, kept) for x in (points, text, is_first)
        )
        word = tf.cumsum(tf.cast(is_first, tf.int32)) - 1
        piece, length = self._longest_pieces(points, word, is_first)
        is_used = _reached(is_first, length, self.longest_word)
        letters = tf.math.bincount(word)
        is_bad = letters > self.longest_word
        stuck = tf.cast(is_used & (length == 0), tf.int32)
        is_bad |= tf.math.segment_max(stuck, word) > 0
        is_bad = tf.gather(is_bad, word)
        piece = tf.where(is_bad, self.unknown, piece)
        is_used = tf.where(is_bad, is_first, is_used)
        return tf.RaggedTensor.from_value_rowids(
            tf.boolean_mask(piece, is_used),
            tf.cast(tf.boolean_mask(text, is_used), tf.int64),
            tf.shape(texts, tf.int64)[0],
        )

    def _normalized(self, texts: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Code points of all texts, and the text of each, both [P] int32."""
        decoded = tf.strings.unicode_decode(texts, "UTF-8")
        points = decoded.values
        found = lookup.find(self.changed, points)
        at = tf.maximum(found, 0)
        begins, ends = (
            tf.gather(self.splits, at),
            tf.gather(self.splits, at + 1),
        )
        lengths = tf.where(found < 0, 1, ends - begins)
        which = tf.repeat(tf.range(tf.size(points)), lengths)
        place = tf.range(tf.size(which)) - tf.gather(
            tf.cumsum(lengths, exclusive=True), which
        )
        place = tf.minimum(
            tf.gather(begins, which) + place, tf.size(self.becomes) - 1
        )
        points = tf.where(
            tf.gather(found, which) < 0,
            tf.gather(points, which),
            tf.gather(self.becomes, place),
        )
        text = tf.cast(decoded.value_rowids(), tf.int32)
        return points, tf.gather(text, which)

    def _longest_pieces(
        self, points: tf.Tensor, word: tf.Tensor, is_first: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """The longest piece from every letter [L] on, and its length or 0."""
        count = tf.size(points)
        places = tf.range(count)

        def go_on(step, state, piece, length):
            at = tf.minimum(places + step, count - 1)
            is_in = (places + step < count) & (tf.gather(word, at) == word)
            letter = tf.cast(tf.gather(points, at), tf.int64)
            edge = tf.cast(state, tf.int64) * 2**_POINT_BITS + letter
            found = lookup.find(self.edges, edge)
            state = tf.gather(self.targets, tf.maximum(found, 0))
            state = tf.where(is_in & (found >= 0), state, -1)
            ends = tf.gather(self.pieces, tf.maximum(state, 0))
            ends = tf.where(state < 0, _PAD, ends)
            piece = tf.where(ends == _PAD, piece, ends)
            length = tf.where(ends == _PAD, length, step + 1)
            return step + 1, state, piece, length

        none = tf.zeros_like(points)
        _, _, piece, length = tf.while_loop(
            lambda step, state, *_: tf.reduce_any(state >= 0),
            # A state of -1 has no edges: its keys are negative.
            go_on,
            (0, tf.where(is_first, _WORDS, _REST), none + _PAD, none),
            maximum_iterations=self.longest_piece,
        )
        return piece, length


def _reached(is_first: tf.Tensor, length: tf.Tensor, most: int) -> tf.Tensor:
    """Whether a word's pieces, each behind the one before, begin there [L]."""
    count = tf.size(length)
    # One place more, for what ends the last word.
    behind = tf.pad(tf.range(count) + length, [[0, 1]], constant_values=count)
    behind = tf.minimum(behind, count)
    reached = tf.pad(tf.cast(is_first, tf.int32), [[0, 1]])
    for _ in range(most.bit_length()):  # twice as far each time
        reached = tf.tensor_scatter_nd_max(
            reached, behind[:, tf.newaxis], reached
        )
        behind = tf.gather(behind, behind)
    return reached[:-1] > 0
