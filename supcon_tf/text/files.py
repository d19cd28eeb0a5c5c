"""Labelled sentences from files, TSV, CSV, JSON lines, and from TFDS."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import os
import re
from collections.abc import Iterator, Sequence

from etils import epath

from supcon_tf import exceptions, files
from supcon_tf.data import tfds_source

_SUFFIXES = (".tsv", ".csv", ".jsonl")
_TFDS = "tfds:"
_Rows = Iterator[tuple[str, list[str]]]  # where each is, and its fields


@dataclasses.dataclass(frozen=True)
class Texts:
    """Sentences, or pairs of them, with their labels.

    Attributes:
      name: of the file or data set.
      texts: one tuple of one or two sentences per example.
      labels: one per example, as written.
      ids: FILE:LINE of each example.
    """

    name: str
    texts: tuple[tuple[str, ...], ...]
    labels: tuple[str, ...]
    ids: tuple[str, ...]

    def by_length(self) -> Texts:
        """The same, short ones first: batches of them need little padding."""
        fields = self.texts, self.labels, self.ids
        rows = sorted(
            zip(*fields, strict=True), key=lambda row: sum(map(len, row[0]))
        )
        return Texts(self.name, *zip(*rows, strict=True))


def read_texts(
    path: str | os.PathLike[str],
    text_columns: Sequence[str],
    label_column: str,
) -> Texts:
    """Reads a file of one example per line, or a split of a TFDS set.

    The latter is tfds:NAME:SPLIT, such as tfds:glue/sst2:train, and its columns
    are features; a label is the name of its class. Of a file, a column is a
    name of the header, or of the fields of JSON lines; or a number from 0 in
    files without a header. Fields of a .tsv have no quotes, as those of GLUE;
    those of a .csv may.

    Raises:
      ImportError: a TFDS set is named, and TFDS does not import.
      RuntimeError: the set could not be downloaded.
      ValueError: there is no such file or column, a line is not UTF-8 or has
        too few fields, or a text or label is empty; it names file and line.
    """
    path, wanted = str(path), (*text_columns, label_column)
    texts, labels, ids = [], [], []
    for place, fields in _rows(path, wanted):
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


def _rows(path: str, wanted: Sequence[str]) -> _Rows:
    if path.startswith(_TFDS):
        return _tfds_rows(path, wanted)
    file = epath.Path(path)
    exceptions.require(
        file.suffix in _SUFFIXES and file.exists(),
        f"{path} must be a file {', '.join(_SUFFIXES)}",
        "no file" if file.suffix in _SUFFIXES else f"one of {file.suffix!r}",
    )
    read = _json_rows if file.suffix == ".jsonl" else _table_rows
    return read(file, wanted)


def _tfds_rows(path: str, wanted: Sequence[str]) -> _Rows:
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


def _json_rows(file: epath.Path, wanted: Sequence[str]) -> _Rows:
    for place, line in files.read_lines(file):
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise exceptions.InvalidValue(
                f"{place} must be JSON, got {error}"
            ) from error
        known = row if isinstance(row, dict) else {}
        for column in wanted:
            exceptions.require(
                isinstance(known.get(column), str | int)
                and not isinstance(known[column], bool),
                f"{place} must have a {column}, a string or an integer",
                known.get(column, f"the fields {', '.join(known) or 'none'}"),
            )
        yield place, [str(row[column]) for column in wanted]


def _table_rows(file: epath.Path, wanted: Sequence[str]) -> _Rows:
    rows = _tsv_rows(file) if file.suffix == ".tsv" else _csv_rows(file)
    has_header = not all(column.isdigit() for column in wanted)
    if has_header:
        place, header = next(rows, (f"{file.name}:1", []))
        for column in wanted:
            exceptions.require(
                column in header,
                f"{place}, the header, must have a column {column}; columns of "
                "a file without one are numbers from 0",
                ", ".join(header),
            )
        columns = [header.index(column) for column in wanted]
    else:
        columns = [int(column) for column in wanted]
    for place, row in rows:
        exceptions.require(
            len(row) > max(columns),
            f"{place} must have {max(columns) + 1} fields",
            len(row),
        )
        yield place, [row[column] for column in columns]


def _tsv_rows(file: epath.Path) -> _Rows:
    for place, line in files.read_lines(file):
        yield place, line.split("\t")


def _csv_rows(file: epath.Path) -> _Rows:
    """Rows of a .csv, whose quoted fields may hold ends of lines."""
    for _ in files.read_lines(file):  # all of it is UTF-8
        pass
    text = file.read_bytes().decode("utf-8-sig")
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    while True:
        place = f"{file.name}:{reader.line_num + 1}"
        try:
            row = next(reader, None)
        except csv.Error as error:
            raise exceptions.InvalidValue(
                f"{place} must be CSV, got {error}"
            ) from error
        if row is None:
            return
        if row:
            yield place, row
