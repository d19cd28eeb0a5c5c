"""A page of answers: each query beside its most similar rows, as images."""

from __future__ import annotations

import contextlib
import os
import pathlib
import unicodedata
from collections.abc import Sequence

import jinja2
import tensorflow as tf

from supcon_tf import data
from supcon_tf.disk import files, image_names
from supcon_tf.gallery.answers import Answer, Refusal
from supcon_tf.reports import figures

_TEMPLATE = pathlib.Path(__file__).parent / "page.html"
_SIDE = 96  # pixels of a thumbnail


def write(
    path: str | os.PathLike[str],
    queries: Sequence[str],
    answers: Sequence[Answer | Refusal],
    are_texts: bool = False,
) -> None:
    """Writes one HTML file, with the images inside.

    Args:
      path: of the page; an existing file is replaced.
      queries: paths of images, or texts.
      answers: one per query, or the reason why there is none.
      are_texts: whether the queries are texts, which have no images.
    """
    template = jinja2.Template(
        _TEMPLATE.read_text(), autoescape=True, trim_blocks=True
    )
    page = template.render(
        rows=list(zip(queries, answers, strict=True)),
        thumbnail=(lambda _: None) if are_texts else _thumbnail,
        readable=image_names.readable,
    )
    files.write_atomically(path, page)


def _thumbnail(path: str) -> str | None:
    """The data URI of the middle of an image; None where there is none."""
    # An id has accents in one form, the name of its file perhaps in the other.
    forms = path, unicodedata.normalize("NFD", path)
    # Users' own ids may be addresses of the web, which have no file system.
    with contextlib.suppress(KeyError, tf.errors.OpError, ValueError):
        file = next(filter(files.is_regular, forms), None)
        if file is None:
            return None
        view = data.decode_central_view(
            tf.io.read_file(os.fsencode(file)), _SIDE
        )
        return figures.data_uri(view.numpy())
    return None
