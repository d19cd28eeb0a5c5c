"""The sentences of a fine-tuning: which of its files it learns from."""

from __future__ import annotations

import os

from supcon_tf import config, data, exceptions, files, text
from supcon_tf.data import subsets


def whole_paths(
    settings: config.FinetuneTextSettings, *_: object
) -> dict[str, str]:
    """Fields of files here, by paths that mean the same from any folder."""
    names = "train_file", "validation_file", "test_file", "model"
    paths = {name: getattr(settings, name) for name in names}
    return {
        name: files.whole(path)
        for name, path in paths.items()
        if path and os.path.exists(path)  # else a name of TFDS, or of a hub
    }


def splits(
    settings: config.FinetuneTextSettings, tokenizer: object
) -> tuple[data.Source, data.Source]:
    """The training sentences that are drawn, and those of validation.

    Raises:
      ValueError: a line of a file is bad, or there are too few sentences or
        labels.
    """
    train, held = _drawn(settings, tokenizer)
    if settings.validation_file:
        path = settings.validation_file
        held = _source(
            settings, tokenizer, path, "validation", train.class_names
        )
    return train, held


def train(
    settings: config.FinetuneTextSettings, tokenizer: object
) -> data.Source:
    """The training sentences that are drawn; raises ValueError as `splits`."""
    return _drawn(settings, tokenizer)[0]


def _drawn(
    settings: config.FinetuneTextSettings, tokenizer: object
) -> tuple[data.Source, data.Source | None]:
    """The training sentences that are drawn, and those that are held out."""
    train = _source(settings, tokenizer, settings.train_file, "train")
    exceptions.require(
        len(train.class_names) >= 2,
        "--train_file must have two labels or more",
        ", ".join(train.class_names),
    )
    held = None
    if not settings.validation_file:
        kept, others = subsets.hold_out(
            train.labels, settings.validation_fraction, seed=0
        )
        held = subsets.subset(train, others)
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
    return train, held


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
