"""A page of answers: each query beside its most similar rows, as images."""

from __future__ import annotations

import base64
import io
import os
import pathlib
from collections.abc import Sequence

import jinja2
import PIL.Image

from supcon_tf.disk import files
from supcon_tf.gallery.answers import Answer

_TEMPLATE = pathlib.Path(__file__).parent / "page.html"
_SIDE = 96  # pixels of a thumbnail


def write(
    path: str | os.PathLike[str],
    queries: Sequence[str],
    answers: Sequence[Answer],
) -> None:
    """Writes one HTML file, with the images inside.

    Args:
      path: of the page; an existing file is replaced.
      queries: paths of images, or texts.
      answers: one per query.
    """
    template = jinja2.Template(
        _TEMPLATE.read_text(), autoescape=True, trim_blocks=True
    )
    page = template.render(
        rows=list(zip(queries, answers, strict=True)), thumbnail=_thumbnail
    )
    files.write_atomically(path, page)


def _thumbnail(path: str) -> str | None:
    """The data URI of a small copy of an image; None where there is none."""
    try:
        with PIL.Image.open(path) as image:
            small = image.convert("RGB")
    except (OSError, ValueError, PIL.Image.DecompressionBombError):
        return None
    small.thumbnail((_SIDE, _SIDE))
    contents = io.BytesIO()
    small.save(contents, "JPEG", quality=80)
    encoded = base64.b64encode(contents.getvalue()).decode()
    return f"data:image/jpeg;base64,{encoded}"
