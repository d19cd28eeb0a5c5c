"""WordPiece in a graph: strings to pieces, as the tokenizer of a model does.

Letters in the shapes: N texts, P code points of all texts, L of these that are
letters of words, W words.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from supcon_tf.data import tokens
from supcon_tf.text import lookup

_POINT_BITS = 21  # of a code point
_BLOCK = 256  # code points
_SPACE = ord(" ")
# States of the trie before a word, and within a word.
_BEFORE_WORD, _WITHIN_WORD = 0, 1
_PAD = tokens.NONE


class WordPiece(tf.Module):
    """The pieces of texts, by the vocabulary and the rules of BERT.

    The tokenizer itself normalizes every character once, so that the ids here
    are its ids. Only several accents on one letter, which Unicode reorders, may
    have others, where the tokenizer keeps accents.

    Args:
      backend: `backend_tokenizer` of the tokenizer of BERT, DistilBERT,
        ELECTRA, MiniLM, MPNet or another model with WordPiece.
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
        """Sets the tables of normalized characters, and of single words.

        `becomes[splits[i] : splits[i + 1]]` replaces the code point
        `changed[i]`. The names are in the variables of old exports.
        """
        normalize = backend.normalizer.normalize_str
        split = backend.pre_tokenizer.pre_tokenize_str
        changed, words = {}, set()
        points = [*lookup.points()]
        # By blocks, as a call for each point takes seconds: most blocks stay as
        # they are, or nothing is left of them.
        for start in range(0, len(points), _BLOCK):
            block = points[start : start + _BLOCK]
            text = "".join(map(chr, block))
            normalized = normalize(text)
            words.update(word for word, _ in split(normalized))
            if not normalized:
                changed |= dict.fromkeys(block, "")
            elif normalized != text:
                texts = {point: normalize(chr(point)) for point in block}
                changed |= {p: t for p, t in texts.items() if t != chr(p)}
        self.changed = lookup.constant([*changed])
        lengths = [len(text) for text in changed.values()]
        self.splits = lookup.constant(np.cumsum([0, *lengths]))
        self.becomes = lookup.constant([*map(ord, "".join(changed.values()))])
        # Between letters, a character that stands alone is a word by itself.
        single_words = [
            ord(word)
            for word in words
            if len(word) == 1 and len(split(f"a{word}a")) == 3
        ]
        self.alone = lookup.constant(sorted(single_words))

    def _set_trie(self, vocabulary: Mapping[str, int], prefix: str) -> None:
        """Sets the tables of a trie: edges, target states, pieces of states.

        An edge is a state and a letter as one number; a state in which no piece
        ends has `_PAD`.
        """
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
            add(_BEFORE_WORD, piece, number)
            if piece.startswith(prefix) and piece != prefix:
                add(_WITHIN_WORD, piece[len(prefix) :], number)
        order = sorted(edges)
        self.edges = lookup.constant(order, tf.int64)
        self.targets = lookup.constant([edges[edge] for edge in order])
        self.pieces = lookup.constant(pieces)
        self.longest_piece = max(map(len, vocabulary))

    def __call__(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Texts [N] to pieces [N, (pieces)] int32, without special tokens."""
        points, text_ids = self._normalize(texts)  # [P] each
        is_space = points == _SPACE
        is_alone = lookup.find(self.alone, points) >= 0
        ends_word = tf.pad(is_space | is_alone, [[1, 0]], constant_values=True)
        starts_word = ends_word[:-1] | is_alone
        starts_text = tf.pad(text_ids[1:] != text_ids[:-1], [[1, 0]])
        starts_word |= starts_text[: tf.size(text_ids)]  # [P], of P = 0 too
        is_letter = ~is_space
        points, text_ids, starts_word = (  # [L] each
            tf.boolean_mask(values, is_letter)
            for values in (points, text_ids, starts_word)
        )
        word_ids = tf.cumsum(tf.cast(starts_word, tf.int32)) - 1
        pieces, lengths = self._longest_pieces(points, word_ids, starts_word)
        starts_piece = _piece_starts(starts_word, lengths, self.longest_word)
        # A word that is too long, or whose letters no piece continues, is
        # unknown as a whole.
        is_unknown = tf.math.bincount(word_ids) > self.longest_word  # [W]
        is_stuck = tf.cast(starts_piece & (lengths == 0), tf.int32)
        is_unknown |= tf.math.segment_max(is_stuck, word_ids) > 0
        is_unknown = tf.gather(is_unknown, word_ids)  # [L]
        pieces = tf.where(is_unknown, self.unknown, pieces)
        starts_piece = tf.where(is_unknown, starts_word, starts_piece)
        return tf.RaggedTensor.from_value_rowids(
            tf.boolean_mask(pieces, starts_piece),
            tf.cast(tf.boolean_mask(text_ids, starts_piece), tf.int64),
            tf.shape(texts, tf.int64)[0],
        )

    def _normalize(self, texts: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Normalized code points and the text of each, both [P] int32."""
        decoded = tf.strings.unicode_decode(texts, "UTF-8")
        points = decoded.values
        changes = lookup.find(self.changed, points)
        rows = tf.maximum(changes, 0)
        begins = tf.gather(self.splits, rows)
        ends = tf.gather(self.splits, rows + 1)
        lengths = tf.where(changes < 0, 1, ends - begins)
        # A point may become none or several points: `sources` [P] are the
        # indices of the points that these come from.
        sources = tf.repeat(tf.range(tf.size(points)), lengths)
        offsets = tf.range(tf.size(sources)) - tf.gather(
            tf.cumsum(lengths, exclusive=True), sources
        )
        columns = tf.minimum(
            tf.gather(begins, sources) + offsets, tf.size(self.becomes) - 1
        )
        points = tf.where(
            tf.gather(changes, sources) < 0,
            tf.gather(points, sources),
            tf.gather(self.becomes, columns),
        )
        text_ids = tf.cast(decoded.value_rowids(), tf.int32)
        return points, tf.gather(text_ids, sources)

    def _longest_pieces(
        self, points: tf.Tensor, word_ids: tf.Tensor, starts_word: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the longest piece from each letter [L], and its length."""
        count = tf.size(points)
        positions = tf.range(count)

        def advance(step, states, pieces, lengths):
            """Reads one more letter from every position [L], in parallel."""
            next_positions = tf.minimum(positions + step, count - 1)
            in_word = positions + step < count
            in_word &= tf.gather(word_ids, next_positions) == word_ids
            letters = tf.cast(tf.gather(points, next_positions), tf.int64)
            keys = tf.cast(states, tf.int64) * 2**_POINT_BITS + letters
            edges = lookup.find(self.edges, keys)
            states = tf.gather(self.targets, tf.maximum(edges, 0))
            states = tf.where(in_word & (edges >= 0), states, -1)
            longer_pieces = tf.gather(self.pieces, tf.maximum(states, 0))
            longer_pieces = tf.where(states < 0, _PAD, longer_pieces)
            pieces = tf.where(longer_pieces == _PAD, pieces, longer_pieces)
            lengths = tf.where(longer_pieces == _PAD, lengths, step + 1)
            return step + 1, states, pieces, lengths

        zeros = tf.zeros_like(points)
        first_states = tf.where(starts_word, _BEFORE_WORD, _WITHIN_WORD)
        _, _, pieces, lengths = tf.while_loop(
            lambda step, states, *_: tf.reduce_any(states >= 0),
            # A state of -1 has no edges: its keys are negative.
            advance,
            (0, first_states, zeros + _PAD, zeros),
            maximum_iterations=self.longest_piece,
        )
        return pieces, lengths


def _piece_starts(
    starts_word: tf.Tensor, lengths: tf.Tensor, longest_word: int
) -> tf.Tensor:
    """Whether a piece starts at a letter [L]: a word's first, or the next one.

    The piece at letter i has `lengths[i]` letters, so the next piece of the
    word starts at i + `lengths[i]`.
    """
    count = tf.size(lengths)
    # One position more, at which the last word ends.
    next_starts = tf.pad(
        tf.range(count) + lengths, [[0, 1]], constant_values=count
    )
    next_starts = tf.minimum(next_starts, count)
    is_start = tf.pad(tf.cast(starts_word, tf.int32), [[0, 1]])
    # By pointer doubling: a round follows twice as many pieces as the last.
    for _ in range(longest_word.bit_length()):
        is_start = tf.tensor_scatter_nd_max(
            is_start, next_starts[:, tf.newaxis], is_start
        )
        next_starts = tf.gather(next_starts, next_starts)
    return is_start[:-1] > 0
