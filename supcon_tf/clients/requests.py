"""Requests to a model: files or texts in batches, its answers in order."""

from __future__ import annotations

import collections
import math
import pathlib
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from typing import TypeVar

from supcon_tf.clients import model, paths

Request = Callable[[Sequence[bytes]], list[model.Row]]
Result = TypeVar("Result")


def answers(
    request: Request,
    files: Sequence[pathlib.Path | paths.Text],
    *,
    batch_size: int,
    requests_in_flight: int = 2,
) -> Iterator[model.Row]:
    """The answers of a model to image files, or texts.

    Where the model refuses a request, its files are sent again one by one, so
    that only the files that are refused alone have no outputs. Outputs that are
    not all finite are an error too: a network of diverged weights answers so,
    and JSON has no such numbers.

    Args:
      request: from the bytes of some files to the model's outputs, a row each.
      files: image files, or texts.
      batch_size: files per request.
      requests_in_flight: requests that are read or answered at a time.

    Yields:
      One row per file, in their order: `path`, or `text`, and the outputs, or
      `error`, the reason why there are none.

    Raises:
      RuntimeError: a server is not there, or answers with another error.
    """
    pending = collections.deque()
    for start in range(0, len(files), batch_size):
        batch = files[start : start + batch_size]
        pending.append(_start(lambda batch=batch: _rows(request, batch)))
        if len(pending) == requests_in_flight:
            yield from pending.popleft().result()
    while pending:
        yield from pending.popleft().result()


def _rows(
    request: Request, batch: Sequence[pathlib.Path | paths.Text]
) -> list[model.Row]:
    """The rows of a batch of files; an unreadable file has an error."""
    contents, rows = {}, {}
    for file in batch:
        if not isinstance(file, paths.Text) and not (
            file.is_file() or file.is_dir() or not file.exists()
        ):  # a pipe or a device might be read without end
            rows[file] = {"error": "no regular file"}
            continue
        try:
            contents[file] = file.read_bytes()
        except OSError as error:
            rows[file] = {"error": error.strerror or str(error)}
    if contents:
        answers = outputs(request, list(contents.values()))
        rows |= zip(contents, answers, strict=True)
    return [_key(file) | dict(sorted(rows[file].items())) for file in batch]


def _checked(row: model.Row) -> model.Row:
    """The outputs of a file, or the error that they are not all finite."""
    names = [name for name, value in row.items() if not _is_finite(value)]
    if not names:
        return row
    return {"error": f"the model's {', '.join(names)} must be finite numbers"}


def _is_finite(value: object) -> bool:
    """Whether no number of an output is infinite or not a number."""
    if isinstance(value, list):
        return all(map(_is_finite, value))
    return not isinstance(value, float) or math.isfinite(value)


def _key(file: pathlib.Path | paths.Text) -> model.Row:
    """The first column of a row: the text, or the path of the file."""
    column = "text" if isinstance(file, paths.Text) else "path"
    # A name that is no UTF-8 cannot be written.
    return {column: str(file).encode("utf-8", "replace").decode()}


def outputs(request: Request, contents: Sequence[bytes]) -> list[model.Row]:
    """The outputs or the error of each file; a refused batch is split.

    Outputs that are not all finite are an error.
    """
    try:
        return [*map(_checked, request(contents))]
    except model.Refused as error:
        if len(contents) == 1:
            return [{"error": str(error)}]
    return [outputs(request, [content])[0] for content in contents]


def _start(function: Callable[[], Result]) -> futures.Future[Result]:
    """Calls a function in a thread that does not keep the process alive.

    Threads of an executor do: an error, or Ctrl-C, would wait for answers.
    """
    future = futures.Future()

    def work() -> None:
        try:
            future.set_result(function())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    return future
