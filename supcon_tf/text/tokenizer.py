"""Sentences to tokens, by the tokenizer of a language model."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from supcon_tf import data, exceptions
from supcon_tf.data import tokens
from supcon_tf.text import encoder, files, pretrained

if TYPE_CHECKING:
    import transformers

PAIR = "\t"  # between the two sentences of a text
_UNKNOWN_SHARE = 0.05  # of the tokens; far more than a language it was made for


def load_tokenizer(
    path: str | os.PathLike[str],
) -> transformers.PreTrainedTokenizerBase:
    """The tokenizer of a directory, or of a hub's name.

    Example:
      >>> from supcon_tf import text
      >>> text.load_tokenizer("texts").tokenize("a cb")
      ['a', 'c', '##b']

    Raises:
      ImportError: the extra `text` is not installed.
      ValueError: no usable tokenizer is there.
    """
    return pretrained.load_tokenizer(encoder.import_transformers(), path)


def tokenize(
    tokenizer: transformers.PreTrainedTokenizerBase,
    texts: Sequence[tuple[str, ...]],
    max_length: int,
) -> npt.NDArray[np.int32]:
    """Tokens of sentences, or of pairs of sentences.

    Longer texts are cut, of two sentences the longer one first. "[SEP]" and the
    like in a sentence are text, not tokens of the model.

    Example:
      >>> from supcon_tf import text
      >>> tokenizer = text.load_tokenizer("texts")
      >>> tokens = text.tokenize(tokenizer, [("a c",), ("b",)], max_length=8)
      >>> tokens[:, 1:, 0].tolist()  # 2 begins a text, 3 ends it
      [[2, 5, 7, 3], [2, 6, 3, -1]]

    Returns:
      [N, 1 + length, 2] int32, as `data.from_tokens` takes them, where length
      is that of the longest example, at most `max_length`.

    Raises:
      ValueError: `texts` are no tuples of as many sentences, or none;
        `max_length` is below 4, or more than the model takes.
    """
    # Letters of strings of one length would be taken for sentences.
    counts = {0 if isinstance(text, str) else len(text) for text in texts}
    exceptions.require(
        counts in ({1}, {2}),
        "`texts` must be tuples, all of one sentence or all of two, at least "
        "one tuple",
        [*texts[:2]],
    )
    model_limit = tokenizer.model_max_length
    exceptions.require(
        4 <= max_length <= model_limit,
        f"`max_length` must be in 4..{model_limit}, as the model takes it",
        max_length,
    )
    encoded = tokenizer(
        *(list(sentences) for sentences in zip(*texts, strict=True)),
        truncation=True,
        max_length=max_length,
        split_special_tokens=True,
        return_attention_mask=False,
        return_token_type_ids=True,
    )
    length = max(map(len, encoded["input_ids"]))
    padded = np.full([len(texts), length, 2], [tokens.NONE, 0], np.int32)
    examples = zip(encoded["input_ids"], encoded["token_type_ids"], strict=True)
    for row, (ids, sentences) in zip(padded, examples, strict=True):
        row[: len(ids), 0], row[: len(ids), 1] = ids, sentences
    # A row of zeros in front, for the seed that a view has there.
    return np.insert(padded, 0, 0, axis=1)  # [N, 1 + length, 2]


def to_source(
    texts: files.Texts,
    tokenizer: transformers.PreTrainedTokenizerBase,
    max_length: int = 128,
    class_names: Sequence[str] | None = None,
    split: str = "train",
) -> data.Source:
    """Labelled sentences for `data.make_token_views` and `data.make_examples`.

    Args:
      texts: of `read_texts`.
      tokenizer: that of the encoder's model.
      max_length: tokens of an example, at most.
      class_names: all labels, in the order of their class ids; None for the
        labels of `texts`, sorted.
      split: "train" or "test", for messages only.

    Example:
      >>> from supcon_tf import text
      >>> texts = text.read_texts("texts/train.tsv", ["sentence"], "label")
      >>> tokenizer = text.load_tokenizer("texts")
      >>> source = text.to_source(texts, tokenizer, max_length=8)
      >>> source.num_examples, source.class_names
      (40, ('0', '1'))

    Raises:
      ValueError: as `tokenize`; a label is not one of `class_names`, or two
        class names are the same.
    """
    names = tuple(class_names or sorted(set(texts.labels)))
    exceptions.require(
        len(set(names)) == len(names),
        "`class_names` must be different names",
        f"{len(set(names))} of {len(names)}",
    )
    class_ids = {name: class_id for class_id, name in enumerate(names)}
    for line_id, label in zip(texts.ids, texts.labels, strict=True):
        exceptions.require(
            label in class_ids,
            f"{line_id} must have a label of {', '.join(names)}",
            label,
        )
    # One line per example: a tab stands between sentences, and in none.
    lines = [
        PAIR.join(sentence.replace(PAIR, " ") for sentence in sentences)
        for sentences in texts.texts
    ]
    tokenized = tokenize(tokenizer, texts.texts, max_length)
    source = data.from_tokens(
        tokenized,
        [class_ids[label] for label in texts.labels],
        names,
        texts.ids,
        texts.name,
        split,
        lines,
    )
    token_ids = tokenized[:, 1:, 0]  # [N, length]
    facts = (
        _describe_first(texts),
        _describe_quoted(texts),
        _describe_long(token_ids, texts.ids, max_length),
        _describe_unknown(token_ids, tokenizer),
    )
    return dataclasses.replace(source, note="; ".join(filter(None, facts)))


def _describe_first(texts: files.Texts) -> str:
    """Says that the first line of a table may be its header; else "".

    Where columns are numbers, a header is read as an example. Its label, the
    name of a column, is that of no other example; where classes are larger, few
    are so by chance.
    """
    line_id, label = texts.ids[0], texts.labels[0]
    is_line_1 = line_id.endswith(":1") and not line_id.endswith(".jsonl:1")
    is_alone = texts.labels.count(label) == 1
    has_larger_classes = len(texts.labels) > 2 * len(set(texts.labels))
    if not (is_line_1 and is_alone and has_larger_classes):
        return ""
    return (
        f"{line_id} alone has the label {label}; if this line is a header, "
        "name its columns in place of numbers"
    )


def _describe_quoted(texts: files.Texts) -> str:
    """Says that fields of a .tsv have the quotes of a .csv; "" for none."""
    if not texts.name.lower().endswith(".tsv"):
        return ""
    quoted = [
        line_id
        for line_id, sentences in zip(texts.ids, texts.texts, strict=True)
        if any(re.fullmatch(r'".*"".*"', text) for text in sentences)
    ]
    if not quoted:
        return ""
    return (
        f"{len(quoted)} of {len(texts.ids)} texts have the double quotes of a "
        ".csv, which are part of the text in a .tsv: "
        f"{exceptions.listed(quoted, 3)}; write a .csv, or without quoting"
    )


def _describe_long(
    token_ids: npt.NDArray[np.int32], line_ids: Sequence[str], max_length: int
) -> str:
    """Says how many texts reach `max_length`; "" for none."""
    lengths = (token_ids != tokens.NONE).sum(axis=1)
    longest = [line_ids[row] for row in np.flatnonzero(lengths == max_length)]
    if not longest:
        return ""
    return (
        f"{len(longest)} of {len(token_ids)} texts have the maximum of "
        f"{max_length} tokens, and lose what is longer: "
        + exceptions.listed(longest, 3)
    )


def _describe_unknown(
    token_ids: npt.NDArray[np.int32],
    tokenizer: transformers.PreTrainedTokenizerBase,
) -> str:
    """Says which share of the tokens is unknown, if it is large; else ""."""
    is_unknown = token_ids == tokenizer.unk_token_id
    share = is_unknown.sum() / (token_ids != tokens.NONE).sum()
    if share <= _UNKNOWN_SHARE:
        return ""
    return (
        f"{share:.0%} of all tokens are {tokenizer.unk_token}, words that the "
        "tokenizer does not know; choose a model of the language of the texts"
    )
