"""The sentences of a fine-tuning: which of its files it learns from."""

from __future__ import annotations

import functools

from supcon_tf import config, data, exceptions, text
from supcon_tf.data import subsets


def splits(
    settings: config.FinetuneTextSettings, tokenizer: object
) -> tuple[data.Source, data.Source]:
    """The training sentences that are drawn, and those of validation.

    Raises:
      ValueError: a line of a file is bad, or there are too few sentences or
        labels.
    """
    make = functools.partial(_source, settings, tokenizer)
    train = make(settings.train_file, "train")
    exceptions.require(
        len(train.class_names) >= 2,
        "--train_file must have two labels or more",
        ", ".join(train.class_names),
    )
    if settings.validation_file:
        validation = make(
            settings.validation_file, "validation", train.class_names
        )
    else:
        kept, held = subsets.hold_out(
            train.labels, settings.validation_fraction, seed=0
        )
        validation = subsets.subset(train, held)
        train = subsets.subset(train, kept)
    if settings.train_examples is not None:
        exceptions.require(
            settings.train_examples <= train.num_examples,
            f"--train_examples must be at most {train.num_examples}, those of "
            f"{train.name} that are not held out",
            settings.train_examples,
        )
        drawn = subsets.draw_alike(
            train.labels, settings.train_examples, settings.draw
        )
        train = subsets.subset(train, drawn)
    return train, validation


def test(
    settings: config.FinetuneTextSettings,
    tokenizer: object,
    class_names: tuple[str, ...],
) -> data.Source:
    """The test sentences; raises ValueError for a bad line, or no file."""
    exceptions.require(
        settings.test_file,
        "--run_dir must be a run with a --test_file, which --resume gives it",
        "none",
    )
    path = settings.test_file
    return _source(settings, tokenizer, path, "test", class_names)


def _source(
    settings: config.FinetuneTextSettings,
    tokenizer: object,
    path: str,
    split: str,
    class_names: tuple[str, ...] | None = None,
) -> data.Source:
    texts = text.read_texts(path, settings.text_columns, settings.label_column)
    if split == "validation":
        texts = texts.by_length()
    return text.to_source(
        texts, tokenizer, settings.max_length, class_names, split
    )
