"""Tokenizers in a graph: strings to tokens, as the tokenizer of a model does.

All operations are TensorFlow's own, so that any TensorFlow server can run an
export. Letters in the shapes: N texts, F special tokens of a frame.
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


# Options of byte-level BPE that RoBERTa does not set.
_UNSUPPORTED_OPTIONS = (
    *("add_prefix_space", "dropout", "byte_fallback", "ignore_merges"),
    "end_of_word_suffix",
)


class GraphTokenizer(tf.Module):
    """The tokens of texts, by the vocabulary and the rules of a tokenizer.

    Args:
      tokenizer: with WordPiece (BERT, DistilBERT, ELECTRA, MiniLM, MPNet) or
        byte-level BPE (RoBERTa, DeBERTa).
      max_length: tokens of an example, at most.
      pairs: a text is two sentences with a tab between them.

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
        unsupported = _unsupported_options(tokenizer, rules)
        exceptions.require(
            not unsupported,
            "`tokenizer` must have none of the options that a graph lacks",
            f"{type(tokenizer).__name__} with {', '.join(unsupported)}",
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
        """Converts strings [N] to tokens [N, 1 + length, 2] int32."""
        with tf.device("CPU:0"):  # a GPU has no strings
            return self._tokens(texts)

    def _tokens(self, texts: tf.Tensor) -> tf.Tensor:
        """Returns the tokens of texts [N], as `__call__`, on any device."""
        max_pieces = self.max_length - sum(map(len, self.frame))
        if self.pairs:
            pairs = tf.strings.split(texts, tokenizer_.PAIR, maxsplit=1)
            pairs = pairs.to_tensor("", shape=[None, 2])  # [N, 2]
            pieces = self.pieces_of(tf.reshape(pairs, [-1]))
            sentences = _truncate_pairs(pieces[::2], pieces[1::2], max_pieces)
        else:
            sentences = [self.pieces_of(texts)[:, :max_pieces]]
        count = tf.shape(texts, tf.int64)[0]  # N
        segments = [_repeat(self.frame[0], count)]  # [N, (tokens), 2] each
        for number, pieces, special_tokens in zip(
            self.numbers, sentences, self.frame[1:], strict=True
        ):
            ids = pieces.flat_values
            tokens_ = tf.stack([ids, tf.fill(tf.shape(ids), number)], axis=-1)
            segments += [
                pieces.with_values(tokens_),
                _repeat(special_tokens, count),
            ]
        padded = tf.concat(segments, axis=1).to_tensor([tokens.NONE, 0])
        # A row of zeros stands for the seed: no dropout.
        return tf.pad(padded, [[0, 0], [1, 0], [0, 0]])


def algorithm_of(
    tokenizer: transformers.PreTrainedTokenizerBase,
) -> type[wordpiece.WordPiece] | type[byte_bpe.ByteBpe]:
    """The class that splits texts as this tokenizer does, in a graph.

    Raises:
      ValueError: there is no such class.
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
    """The JSON of a tokenizer; {} for one that `tokenizers` did not make."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    return json.loads(backend.to_str()) if backend else {}


def _unsupported_options(
    tokenizer: transformers.PreTrainedTokenizerBase, rules: dict
) -> list[str]:
    """Names of options with which the graph would make other tokens."""
    options = {**rules["pre_tokenizer"], **rules["model"]}
    normalizer = rules["normalizer"] or {}
    names = [name for name in _UNSUPPORTED_OPTIONS if options.get(name)]
    if not options.get("use_regex", True):
        names.append("use_regex=False")
    if not normalizer.get("clean_text", True):  # a line break is a space
        names.append("clean_text=False")
    if any(not token["special"] for token in rules["added_tokens"]):
        names.append("added tokens")
    if tokenizer.truncation_side != "right":
        names.append(f"truncation_side={tokenizer.truncation_side}")
    return names


def _frame(
    tokenizer: transformers.PreTrainedTokenizerBase, pairs: bool
) -> tuple[list[npt.NDArray[np.int32]], list[int]]:
    """The special tokens [F, 2] around sentences, and the sentences' numbers.

    They are the tokens that the tokenizer puts around sentences of one letter.
    """
    sentences = ["a"] * (1 + pairs)
    encoded = tokenizer(*sentences, return_token_type_ids=True)
    rows = np.stack([encoded["input_ids"], encoded["token_type_ids"]], axis=-1)
    (letter_id,) = tokenizer.encode("a", add_special_tokens=False)
    letters = np.flatnonzero(rows[:, 0] == letter_id)
    segments = np.split(rows, sorted([*letters, *(letters + 1)]))
    return segments[::2], [int(number) for number in rows[letters, 1]]


def _repeat(
    special_tokens: npt.NDArray[np.int32], count: tf.Tensor
) -> tf.RaggedTensor:
    """Special tokens [F, 2] for each of `count` examples, [count, F, 2]."""
    tiled = tf.tile(tf.constant(special_tokens, tf.int32), [count, 1])
    return tf.RaggedTensor.from_uniform_row_length(
        tiled, len(special_tokens), count
    )


def _truncate_pairs(
    first: tf.RaggedTensor, second: tf.RaggedTensor, max_pieces: int
) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
    """Cuts pairs of sentences [N, (pieces)], the longer sentence first."""
    first_counts = first.row_lengths()  # [N]
    second_counts = second.row_lengths()  # [N]
    shorter = tf.minimum(first_counts, second_counts)
    longer = tf.maximum(first_counts, second_counts)
    half_length = tf.cast(max_pieces // 2, tf.int64)
    is_over = first_counts + second_counts > max_pieces
    # A shorter sentence that fits in one half leaves the rest to the longer.
    shorter = tf.where(is_over, tf.minimum(shorter, half_length), shorter)
    longer = tf.where(is_over, max_pieces - shorter, longer)
    first_lengths = tf.where(first_counts > second_counts, longer, shorter)
    second_lengths = tf.where(first_counts > second_counts, shorter, longer)
    return _truncate(first, first_lengths), _truncate(second, second_lengths)


def _truncate(rows: tf.RaggedTensor, lengths: tf.Tensor) -> tf.RaggedTensor:
    """Returns the first `lengths` [N] pieces of each row."""
    return tf.gather(rows, tf.ragged.range(lengths), batch_dims=1)
