"""Requests: files in batches to a model, its answers in their order."""

from __future__ import annotations

import collections
import pathlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent import futures
from typing import TypeVar

from absl import logging

from supcon_tf.clients import model

_FIRST_WAIT = 1.0  # seconds; each further one is twice as long
Item = TypeVar("Item")
Result = TypeVar("Result")


def answers(
    asked: model.Model,
    signature: model.Signature,
    files: Sequence[pathlib.Path],
    *,
    batch_size: int,
    requests_in_flight: int = 2,
    retries: int = 3,
) -> Iterator[model.Row]:
    """What a model answers about image files.

    A file that the model refuses does not take the others of its request with
    it: that request is asked again in halves. So is one that is too much for
    the server, down to a single image, which waits.

    Args:
      asked: the model.
      signature: one of its `signatures`.
      files: image files.
      batch_size: images per request.
      requests_in_flight: how many are read or answered at a time.
      retries: how often a request is repeated that nobody answers, or one
        image that is too much for now, after 1, 2, 4, ... seconds.

    Yields:
      One row per file, in their order: `path` and the outputs, or `error`, the
      reason why there are none.

    Raises:
      Unavailable: the model stays away, or overloaded.
      RuntimeError: any other error of a server.
    """

    def ask(contents: Sequence[bytes]) -> list[model.Row]:
        return _in_halves(
            lambda part: patiently(
                lambda: asked.predict(signature, part),
                retries,
                divisible=len(part) > 1,
            ),
            contents,
        )

    batches = (
        files[start : start + batch_size]
        for start in range(0, len(files), batch_size)
    )
    for rows in _ahead(
        lambda batch: _answer(ask, batch), batches, requests_in_flight
    ):
        yield from rows


def patiently(
    request: Callable[[], Result], retries: int, divisible: bool = False
) -> Result:
    """Makes a request, and makes it again while nobody answers.

    Args:
      request: the call.
      retries: how often it is repeated, after 1, 2, 4, ... seconds.
      divisible: whether less can be asked of a server that is overloaded.

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


def _answer(
    ask: Callable[[Sequence[bytes]], list[model.Row]],
    batch: Sequence[pathlib.Path],
) -> list[model.Row]:
    """Rows of a batch of files, some of which may not be readable."""
    read, rows = {}, {}
    for index, file in enumerate(batch):
        try:
            read[index] = file.read_bytes()
        except OSError as error:
            rows[index] = {"error": error.strerror or str(error)}
    rows |= zip(read, ask(list(read.values())) if read else (), strict=True)
    return [
        # A name that is no UTF-8 cannot be written.
        {"path": str(file).encode("utf-8", "replace").decode()}
        | dict(sorted(rows[index].items()))
        for index, file in enumerate(batch)
    ]


def _in_halves(
    ask: Callable[[Sequence[bytes]], list[model.Row]],
    contents: Sequence[bytes],
) -> list[model.Row]:
    """Rows of all that is not refused, found by bisection.

    Raises:
      Overloaded: a single image is too much for the server.
    """
    try:
        return ask(contents)
    except model.Refused as error:
        if len(contents) == 1:
            if isinstance(error, model.Overloaded):
                raise
            return [{"error": str(error)}]
    half = len(contents) // 2
    return [
        row
        for part in (contents[:half], contents[half:])
        for row in _in_halves(ask, part)
    ]


def _ahead(
    function: Callable[[Item], Result], items: Iterable[Item], at_once: int
) -> Iterator[Result]:
    """Results in the order of the items, `at_once` of them being made."""
    made = collections.deque()
    for item in items:
        made.append(_start(function, item))
        if len(made) == at_once:
            yield made.popleft().result()
    while made:
        yield made.popleft().result()


def _start(
    function: Callable[[Item], Result], item: Item
) -> futures.Future[Result]:
    """Calls a function in a thread that does not keep the process alive.

    Those of an executor do: an error, or Ctrl-C, would wait for answers.
    """
    future = futures.Future()

    def work() -> None:
        try:
            future.set_result(function(item))
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    return future
