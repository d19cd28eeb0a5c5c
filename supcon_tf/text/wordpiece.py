"""WordPiece in a graph: strings to tokens, as the tokenizer of a model does.

Of TensorFlow's own operations, so that any server of it can run an export.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from supcon_tf import exceptions
from supcon_tf.data import tokens
from supcon_tf.text import tokenizer as tokenizer_

if TYPE_CHECKING:
    import transformers

_POINT_BITS = 21  # of a code point
_POINTS = [*range(0xD800), *range(0xE000, 0x110000)]  # without surrogates
_SPACE = ord(" ")
_WORDS, _REST = 0, 1  # states of the trie before a word, and within one
_PAD = tokens.NONE


class WordPiece(tf.Module):
    """The tokens of texts, by the vocabulary and the rules of a tokenizer.

      tokens = WordPiece(tokenizer, max_length=128)(["one text", "another"])

    The rules for characters are asked of the tokenizer, one by one: so its ids
    come out, but for accents that Unicode sorts among one another and that it
    keeps.

    Args:
      tokenizer: of BERT, DistilBERT, ELECTRA, MiniLM, MPNet or another model
        with WordPiece.
      max_length: tokens of an example, at most.
      pairs: a text is two sentences with a tab between.

    Raises:
      ValueError: the tokenizer has other rules.
    """

    def __init__(
        self,
        tokenizer: transformers.PreTrainedTokenizerBase,
        max_length: int,
        pairs: bool = False,
    ):
        super().__init__()
        backend = getattr(tokenizer, "backend_tokenizer", None)
        rules = json.loads(backend.to_str()) if backend else {}
        kinds = tuple(
            (rules.get(part) or {}).get("type")
            for part in ("normalizer", "pre_tokenizer", "model")
        )
        exceptions.require(
            kinds == ("BertNormalizer", "BertPreTokenizer", "WordPiece"),
            "`tokenizer` must have WordPiece and the rules of BERT",
            f"{type(tokenizer).__name__}, of {', '.join(map(str, kinds))}",
        )
        self._set_characters(backend)
        model = rules["model"]
        self._set_trie(model["vocab"], model["continuing_subword_prefix"])
        self.unknown = model["vocab"][model["unk_token"]]
        self.longest_word = model["max_input_chars_per_word"]
        self.max_length, self.pairs = max_length, pairs
        self.frame, self.numbers = _frame(tokenizer, pairs)

    def _set_characters(self, backend: object) -> None:
        """What becomes of each character, and which ones stand alone."""
        normalize = backend.normalizer.normalize_str
        split = backend.pre_tokenizer.pre_tokenize_str
        made = {point: normalize(chr(point)) for point in _POINTS}
        changed = {p: text for p, text in made.items() if text != chr(p)}
        self.changed = _constant([*changed])
        lengths = [len(text) for text in changed.values()]
        self.splits = _constant(np.cumsum([0, *lengths]))
        self.becomes = _constant([ord(x) for y in changed.values() for x in y])
        # Between letters, words of one character are what stands alone.
        words = split("aa".join({*"".join(made.values())}))
        alone = {ord(word) for word, _ in words if len(word) == 1}
        self.alone = _constant(sorted(alone))

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
        self.edges = _constant(order, tf.int64)
        self.targets = _constant([edges[edge] for edge in order])
        self.pieces = _constant(pieces)
        self.longest_piece = max(map(len, vocabulary))

    def __call__(self, texts: tf.Tensor) -> tf.Tensor:
        """[N] string to [N, 1 + length, 2] int32, as `data.from_tokens`."""
        room = self.max_length - sum(map(len, self.frame))
        if self.pairs:
            parts = tf.strings.split(texts, tokenizer_.PAIR, maxsplit=1)
            parts = parts.to_tensor("", shape=[None, 2])
            ids = self._ids(tf.reshape(parts, [-1]))
            sentences = _longest_first(ids[::2], ids[1::2], room)
        else:
            sentences = [self._ids(texts)[:, :room]]
        count = tf.shape(texts, tf.int64)[0]
        rows = [_repeated(self.frame[0], count)]
        for number, pieces, behind in zip(
            self.numbers, sentences, self.frame[1:], strict=True
        ):
            ids = pieces.flat_values
            tokens_ = tf.stack([ids, tf.fill(tf.shape(ids), number)], axis=-1)
            rows += [pieces.with_values(tokens_), _repeated(behind, count)]
        made = tf.concat(rows, axis=1).to_tensor([_PAD, 0])
        return tf.pad(made, [[0, 0], [1, 0], [0, 0]])  # seeds

    def _ids(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """The pieces of texts [N], [N, (pieces)] int32, without any frame."""
        points, text = self._normalized(texts)
        is_space = points == _SPACE
        is_alone = _find(self.alone, points) >= 0
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
        found = _find(self.changed, points)
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
            found = _find(self.edges, edge)
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


def _constant(values: npt.ArrayLike, dtype: tf.DType = tf.int32) -> tf.Variable:
    """Numbers that lie in the export once, beside the weights."""
    return tf.Variable(values, trainable=False, dtype=dtype)


def _find(rising: tf.Variable, values: tf.Tensor) -> tf.Tensor:
    """Places of values [N] among rising ones, -1 where they are not."""
    places = tf.searchsorted(rising, values)
    places = tf.minimum(places, rising.shape[0] - 1)
    return tf.where(tf.gather(rising, places) == values, places, -1)


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


def _frame(
    tokenizer: transformers.PreTrainedTokenizerBase, pairs: bool
) -> tuple[list[npt.NDArray[np.int32]], list[int]]:
    """The tokens [n, 2] around sentences, and the numbers of those."""
    sentences = ["a"] * (1 + pairs)
    made = tokenizer(*sentences, return_token_type_ids=True)
    rows = np.stack([made["input_ids"], made["token_type_ids"]], axis=-1)
    (letter,) = tokenizer.encode("a", add_special_tokens=False)
    places = np.flatnonzero(rows[:, 0] == letter)
    parts = np.split(rows, sorted([*places, *(places + 1)]))
    return parts[::2], [int(number) for number in rows[places, 1]]


def _repeated(row: npt.NDArray[np.int32], count: tf.Tensor) -> tf.RaggedTensor:
    """The tokens [n, 2] for each of `count` examples."""
    tiled = tf.tile(tf.constant(row, tf.int32), [count, 1])
    return tf.RaggedTensor.from_uniform_row_length(tiled, len(row), count)


def _longest_first(
    one: tf.RaggedTensor, other: tf.RaggedTensor, room: int
) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
    """Both sentences in `room` tokens: the longer one is cut first."""
    a, b = one.row_lengths(), other.row_lengths()
    less, more = tf.minimum(a, b), tf.maximum(a, b)
    half = tf.cast(room // 2, tf.int64)
    is_over = a + b > room
    # Where the shorter one fits in a half, the other has all the rest.
    most_less = tf.where(is_over, tf.minimum(less, half), less)
    most_more = tf.where(is_over, room - most_less, more)
    first = tf.where(a > b, most_more, most_less)
    second = tf.where(a > b, most_less, most_more)
    return _head(one, first), _head(other, second)


def _head(rows: tf.RaggedTensor, lengths: tf.Tensor) -> tf.RaggedTensor:
    """The first of each row, so many as `lengths` [N]."""
    return tf.gather(rows, tf.ragged.range(lengths), batch_dims=1)
