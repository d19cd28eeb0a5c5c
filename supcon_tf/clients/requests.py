"""Requests: files or texts in batches to a model, its answers in order."""

from __future__ import annotations

import collections
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
    """What a model answers about image files, or texts.

    A file that the model refuses does not take the others of its request with
    it: they are asked about again one by one.

    Args:
      request: asks the model about the bytes of some files.
      files: image files, or texts.
      batch_size: how many per request.
      requests_in_flight: how many are read or answered at a time.

    Yields:
      One row per file, in their order: `path`, or `text`, and the outputs, or
      `error`, the reason why there are none.

    Raises:
      RuntimeError: a server is not there, or answers with another error.
    """
    begun = collections.deque()
    for start in range(0, len(files), batch_size):
        batch = files[start : start + batch_size]
        begun.append(_start(lambda batch=batch: _rows(request, batch)))
        if len(begun) == requests_in_flight:
            yield from begun.popleft().result()
    while begun:
        yield from begun.popleft().result()


def _rows(
    request: Request, batch: Sequence[pathlib.Path | paths.Text]
) -> list[model.Row]:
    """Rows of a batch of files, some of which may not be readable."""
    read, rows = {}, {}
    for file in batch:
        if not isinstance(file, paths.Text) and not (
            file.is_file() or file.is_dir() or not file.exists()
        ):  # a pipe or a device might be read without end
            rows[file] = {"error": "no regular file"}
            continue
        try:
            read[file] = file.read_bytes()
        except OSError as error:
            rows[file] = {"error": error.strerror or str(error)}
    if read:
        answered = _answered(request, list(read.values()))
        rows |= zip(read, answered, strict=True)
    return [_named(file) | dict(sorted(rows[file].items())) for file in batch]


def _named(file: pathlib.Path | paths.Text) -> model.Row:
    """What tells whose row it is."""
    column = "text" if isinstance(file, paths.Text) else "path"
    # A name that is no UTF-8 cannot be written.
    return {column: str(file).encode("utf-8", "replace").decode()}


def _answered(request: Request, contents: Sequence[bytes]) -> list[model.Row]:
    """Rows of all that is not refused; what is refused is asked one by one."""
    try:
        return request(contents)
    except model.Refused as error:
        if len(contents) == 1:
            return [{"error": str(error)}]
    return [_answered(request, [content])[0] for content in contents]


def _start(function: Callable[[], Result]) -> futures.Future[Result]:
    """Calls a function in a thread that does not keep the process alive.

    Those of an executor do: an error, or Ctrl-C, would wait for answers.
    """
    future = futures.Future()

    def work() -> None:
        try:
            future.set_result(function())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    return future
