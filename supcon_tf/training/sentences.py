"""The splits of a fine-tuning on sentences, from its files."""

from __future__ import annotations

import os

from supcon_tf import config, data, exceptions, text
from supcon_tf.data import subsets
from supcon_tf.disk import files


def whole_paths(
    settings: config.FinetuneTextSettings, *_: object
) -> dict[str, str]:
    """The fields of local files, by paths that are valid in any folder."""
    names = "train_file", "validation_file", "test_file", "model"
    paths = {name: getattr(settings, name) for name in names}
    return {
        name: files.whole(path)
        for name, path in paths.items()
        if path and os.path.exists(path)  # else a name on TFDS or a hub
    }


def splits(
    settings: config.FinetuneTextSettings, tokenizer: object
) -> tuple[data.Source, data.Source]:
    """The training sentences that the settings draw, and validation sentences.

    Raises:
      ValueError: a line of a file is bad, or there are too few sentences or
        labels.
    """
    train, validation = _draw(settings, tokenizer)
    # Here alone: earlier runs on fewer sentences must open.
    num_labels = len(train.class_names)
    exceptions.require(
        train.num_examples >= num_labels,
        f"--train_examples must be at least {num_labels}, one of each label, "
        "as nothing teaches a label without examples",
        train.num_examples,
    )
    if settings.validation_file:
        path = settings.validation_file
        validation = _source(
            settings, tokenizer, path, "validation", train.class_names
        )
    return train, validation


def train(
    settings: config.FinetuneTextSettings, tokenizer: object
) -> data.Source:
    """The training sentences of `splits`; raises ValueError as `splits`."""
    return _draw(settings, tokenizer)[0]


def _draw(
    settings: config.FinetuneTextSettings, tokenizer: object
) -> tuple[data.Source, data.Source | None]:
    """The training sentences that are drawn, and the held-out sentences."""
    train = _source(settings, tokenizer, settings.train_file, "train")
    exceptions.require(
        len(train.class_names) >= 2,
        "--train_file must have two labels or more",
        ", ".join(train.class_names),
    )
    validation = None
    if not settings.validation_file:
        with exceptions.argument("train_file", "labels"):
            positions, held_out = subsets.hold_out(
                train.labels, settings.validation_fraction, seed=0
            )
        validation = subsets.subset(train, held_out)
        train = subsets.subset(train, positions)
    if settings.train_examples is not None:
        exceptions.require(
            settings.train_examples <= train.num_examples,
            f"--train_examples must be at most {train.num_examples}, those of "
            f"{train.name} that are not held out",
            settings.train_examples,
        )
        positions = subsets.draw_evenly(
            train.labels, settings.train_examples, settings.draw
        )
        train = subsets.subset(train, positions)
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
