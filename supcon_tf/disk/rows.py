"""Rows of .csv, .tsv and .jsonl files, each with its FILE:LINE."""

from __future__ import annotations

import collections
import csv
import io
import json
from collections.abc import Iterable, Iterator, Sequence

from etils import epath

from supcon_tf import exceptions
from supcon_tf.disk import files

# Fields of documents and masks are longer than the default, 128 KiB.
csv.field_size_limit(2**31 - 1)

SUFFIXES = (".tsv", ".csv", ".jsonl")
SEPARATOR = "|"  # of several values in one field

_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # first characters of formulas

Row = tuple[str, list[str | None]]  # FILE:LINE and the fields


def distinct(names: Iterable[str]) -> tuple[str, ...]:
    """Distinct names: repeated names have their position in brackets.

    Two of ImageNet's classes are called crane.

    Example:
      >>> from supcon_tf.disk import rows
      >>> rows.distinct(["crane", "dog", "crane"])
      ('crane [0]', 'dog', 'crane [2]')
    """
    names = tuple(names)
    while len(set(names)) < len(names):
        counts = collections.Counter(names)
        names = tuple(
            f"{name} [{index}]" if counts[name] > 1 else name
            for index, name in enumerate(names)
        )
    return names


def csv_line(cells: Iterable[object]) -> str:
    """A line of a .csv, with its end, in which no text is a formula.

    A text that begins like a formula, and is no number, gets an apostrophe
    before it: names of files and classes come from anybody.

    Example:
      >>> from supcon_tf.disk import rows
      >>> print(rows.csv_line(["=1+1", "-1", -0.5, "a, b"]), end="")
      '=1+1,-1,-0.5,"a, b"
    """
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow(map(_escape, cells))
    return line.getvalue()


def _escape(cell: object) -> object:
    if not isinstance(cell, str) or not cell.startswith(_FORMULA):
        return cell
    try:
        float(cell)
    except ValueError:
        return f"'{cell}"
    return cell


def read_rows(
    path: epath.PathLike,
    wanted: Sequence[str],
    optional: Sequence[str] = (),
    listed: str = "",
) -> Iterator[Row]:
    """FILE:LINE and the fields of some columns of every row, as written.

    A column is a name of the header, or of the fields of JSON lines; or a
    number from 0 in files without a header, or with a header of such numbers.
    Fields of a .csv may have quotes, fields of a .tsv have none, as in GLUE. A
    file is read row by row.

    Args:
      path: of the file, local or gs://.
      wanted: columns that the file must have.
      optional: columns, by name, whose fields are None if the file lacks them.
      listed: the one of them whose fields in JSON lines may be lists, which are
        joined by `SEPARATOR`; the others may be lists of a single value.

    Raises:
      ValueError: there is no such file or column, or several such columns; a
        line is not UTF-8, has too few fields, or more than the first line; or a
        value of a list has a `SEPARATOR`. The message names file and line.
    """
    file = epath.Path(files.expanded(path))
    is_list = _kind(file) in SUFFIXES
    exceptions.require(
        is_list and files.is_regular(file),
        f"{path} must be a file {', '.join(SUFFIXES)}",
        "no file" if is_list else f"one of {file.suffix!r}",
    )
    if _kind(file) == ".jsonl":
        return _json_rows(file, wanted, optional, listed)
    return _table_rows(file, wanted, optional)


def _kind(file: epath.Path) -> str:
    """One of `SUFFIXES`, or another end of a name, in lower case."""
    return file.suffix.lower()


def _json_rows(
    file: epath.Path,
    wanted: Sequence[str],
    optional: Sequence[str],
    listed: str,
) -> Iterator[Row]:
    for location, line in files.read_lines(file):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:  # also long numbers
            raise exceptions.InvalidValue(
                f"{location} must be JSON, got {error}"
            ) from error
        row_fields = row if isinstance(row, dict) else {}
        for column in wanted:
            if type(row_fields.get(column)) not in (str, int):
                names = f"the fields {', '.join(row_fields) or 'none'}"
                raise exceptions.InvalidValue(
                    f"{location} must have a {column}, a string or an integer, "
                    f"got {row_fields.get(column, names)}"
                )
        fields = [str(row_fields[column]) for column in wanted]
        fields += [
            _joined(location, column, row_fields[column], listed)
            if column in row_fields
            else None
            for column in optional
        ]
        yield location, fields


def _joined(location: str, column: str, value: object, listed: str) -> str:
    """The text of an optional field: its value, or those of its list."""
    values = value if isinstance(value, list) else [value]
    exceptions.require(
        all(type(item) in (str, int, float) for item in values),
        f"{location} must have strings or numbers for {column}",
        value,
    )
    exceptions.require(
        len(values) <= 1 or column == listed,
        f"{location} must have one value for {column}; call the column "
        f"{listed} for several values",
        value,
    )
    texts = [*map(str, values)]
    exceptions.require(
        not isinstance(value, list)
        or not any(SEPARATOR in text for text in texts),
        f"{location} must have values without {SEPARATOR} in a list of "
        f"{column}, as {SEPARATOR} separates labels",
        value,
    )
    return SEPARATOR.join(texts)


def _table_rows(
    file: epath.Path, wanted: Sequence[str], optional: Sequence[str]
) -> Iterator[Row]:
    rows = _tsv_rows(file) if _kind(file) == ".tsv" else _csv_rows(file)
    num_fields = None  # of the first line
    if all(column.isdecimal() for column in wanted):
        columns = [int(column) for column in wanted]
    else:
        location, header = next(rows, (f"{file.name}:1", []))
        num_fields = len(header)
        columns = _find_columns(location, header, wanted, optional)
    min_fields = 1 + max(column for column in columns if column is not None)
    for location, row in rows:
        if len(row) < min_fields:
            raise exceptions.InvalidValue(
                f"{location} must have {min_fields} fields, got {len(row)}"
            )
        if num_fields is None:
            num_fields = len(row)
            # Columns without names have their numbers in a file of pandas.
            fields = [row[column] for column in columns]
            if len(fields) > 1 and fields == [*wanted]:
                continue
        # A text with an unquoted separator would be cut, and its rest would
        # be its label. Spreadsheets end rows with empty cells.
        if len(row) > num_fields and any(row[num_fields:]):
            _refuse_length(file, location, row, num_fields)
        yield (
            location,
            [None if column is None else row[column] for column in columns],
        )


def _find_columns(
    location: str,
    header: list[str],
    wanted: Sequence[str],
    optional: Sequence[str],
) -> list[int | None]:
    """The position of each column in a header; None for one that it lacks.

    Raises:
      ValueError: a wanted column is missing, or there are several of a name.
    """
    header = _match_case(header, (*wanted, *optional))
    for column in wanted:
        exceptions.require(
            column in header,
            f"{location}, the header, must have a column {column}; rename one, "
            "or number the columns of texts without a header from 0",
            ", ".join(header),
        )
    for column in (*wanted, *optional):
        exceptions.require(
            header.count(column) <= 1,
            f"{location}, the header, must have one column {column}; rename "
            "those that are not to be read",
            ", ".join(header),
        )
    return [
        header.index(column) if column in header else None
        for column in (*wanted, *optional)
    ]


def _refuse_length(
    file: epath.Path, location: str, row: list[str], num_fields: int
) -> None:
    """Raises ValueError for a row of more fields than the first line has."""
    remedy = (
        "put a field with a comma or a semicolon in double quotes, without a "
        "blank before them"
    )
    if _kind(file) == ".tsv":
        remedy = "a field of a .tsv may have no tab"
    raise exceptions.InvalidValue(
        f"{location} must have at most {num_fields} fields, as the first line "
        f"({remedy}), got {len(row)}, the last {row[-1]!r}"
    )


def _match_case(header: list[str], columns: Sequence[str]) -> list[str]:
    """The names of a header, in the spelling of `columns`: case is ignored."""
    plain = [name.strip().lower() for name in header]
    missing = {name.lower(): name for name in columns if name not in header}
    return [
        missing[key] if key in missing and plain.count(key) == 1 else name
        for name, key in zip(header, plain, strict=True)
    ]


def _tsv_rows(file: epath.Path) -> Iterator[Row]:
    for location, line in files.read_lines(file):
        yield location, line.split("\t")


def _csv_rows(file: epath.Path) -> Iterator[Row]:
    """Rows of a .csv, whose quoted fields may have line breaks.

    Semicolons separate its fields if its first line has semicolons and no
    comma, as spreadsheets write it where numbers have decimal commas.
    """
    _, first = next(files.read_lines(file), ("", ""))
    delimiter = ";" if ";" in first and "," not in first else ","
    with file.open("rb") as content:
        text = io.TextIOWrapper(content, "utf-8-sig", newline="")
        reader = csv.reader(text, strict=True, delimiter=delimiter)
        location = f"{file.name}:1"
        try:
            for row in reader:
                if row:
                    yield location, row
                location = f"{file.name}:{reader.line_num + 1}"
        except csv.Error as error:
            raise exceptions.InvalidValue(
                f"{location} must be CSV, got {error}"
            ) from error
        except UnicodeDecodeError:  # names no line, which read_lines does
            for _ in files.read_lines(file):
                pass
            raise  # not reached: a line is not UTF-8
