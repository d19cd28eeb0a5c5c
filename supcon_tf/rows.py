"""Rows of .csv, .tsv and .jsonl files, each with its place."""

from __future__ import annotations

import collections
import csv
import io
import json
from collections.abc import Iterable, Iterator, Sequence

from etils import epath

from supcon_tf import exceptions, files

# Of documents and masks, whose fields are longer than 128 KiB.
csv.field_size_limit(2**31 - 1)

SUFFIXES = (".tsv", ".csv", ".jsonl")
SEPARATOR = "|"  # of several values in one field

_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # how it begins in a spreadsheet

Row = tuple[str, list[str | None]]  # FILE:LINE and the fields


def distinct(names: Iterable[str]) -> tuple[str, ...]:
    """Names as keys of columns: repeated ones have their place in brackets.

    Two of ImageNet's classes are called crane.

    Example:
      >>> from supcon_tf import rows
      >>> rows.distinct(["crane", "dog", "crane"])
      ('crane [0]', 'dog', 'crane [2]')
    """
    names = tuple(names)
    while len(set(names)) < len(names):
        counts = collections.Counter(names)
        names = tuple(
            f"{name} [{place}]" if counts[name] > 1 else name
            for place, name in enumerate(names)
        )
    return names


def csv_line(cells: Iterable[object]) -> str:
    """A line of a .csv, with its end; no spreadsheet computes a text of it.

    A text that begins as a formula does, and is no number, gets an apostrophe
    before it: names of files and classes come from anybody.

    Example:
      >>> from supcon_tf import rows
      >>> print(rows.csv_line(["=1+1", "-1", -0.5, "a, b"]), end="")
      '=1+1,-1,-0.5,"a, b"
    """
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow(map(_as_text, cells))
    return line.getvalue()


def _as_text(cell: object) -> object:
    if not isinstance(cell, str) or not cell.startswith(_FORMULA):
        return cell
    try:
        float(cell)
    except ValueError:
        return f"'{cell}"
    return cell


def read_rows(
    path: epath.PathLike, wanted: Sequence[str], optional: Sequence[str] = ()
) -> Iterator[Row]:
    """FILE:LINE and the fields of some columns of every row, as written.

    A column is a name of the header, or of the fields of JSON lines; or a
    number from 0 in files without a header. Fields of a .tsv have no quotes, as
    those of GLUE; those of a .csv may. A file is read as it is needed.

    Args:
      path: of the file, local or gs://.
      wanted: columns that there must be.
      optional: columns, by name, that are None where there are none. Those of
        JSON lines may be lists, whose values come with `SEPARATOR` between.

    Raises:
      ValueError: there is no such file or column, a line is not UTF-8 or has
        too few fields; it names file and line.
    """
    file = epath.Path(files.expanded(path))
    exceptions.require(
        file.suffix in SUFFIXES and files.is_regular(file),
        f"{path} must be a file {', '.join(SUFFIXES)}",
        "no file" if file.suffix in SUFFIXES else f"one of {file.suffix!r}",
    )
    read = _json_rows if file.suffix == ".jsonl" else _table_rows
    return read(file, wanted, optional)


def _json_rows(
    file: epath.Path, wanted: Sequence[str], optional: Sequence[str]
) -> Iterator[Row]:
    for place, line in files.read_lines(file):
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise exceptions.InvalidValue(
                f"{place} must be JSON, got {error}"
            ) from error
        known = row if isinstance(row, dict) else {}
        for column in wanted:
            if type(known.get(column)) not in (str, int):
                exceptions.require(
                    False,
                    f"{place} must have a {column}, a string or an integer",
                    known.get(
                        column, f"the fields {', '.join(known) or 'none'}"
                    ),
                )
        fields = [str(known[column]) for column in wanted]
        for column in optional:
            if column not in known:
                fields.append(None)
                continue
            value = known[column]
            several = value if isinstance(value, list) else [value]
            exceptions.require(
                all(type(one) in (str, int, float) for one in several),
                f"{place} must have strings or numbers for {column}",
                value,
            )
            fields.append(SEPARATOR.join(map(str, several)))
        yield place, fields


def _table_rows(
    file: epath.Path, wanted: Sequence[str], optional: Sequence[str]
) -> Iterator[Row]:
    rows = _tsv_rows(file) if file.suffix == ".tsv" else _csv_rows(file)
    if all(column.isdigit() for column in wanted):
        columns = [int(column) for column in wanted]
    else:
        place, header = next(rows, (f"{file.name}:1", []))
        header = _as_wanted(header, (*wanted, *optional))
        for column in wanted:
            exceptions.require(
                column in header,
                f"{place}, the header, must have a column {column}; columns of "
                "a file without one are numbers from 0",
                ", ".join(header),
            )
        columns = [header.index(column) for column in wanted]
        columns += [header.index(x) if x in header else None for x in optional]
    least = 1 + max(column for column in columns if column is not None)
    for place, row in rows:
        if len(row) < least:
            exceptions.require(
                False, f"{place} must have {least} fields", len(row)
            )
        yield (
            place,
            [None if column is None else row[column] for column in columns],
        )


def _as_wanted(header: list[str], columns: Sequence[str]) -> list[str]:
    """The names of a header; those that differ in capitals alone are ours."""
    plain = [name.strip().lower() for name in header]
    ours = {name.lower(): name for name in columns if name not in header}
    return [
        ours[low] if low in ours and plain.count(low) == 1 else name
        for name, low in zip(header, plain, strict=True)
    ]


def _tsv_rows(file: epath.Path) -> Iterator[Row]:
    for place, line in files.read_lines(file):
        yield place, line.split("\t")


def _csv_rows(file: epath.Path) -> Iterator[Row]:
    """Rows of a .csv, whose quoted fields may hold ends of lines.

    Semicolons separate its fields if its first line has such and no comma, as
    tables write it where numbers have decimal commas.
    """
    _, first = next(files.read_lines(file), ("", ""))
    delimiter = ";" if ";" in first and "," not in first else ","
    with file.open("rb") as content:
        text = io.TextIOWrapper(content, "utf-8-sig", newline="")
        reader = csv.reader(text, strict=True, delimiter=delimiter)
        place = f"{file.name}:1"
        try:
            for row in reader:
                if row:
                    yield place, row
                place = f"{file.name}:{reader.line_num + 1}"
        except csv.Error as error:
            raise exceptions.InvalidValue(
                f"{place} must be CSV, got {error}"
            ) from error
        except UnicodeDecodeError:  # of a block of the file
            for _ in files.read_lines(file):
                pass
            raise  # not reached: one of the lines is not UTF-8
