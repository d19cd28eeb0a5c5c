"""Files that change while a tool reads them: deleted, cut, out of reach."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator

import tensorflow as tf

from supcon_tf import exceptions
from supcon_tf.data import sources

# What TensorFlow raises where a file is not as it should be; others, such as
# of memory that runs out, have other causes.
_OF_FILES = (
    tf.errors.DataLossError,
    tf.errors.FailedPreconditionError,
    tf.errors.InvalidArgumentError,
    tf.errors.NotFoundError,
    tf.errors.OutOfRangeError,
    tf.errors.PermissionDeniedError,
    tf.errors.UnknownError,
)
# How the system's reason stands behind a path in such an error.
_BY_SYSTEM = re.compile(
    r"\S; (No such file|Input/output error|Permission denied|Stale |"
    r"Not a directory|Is a directory|Transport endpoint)"
)


@contextlib.contextmanager
def reading(several: Callable[[], Iterable[sources.Source]]) -> Iterator[None]:
    """Names the file where one can no longer be read while it is entered.

    Args:
      several: what is read, asked for where something fails.

    Example:
      >>> from supcon_tf import data
      >>> photos = data.load("folder", "train", "photos")
      >>> with data.reading(lambda: [photos]):
      ...     images = data.make_examples(photos, 4, image_size=16)
      ...     batch, labels = next(iter(images))

    Raises:
      ValueError: a file is not as it was when its source was made.
    """
    try:
        yield
    except _OF_FILES as error:
        told = [text for source in several() for text in source.faults()]
        why = exceptions.reason(error.message)
        if not told and (
            isinstance(error, tf.errors.DataLossError) or _BY_SYSTEM.search(why)
        ):
            told = [why]
        if not told:
            raise
        raise exceptions.FileLost(
            "the files of the data must stay as they are while they are read, "
            f"got {exceptions.listed(told)}"
        ) from error
