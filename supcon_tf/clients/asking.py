"""Requests: files or texts in batches to a model, its answers in order."""

from __future__ import annotations

import collections
import pathlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from typing import TypeVar

from absl import logging

from supcon_tf.clients import model, paths

_FIRST_WAIT = 1.0  # seconds; each further one is twice as long
Request = Callable[[Sequence[bytes]], list[model.Row]]
Result = TypeVar("Result")


def answers(
    request: Request,
    files: Sequence[pathlib.Path | paths.Text],
    *,
    batch_size: int,
    requests_in_flight: int = 2,
    retries: int = 3,
) -> Iterator[model.Row]:
    """What a model answers about image files, or texts.

    A file that the model refuses does not take the others of its request with
    it: that request is asked again in halves. So is one that is too much for
    the server, down to a single image, which waits.

    Args:
      request: asks the model about the bytes of some files.
      files: image files, or texts.
      batch_size: how many per request.
      requests_in_flight: how many are read or answered at a time.
      retries: how often a request is repeated that nobody answers, or one
        image that is too much for now, after 1, 2, 4, ... seconds.

    Yields:
      One row per file, in their order: `path`, or `text`, and the outputs, or
      `error`, the reason why there are none.

    Raises:
      Unavailable: the model stays away, or overloaded.
      RuntimeError: any other error of a server.
    """
    begun = collections.deque()
    for start in range(0, len(files), batch_size):
        batch = files[start : start + batch_size]
        begun.append(_start(lambda batch=batch: _rows(request, batch, retries)))
        if len(begun) == requests_in_flight:
            yield from begun.popleft().result()
    while begun:
        yield from begun.popleft().result()


def patiently(
    request: Callable[[], Result], retries: int, divisible: bool = False
) -> Result:
    """Makes a request, and makes it again while nobody answers.

    Waits 1, 2, 4, ... seconds before it repeats the request, `retries` times.
    A request is `divisible` where less can be asked.

    Raises:
      Overloaded: at once, where less can be asked.
      Unavailable: nobody answered the last one either.
    """
    for retry in range(retries):
        try:
            return request()
        except model.Unavailable as error:
            if divisible and isinstance(error, model.Overloaded):
                raise
            wait = _FIRST_WAIT * 2**retry
            logging.warning("%s; asking again in %g s", error, wait)
            time.sleep(wait)
    return request()


def _rows(
    request: Request, batch: Sequence[pathlib.Path | paths.Text], retries: int
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
        answered = _in_halves(request, list(read.values()), retries)
        rows |= zip(read, answered, strict=True)
    return [_named(file) | dict(sorted(rows[file].items())) for file in batch]


def _named(file: pathlib.Path | paths.Text) -> model.Row:
    """What tells whose row it is."""
    column = "text" if isinstance(file, paths.Text) else "path"
    # A name that is no UTF-8 cannot be written.
    return {column: str(file).encode("utf-8", "replace").decode()}


def _in_halves(
    request: Request, contents: Sequence[bytes], retries: int
) -> list[model.Row]:
    """Rows of all that is not refused, found by bisection."""
    half = len(contents) // 2
    try:
        return patiently(lambda: request(contents), retries, half > 0)
    except model.Refused as error:
        if not half:
            if isinstance(error, model.Overloaded):
                raise
            return [{"error": str(error)}]
    parts = contents[:half], contents[half:]
    return sum((_in_halves(request, part, retries) for part in parts), [])


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
