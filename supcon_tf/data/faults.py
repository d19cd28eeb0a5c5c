"""Errors of files that change while a tool reads them."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator

import tensorflow as tf

from supcon_tf import exceptions
from supcon_tf.data import sources

# TensorFlow's errors of damaged or missing files; others, such as of exhausted
# memory, have other causes.
_FILE_ERRORS = (
    tf.errors.DataLossError,
    tf.errors.FailedPreconditionError,
    tf.errors.InvalidArgumentError,
    tf.errors.NotFoundError,
    tf.errors.OutOfRangeError,
    tf.errors.PermissionDeniedError,
    tf.errors.UnknownError,
)
# A path and the system's reason in such an error.
_SYSTEM_REASON = re.compile(
    r"\S; (No such file|Input/output error|Permission denied|Stale |"
    r"Not a directory|Is a directory|Transport endpoint)"
)


@contextlib.contextmanager
def reading(several: Callable[[], Iterable[sources.Source]]) -> Iterator[None]:
    """A context in which an error of reading names the file.

    Args:
      several: returns the sources that are read; called after an error.

    Example:
      >>> from supcon_tf import data
      >>> photos = data.load("folder", "train", "photos")
      >>> with data.reading(lambda: [photos]):
      ...     images = data.make_examples(photos, 4, image_size=16)
      ...     batch, labels = next(iter(images))

    Raises:
      ValueError: a file has changed since its source was made.
    """
    try:
        yield
    except _FILE_ERRORS as error:
        faults = [text for source in several() for text in source.faults()]
        reason = exceptions.reason(error.message)
        if not faults and (
            isinstance(error, tf.errors.DataLossError)
            or _SYSTEM_REASON.search(reason)
        ):
            faults = [reason]
        if not faults:
            raise
        raise exceptions.FileLost(
            "the files of the data must stay as they are while they are read, "
            f"got {exceptions.listed(faults)}"
        ) from error
