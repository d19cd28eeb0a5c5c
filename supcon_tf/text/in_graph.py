"""Tokenizers in a graph: strings to tokens, as the tokenizer of a model does.

Of TensorFlow's own operations, so that any server of it can run an export.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from supcon_tf import exceptions
from supcon_tf.data import tokens
from supcon_tf.text import byte_bpe, wordpiece
from supcon_tf.text import tokenizer as tokenizer_

if TYPE_CHECKING:
    import transformers


# Of byte-level BPE, of which RoBERTa has none.
_OTHER_OPTIONS = (
    *("add_prefix_space", "dropout", "byte_fallback", "ignore_merges"),
    "end_of_word_suffix",
)


class GraphTokenizer(tf.Module):
    """The tokens of texts, by the vocabulary and the rules of a tokenizer.

    Args:
      tokenizer: with WordPiece (BERT, DistilBERT, ELECTRA, MiniLM, MPNet) or
        byte-level BPE (RoBERTa, DeBERTa).
      max_length: tokens of an example, at most.
      pairs: a text is two sentences with a tab between.

    Example:
      >>> from supcon_tf import text
      >>> tokenizer = text.load_tokenizer("texts")
      >>> tokens = text.GraphTokenizer(tokenizer, max_length=8)(["a c", "b"])
      >>> tokens[:, 1:, 0].numpy().tolist()  # 2 begins a text, 3 ends it
      [[2, 5, 7, 3], [2, 6, 3, -1]]

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
        rules, algorithm = _rules(tokenizer), algorithm_of(tokenizer)
        unusual = _unusual(tokenizer, rules)
        exceptions.require(
            not unusual,
            "`tokenizer` must have none of the options that a graph lacks",
            f"{type(tokenizer).__name__} with {', '.join(unusual)}",
        )
        model = rules["model"]
        self.pieces_of = (
            byte_bpe.ByteBpe(model)
            if algorithm is byte_bpe.ByteBpe
            else wordpiece.WordPiece(tokenizer.backend_tokenizer, model)
        )
        self.max_length, self.pairs = max_length, pairs
        self.frame, self.numbers = _frame(tokenizer, pairs)

    def __call__(self, texts: tf.Tensor) -> tf.Tensor:
        """[N] string to [N, 1 + length, 2] int32, as `data.from_tokens`."""
        with tf.device("CPU:0"):  # A GPU has no strings.
            return self._tokens(texts)

    def _tokens(self, texts: tf.Tensor) -> tf.Tensor:
        room = self.max_length - sum(map(len, self.frame))
        if self.pairs:
            parts = tf.strings.split(texts, tokenizer_.PAIR, maxsplit=1)
            parts = parts.to_tensor("", shape=[None, 2])
            ids = self.pieces_of(tf.reshape(parts, [-1]))
            sentences = _longest_first(ids[::2], ids[1::2], room)
        else:
            sentences = [self.pieces_of(texts)[:, :room]]
        count = tf.shape(texts, tf.int64)[0]
        rows = [_repeated(self.frame[0], count)]
        for number, pieces, behind in zip(
            self.numbers, sentences, self.frame[1:], strict=True
        ):
            ids = pieces.flat_values
            tokens_ = tf.stack([ids, tf.fill(tf.shape(ids), number)], axis=-1)
            rows += [pieces.with_values(tokens_), _repeated(behind, count)]
        made = tf.concat(rows, axis=1).to_tensor([tokens.NONE, 0])
        return tf.pad(made, [[0, 0], [1, 0], [0, 0]])  # seeds


def algorithm_of(
    tokenizer: transformers.PreTrainedTokenizerBase,
) -> type[wordpiece.WordPiece] | type[byte_bpe.ByteBpe]:
    """What makes pieces of the tokenizer's texts in a graph.

    Raises:
      ValueError: nothing does.
    """
    rules = _rules(tokenizer)
    kinds = tuple(
        (rules.get(part) or {}).get("type")
        for part in ("normalizer", "pre_tokenizer", "model")
    )
    for algorithm in (wordpiece.WordPiece, byte_bpe.ByteBpe):
        if kinds == algorithm.KINDS:
            return algorithm
    raise exceptions.InvalidValue(
        "`tokenizer` must have WordPiece with the rules of BERT, or "
        "byte-level BPE with those of RoBERTa, got "
        f"{type(tokenizer).__name__}, of {', '.join(map(str, kinds))}"
    )


def _rules(tokenizer: transformers.PreTrainedTokenizerBase) -> dict:
    """The JSON of a tokenizer; {} for one that is not of `tokenizers`."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    return json.loads(backend.to_str()) if backend else {}


def _unusual(
    tokenizer: transformers.PreTrainedTokenizerBase, rules: dict
) -> list[str]:
    """The options that make other tokens than a graph does."""
    options = {**rules["pre_tokenizer"], **rules["model"]}
    found = [name for name in _OTHER_OPTIONS if options.get(name)]
    if not options.get("use_regex", True):
        found.append("use_regex=False")
    if any(not token["special"] for token in rules["added_tokens"]):
        found.append("added tokens")
    if tokenizer.truncation_side != "right":
        found.append(f"truncation_side={tokenizer.truncation_side}")
    return found


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
