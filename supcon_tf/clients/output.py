"""Answers as CSV, JSON, or JSON lines."""

from __future__ import annotations

import itertools
import json
import os
import sys
from collections.abc import Iterable, Iterator

from etils import epath

from supcon_tf import files
from supcon_tf import rows as rows_
from supcon_tf.clients import model

# What a classifier gives for each class -> what one of them is called.
_SCORES = {"probabilities": "probability", "similarities": "similarity"}


def write(
    rows: Iterable[model.Row],
    path: str | os.PathLike[str] | None = None,
    top: int = 5,
) -> None:
    """Writes rows as they come; the file appears once all are there.

    Args:
      rows: of `asking.answers`.
      path: ends in .csv, .json or .jsonl; local or gs://; what is there is
        replaced. None writes CSV to stdout.
      top: most probable classes that CSV has columns for.
    """
    if path is None:
        _to_stdout(csv_lines(rows, top))
        return
    path = epath.Path(path)
    as_json = {".json": json_document, ".jsonl": json_lines}
    suffix = path.suffix.lower()
    lines = as_json[suffix](rows) if suffix in as_json else csv_lines(rows, top)
    path.parent.mkdir(parents=True, exist_ok=True)
    with (
        files.replaced(path) as partial,
        partial.open("w", encoding="utf-8") as file,
    ):
        for line in lines:
            file.write(line)


def _to_stdout(lines: Iterable[str]) -> None:
    """Writes lines until the last, or until the reader of a pipe has enough."""
    try:
        for line in lines:
            sys.stdout.write(line)
            sys.stdout.flush()
    except BrokenPipeError:
        # Python writes what is left at its exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def csv_lines(rows: Iterable[model.Row], top: int = 5) -> Iterator[str]:
    """A header, and a line per row.

    Of a classifier: path or text, predicted_class ("" where an image may have
    several labels and has none), the highest probability (or similarity), a
    class and its probability for each of the `top`, error. Of
    others: path or text, a column for each number of their outputs, error.
    Classes of one name have their number in brackets. What a spreadsheet would
    compute begins with an apostrophe: see `rows.csv_line`.
    """
    rows = map(_with_distinct_names, rows)
    begun = []  # until the first answer tells the columns
    for row in rows:
        begun.append(row)
        if "error" not in row:
            break
    columns = list(_cells(begun[-1], top)) if begun else []
    whose = "text" if begun and "text" in begun[0] else "path"
    yield rows_.csv_line([whose, *columns, "error"])
    for row in itertools.chain(begun, rows):
        cells = [""] * len(columns)
        if "error" not in row:
            cells = _cells(row, top).values()
        yield rows_.csv_line([row[whose], *cells, row.get("error", "")])


def json_lines(rows: Iterable[model.Row]) -> Iterator[str]:
    """A line per row: an object of path or text, and all outputs or error.

    What a classifier gives for each class is an object by the classes' names,
    repeated ones with the number of the class in brackets.
    """
    for row in map(_with_distinct_names, rows):
        yield json.dumps(_named(row), ensure_ascii=False) + "\n"


def json_document(rows: Iterable[model.Row]) -> Iterator[str]:
    """The same objects as the items of a list."""
    start = "[\n"
    for line in json_lines(rows):
        yield start + line.rstrip("\n")
        start = ",\n"
    yield "\n]\n" if start == ",\n" else "[]\n"


def _with_distinct_names(row: model.Row) -> model.Row:
    """A row whose classes can be told apart by their names."""
    names = row.get("class_names", ())
    if len(set(names)) == len(names):
        return row
    told = rows_.distinct(names)
    changed = row | {"class_names": list(told)}
    for scores in _SCORES:
        if scores not in row:
            continue
        # Of equal ones the first, as in the model.
        ranked = sorted(range(len(names)), key=lambda i: -row[scores][i])
        # Of several labels, what is below the threshold has no name.
        if row.get("predicted_class"):
            changed["predicted_class"] = told[ranked[0]]
        if "top_classes" in row:
            top = zip(row["top_classes"], ranked, strict=False)
            changed["top_classes"] = [name and told[i] for name, i in top]
    return changed


def _cells(row: model.Row, top: int) -> dict[str, object]:
    """Columns and values of CSV, without the first and error."""
    for scores, score in _SCORES.items():
        if scores in row and "class_names" in row:
            # The predicted class, then the first of all, the best first.
            pairs = zip(row["class_names"], row[scores], strict=True)
            ranked = sorted(pairs, key=lambda pair: -pair[1])
            best, value = ranked[0]
            # Of several labels none, where the best is below the threshold.
            best = row.get("predicted_class", best)
            cells = {"predicted_class": best, score: _rounded(value)}
            for rank, (name, value) in enumerate(ranked[:top], 1):
                cells[f"top_{rank}_class"] = name
                cells[f"top_{rank}_{score}"] = _rounded(value)
            return cells
    others = ("path", "text", "error")
    outputs = {k: v for k, v in row.items() if k not in others}
    return dict(pair for item in outputs.items() for pair in _columns(*item))


def _columns(name: str, output: object) -> Iterator[tuple[str, object]]:
    """One column of a value, one per item of a list of them."""
    if not isinstance(output, list):
        yield name, _rounded(output)
        return
    for index, item in enumerate(output):
        yield from _columns(f"{name}_{index}", item)


def _named(row: model.Row) -> model.Row:
    """A row as it stands in JSON."""
    named = {name: _rounded(value) for name, value in row.items()}
    names = named.pop("class_names", ())
    for scores, score in _SCORES.items():
        if names and scores in named:
            values = named.pop(scores)
            named[score] = max(values)
            named[scores] = dict(zip(names, values, strict=True))
    return named


def _rounded(value: object) -> object:
    """Floats to nine digits, which tell all float32 apart."""
    if isinstance(value, list):
        return [_rounded(item) for item in value]
    return float(f"{value:.9g}") if isinstance(value, float) else value
