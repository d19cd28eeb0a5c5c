"""Labelled sentences from files, TSV, CSV, JSON lines, and from TFDS."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Iterator, Sequence

from etils import epath

from supcon_tf import exceptions
from supcon_tf.data import tfds_source
from supcon_tf.disk import rows

_TFDS = "tfds:"
_SURROGATE = re.compile("[\ud800-\udfff]")  # \u escapes of JSON may be halves


@dataclasses.dataclass(frozen=True)
class Texts:
    """Sentences, or pairs of them, with their labels.

    Attributes:
      name: of the file or data set.
      texts: one tuple of one or two sentences per example.
      labels: one per example, as written.
      ids: FILE:LINE of each example.

    Example:
      >>> from supcon_tf import text
      >>> sentences = (("quite long",), ("short",))
      >>> texts = text.Texts("a", sentences, ("bad", "good"), ("a:2", "a:3"))
      >>> texts.by_length().labels
      ('good', 'bad')
    """

    name: str
    texts: tuple[tuple[str, ...], ...]
    labels: tuple[str, ...]
    ids: tuple[str, ...]

    def by_length(self) -> Texts:
        """Sorts by length, short texts first: batches need little padding."""
        fields = self.texts, self.labels, self.ids
        examples = sorted(
            zip(*fields, strict=True),
            key=lambda example: sum(map(len, example[0])),
        )
        return Texts(self.name, *zip(*examples, strict=True))


def read_texts(
    path: str | os.PathLike[str],
    text_columns: Sequence[str],
    label_column: str,
) -> Texts:
    """Reads a file of one example per line, or a split of a TFDS data set.

    A split is tfds:NAME:SPLIT, such as tfds:glue/sst2:train; its columns are
    features, and a label is the name of its class. `rows.read_rows` says what
    the columns of a file are.

    Example:
      >>> from supcon_tf import text
      >>> texts = text.read_texts("texts/train.tsv", ["sentence"], "label")
      >>> texts.texts[0], texts.labels[0], texts.ids[0]
      (('a c',), '0', 'train.tsv:2')

    Raises:
      ImportError: the path is a TFDS split, and TFDS does not import.
      RuntimeError: the data set could not be downloaded.
      ValueError: a column is named twice; there is no such file or column, a
        line is not UTF-8, has too few or too many fields, or a text or label is
        empty or has half a character; it names file and line.
    """
    exceptions.require(
        not isinstance(text_columns, str),
        '`text_columns` must be a list of columns, such as ["sentence"]',
        repr(text_columns),
    )
    path, columns = str(path), (*text_columns, label_column)
    # A text that is its own label would be learned at once.
    exceptions.require(
        len(set(columns)) == len(columns),
        "`text_columns` and `label_column` must be different columns",
        ", ".join(columns),
    )
    texts, labels, ids = [], [], []
    read_rows = _tfds_rows if path.startswith(_TFDS) else rows.read_rows
    for line_id, fields in read_rows(path, columns):
        *sentences, label = (field.strip() for field in fields)
        for column, value in zip(columns, (*sentences, label), strict=True):
            exceptions.require(
                value, f"{line_id} must have a {column} that is not empty", "''"
            )
            exceptions.require(
                not _SURROGATE.search(value),
                f"{line_id} must have a {column} of whole characters, without "
                "the half of an emoji that was cut",
                ascii(value),
            )
        texts.append(tuple(sentences))
        labels.append(label)
        ids.append(line_id)
    exceptions.require(bool(ids), f"{path} must have examples", "none")
    return Texts(name_of(path), tuple(texts), tuple(labels), tuple(ids))


def name_of(path: str) -> str:
    """The name of `Texts` of a file or a TFDS split."""
    return path if path.startswith(_TFDS) else epath.Path(path).name


def _tfds_rows(path: str, columns: Sequence[str]) -> Iterator[rows.Row]:
    """The examples of tfds:NAME:SPLIT, in the order of its files."""
    # Colons may also stand before a version of NAME, and in a part of SPLIT.
    match = re.fullmatch(rf"{_TFDS}(.+):(\w+(?:\[.*\])?)", path)
    exceptions.require(match, f"{path} must be {_TFDS}NAME:SPLIT", path)
    name, split = match.groups()
    tfds = tfds_source.import_tfds()
    builder = tfds_source.prepared_builder(tfds, name, None)
    exceptions.require(
        split.partition("[")[0] in builder.info.splits,
        f"{path} must name a split of {', '.join(builder.info.splits)}",
        split,
    )
    features = builder.info.features
    for column in columns:
        exceptions.require(
            column in features,
            f"{path} must have a feature {column}",
            ", ".join(features),
        )
    dataset = builder.as_dataset(split=split)
    for number, row in enumerate(dataset.as_numpy_iterator()):
        fields = []
        for column in columns:
            value = row[column]
            if isinstance(features[column], tfds.features.ClassLabel):
                value = features[column].int2str(value) if value >= 0 else ""
            text = value.decode() if isinstance(value, bytes) else str(value)
            fields.append(text)
        yield f"{path}:{number}", fields
