"""Sentences to tokens, by the tokenizer of a language model."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from supcon_tf import data, exceptions
from supcon_tf.data import tokens
from supcon_tf.text import encoder, files, pretrained

if TYPE_CHECKING:
    import transformers

PAIR = "\t"  # between two sentences that are one text


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
      ValueError: there is none.
    """
    return pretrained.load_tokenizer(encoder.import_transformers(), path)


def tokenize(
    tokenizer: transformers.PreTrainedTokenizerBase,
    texts: Sequence[tuple[str, ...]],
    max_length: int,
) -> npt.NDArray[np.int32]:
    """Tokens of sentences, or of pairs of them.

    What is longer is cut, of two sentences the longer one first. "[SEP]" and
    the like in a sentence are text, not tokens of the model.

    Example:
      >>> from supcon_tf import text
      >>> tokenizer = text.load_tokenizer("texts")
      >>> tokens = text.tokenize(tokenizer, [("a c",), ("b",)], max_length=8)
      >>> tokens[:, 1:, 0].tolist()  # 2 begins a text, 3 ends it
      [[2, 5, 7, 3], [2, 6, 3, -1]]

    Returns:
      [N, 1 + length, 2] int32, as `data.from_tokens` takes them; length is that
      of the longest example, at most `max_length`.

    Raises:
      ValueError: `max_length` is not in 4..the most that the model takes.
    """
    most = tokenizer.model_max_length
    exceptions.require(
        4 <= max_length <= most,
        f"`max_length` must be in 4..{most}, as the model takes it",
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
    made = np.full([len(texts), length, 2], [tokens.NONE, 0], np.int32)
    rows = zip(encoded["input_ids"], encoded["token_type_ids"], strict=True)
    for row, (ids, sentences) in zip(made, rows, strict=True):
        row[: len(ids), 0], row[: len(ids), 1] = ids, sentences
    return np.insert(made, 0, 0, axis=1)  # seeds


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
      class_names: the labels that there are, in their order; None for those of
        `texts`, sorted.
      split: "train" or "test", for messages only.

    Example:
      >>> from supcon_tf import text
      >>> texts = text.read_texts("texts/train.tsv", ["sentence"], "label")
      >>> tokenizer = text.load_tokenizer("texts")
      >>> source = text.to_source(texts, tokenizer, max_length=8)
      >>> source.num_examples, source.class_names
      (40, ('0', '1'))

    Raises:
      ValueError: as `tokenize`; a label is not one of `class_names`, or two of
        these are the same.
    """
    names = tuple(class_names or sorted(set(texts.labels)))
    exceptions.require(
        len(set(names)) == len(names),
        "`class_names` must be different names",
        f"{len(set(names))} of {len(names)}",
    )
    numbers = {name: number for number, name in enumerate(names)}
    for place, label in zip(texts.ids, texts.labels, strict=True):
        exceptions.require(
            label in numbers,
            f"{place} must have a label of {', '.join(names)}",
            label,
        )
    return data.from_tokens(
        tokenize(tokenizer, texts.texts, max_length),
        [numbers[label] for label in texts.labels],
        names,
        texts.ids,
        texts.name,
        split,
        [PAIR.join(x.replace(PAIR, " ") for x in both) for both in texts.texts],
    )
