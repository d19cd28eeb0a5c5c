"""Answers as CSV, JSON, or JSON lines."""

from __future__ import annotations

import itertools
import json
import os
import sys
from collections.abc import Iterable, Iterator

from etils import epath

from supcon_tf import exceptions
from supcon_tf.clients import model
from supcon_tf.disk import files
from supcon_tf.disk import rows as rows_
from supcon_tf.host import streams

_LONGEST_NAME = 240  # of a file that is written under a longer one first
# Output of a classifier for all classes -> column of the score of one class.
_SCORES = {"probabilities": "probability", "similarities": "similarity"}


def write(
    rows: Iterable[model.Row],
    path: str | os.PathLike[str] | None = None,
    top: int = 5,
) -> None:
    """Writes rows as they come; the file appears with the last of them.

    Args:
      rows: of `requests.answers`.
      path: ends in .csv, .json or .jsonl; local or gs://; an existing file is
        replaced. None writes CSV to stdout.
      top: most probable classes that CSV has columns for.
    """
    if path is None:
        _to_stdout(csv_lines(rows, top))
        return
    path = epath.Path(path)
    writers = {".json": json_document, ".jsonl": json_lines}
    suffix = path.suffix.lower()
    lines = writers[suffix](rows) if suffix in writers else csv_lines(rows, top)
    path.parent.mkdir(parents=True, exist_ok=True)
    with (
        files.replaced(path) as partial,
        partial.open("w", encoding="utf-8") as file,
    ):
        for line in lines:
            file.write(line)


def check(path: str | os.PathLike[str], overwrite: bool) -> None:
    """Checks early that a file of answers can be written: --output.

    Raises:
      ValueError: the name is too long, is of a directory, or of a file that
        exists while `overwrite` is False; or the folder cannot be written.
    """
    path = epath.Path(path)
    length = len(os.fsencode(path.name))
    exceptions.require(
        length <= _LONGEST_NAME,
        f"--output must have a name of at most {_LONGEST_NAME} bytes",
        length,
    )
    exceptions.require(
        not path.is_dir(), "--output must be a file", f"{path}, a directory"
    )
    if path.exists() and not overwrite:
        raise exceptions.InvalidValue(
            f"{path} exists already; choose another --output, or replace it "
            "with --overwrite"
        )
    files.check_writable("output", path.parent)


def _to_stdout(lines: Iterable[str]) -> None:
    """Writes lines to the last, or until the reader of a pipe closes it."""
    with streams.lasting_output():
        for line in lines:
            sys.stdout.write(line)
            sys.stdout.flush()
            if sys.stdout.is_silent:
                break


def csv_lines(rows: Iterable[model.Row], top: int = 5) -> Iterator[str]:
    """A header, and a line per row.

    Of a classifier: path or text, predicted_class ("" where an image may have
    several labels and has none), the highest probability (or similarity), a
    class and its probability for each of the `top`, error. Of
    others: path or text, a column for each number of their outputs, error.
    A cell that a spreadsheet would compute begins with an apostrophe: see
    `rows.csv_line`.
    """
    rows = iter(rows)
    head = []  # until the first answer tells the columns
    for row in rows:
        head.append(row)
        if "error" not in row:
            break
    columns = list(_cells(head[-1], top)) if head else []
    key = next(iter(head[0])) if head else "path"
    yield rows_.csv_line([key, *columns, "error"])
    for row in itertools.chain(head, rows):
        cells = [""] * len(columns)
        if "error" not in row:
            cells = _cells(row, top).values()
        yield rows_.csv_line([row[key], *cells, row.get("error", "")])


def json_lines(rows: Iterable[model.Row]) -> Iterator[str]:
    """A line per row: an object of path or text, and all outputs or error.

    The scores of a classifier are an object by class name; an export gives
    classes of equal names different ones.
    """
    for row in rows:
        yield json.dumps(_json_object(row), ensure_ascii=False) + "\n"


def json_document(rows: Iterable[model.Row]) -> Iterator[str]:
    """The same objects as the items of a list."""
    start = "[\n"
    for line in json_lines(rows):
        yield start + line.rstrip("\n")
        start = ",\n"
    yield "\n]\n" if start == ",\n" else "[]\n"


def _cells(row: model.Row, top: int) -> dict[str, object]:
    """The cells of a row of CSV by column, without the first and `error`.

    The first is path or text; beside a path, a model may have an output text.
    """
    for scores, score in _SCORES.items():
        if _has_scores(row, scores):
            # The predicted class, then the `top` classes, the best first.
            pairs = zip(row["class_names"], row[scores], strict=True)
            ranked = sorted(pairs, key=lambda pair: -pair[1])
            best, value = ranked[0]
            # "" for several labels, where the best is below the threshold.
            best = row.get("predicted_class", best)
            cells = {"predicted_class": best, score: _rounded(value)}
            for rank, (name, value) in enumerate(ranked[:top], 1):
                cells[f"top_{rank}_class"] = name
                cells[f"top_{rank}_{score}"] = _rounded(value)
            return cells
    return dict(
        cell
        for name, output in [*row.items()][1:]
        if name != "error"
        for cell in _columns(name, output)
    )


def _columns(name: str, output: object) -> Iterator[tuple[str, object]]:
    """A column per number of an output, which may be a nested list."""
    if not isinstance(output, list):
        yield name, _rounded(output)
        return
    for index, item in enumerate(output):
        yield from _columns(f"{name}_{index}", item)


def _json_object(row: model.Row) -> model.Row:
    """The row with scores by class name, for JSON."""
    fields = {name: _rounded(value) for name, value in row.items()}
    for scores, score in _SCORES.items():
        if _has_scores(row, scores):
            fields.pop("class_names", None)
            values = fields.pop(scores)
            fields[score] = max(values)
            fields[scores] = dict(zip(row["class_names"], values, strict=True))
    return fields


def _has_scores(row: model.Row, scores: str) -> bool:
    """Whether a row has a score for each class, as our exports give them.

    A model of another program may have outputs of the same names.
    """
    names, values = row.get("class_names"), row.get(scores)
    are_lists = isinstance(names, list) and isinstance(values, list)
    return are_lists and 0 < len(names) == len(values)


def _rounded(value: object) -> object:
    """Floats of nine digits, which tell all float32 values apart."""
    if isinstance(value, list):
        return [_rounded(item) for item in value]
    return float(f"{value:.9g}") if isinstance(value, float) else value
