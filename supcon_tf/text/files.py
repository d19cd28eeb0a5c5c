"""Labelled sentences from files, TSV, CSV, JSON lines, and from TFDS."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Iterator, Sequence

from etils import epath

from supcon_tf import exceptions, rows
from supcon_tf.data import tfds_source

_TFDS = "tfds:"


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
        """The same, short ones first: batches of them need little padding."""
        fields = self.texts, self.labels, self.ids
        examples = sorted(
            zip(*fields, strict=True), key=lambda row: sum(map(len, row[0]))
        )
        return Texts(self.name, *zip(*examples, strict=True))


def read_texts(
    path: str | os.PathLike[str],
    text_columns: Sequence[str],
    label_column: str,
) -> Texts:
    """Reads a file of one example per line, or a split of a TFDS set.

    The latter is tfds:NAME:SPLIT, such as tfds:glue/sst2:train, and its columns
    are features; a label is the name of its class. What columns of a file are
    is said by `rows.read_rows`.

    Example:
      >>> from supcon_tf import text
      >>> texts = text.read_texts("texts/train.tsv", ["sentence"], "label")
      >>> texts.texts[0], texts.labels[0], texts.ids[0]
      (('a c',), '0', 'train.tsv:2')

    Raises:
      ImportError: a TFDS set is named, and TFDS does not import.
      RuntimeError: the set could not be downloaded.
      ValueError: there is no such file or column, a line is not UTF-8 or has
        too few fields, or a text or label is empty; it names file and line.
    """
    path, wanted = str(path), (*text_columns, label_column)
    texts, labels, ids = [], [], []
    read = _tfds_rows if path.startswith(_TFDS) else rows.read_rows
    for place, fields in read(path, wanted):
        *sentences, label = (field.strip() for field in fields)
        for column, value in zip(wanted, (*sentences, label), strict=True):
            exceptions.require(
                value, f"{place} must have a {column} that is not empty", "''"
            )
        texts.append(tuple(sentences))
        labels.append(label)
        ids.append(place)
    exceptions.require(bool(ids), f"{path} must have examples", "none")
    name = path if path.startswith(_TFDS) else epath.Path(path).name
    return Texts(name, tuple(texts), tuple(labels), tuple(ids))


def _tfds_rows(path: str, wanted: Sequence[str]) -> Iterator[rows.Row]:
    """The examples of tfds:NAME:SPLIT, in the order of its files."""
    # A name may have a version behind a colon, a part of a split too.
    known = re.fullmatch(rf"{_TFDS}(.+):(\w+(?:\[.*\])?)", path)
    exceptions.require(known, f"{path} must be {_TFDS}NAME:SPLIT", path)
    name, split = known.groups()
    tfds = tfds_source.import_tfds()
    builder = tfds_source.prepared_builder(tfds, name, None)
    exceptions.require(
        split.partition("[")[0] in builder.info.splits,
        f"{path} must name a split of {', '.join(builder.info.splits)}",
        split,
    )
    features = builder.info.features
    for column in wanted:
        exceptions.require(
            column in features,
            f"{path} must have a feature {column}",
            ", ".join(features),
        )
    dataset = builder.as_dataset(split=split)
    for number, row in enumerate(dataset.as_numpy_iterator()):
        fields = []
        for column in wanted:
            value = row[column]
            if isinstance(features[column], tfds.features.ClassLabel):
                value = features[column].int2str(value) if value >= 0 else ""
            text = value.decode() if isinstance(value, bytes) else str(value)
            fields.append(text)
        yield f"{path}:{number}", fields
