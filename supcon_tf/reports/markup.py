"""HTML elements.

An argument is HTML where its description says so, and plain text elsewhere,
which is escaped here.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Mapping, Sequence

from supcon_tf import palette

# The marks in a box of 12 x 12.
_MARKS = {
    "o": "M6 1.5a4.5 4.5 0 1 0 .01 0z",
    "^": "M6 1L11 10.5H1z",
    "s": "M2 2h8v8H2z",
    "D": "M6 .5L11.5 6 6 11.5.5 6z",
    "v": "M6 11L1 1.5h10z",
    "P": "M4 1h4v3h3v4H8v3H4V8H1V4h3z",
    "X": "M3.5 1L6 3.5 8.5 1 11 3.5 8.5 6 11 8.5 8.5 11 6 8.5 3.5 11 1 8.5 3.5"
    " 6 1 3.5z",
}


def escape(text: object) -> str:
    """Text as it may stand in elements and in quoted attributes."""
    return html.escape(str(text), quote=True)


def name(text: object) -> str:
    """A name from data: escaped, and isolated if written right to left."""
    return f"<bdi>{escape(text)}</bdi>"


def path(text: object) -> str:
    """A path from data, as a name that is broken after a slash first."""
    parts = escape(text).replace("/", "/<wbr>")
    return f'<bdi class="path">{parts}</bdi>'


def code(text: object) -> str:
    """A flag, file or command inside a sentence."""
    return f"<code>{escape(text)}</code>"


def command(line: str) -> str:
    """A command line that is broken between its arguments only."""
    words = " ".join(f"<span>{escape(word)}</span>" for word in line.split(" "))
    return f"<code>{words}</code>"


def figure(title: str, content: str, note: str = "", key: str = "") -> str:
    """A figure with its caption above it.

    Args:
      title: a few words, HTML.
      content: the drawing.
      note: how to read it, HTML.
      key: further class names.
    """
    note = f" <span>{note}</span>" if note else ""
    return (
        f'<figure class="panel {key}"><figcaption><b>{title}</b>{note}'
        f"</figcaption>{content}</figure>"
    )


def panels(contents: Iterable[str]) -> str:
    """Figures side by side, as many as fit."""
    return f'<div class="panels">{"".join(contents)}</div>'


def table(
    head: Sequence[str],
    rows: Iterable[Sequence[str]],
    label: str,
    key: str = "",
) -> str:
    """A table in a box of its own, which scrolls where the page is narrow.

    Args:
      head: cells of the head line, HTML.
      rows: cells of each row, HTML; the first names the row.
      label: what the table shows, for those who do not see it.
      key: further class names.
    """
    top = "".join(f'<th scope="col">{cell}</th>' for cell in head)
    lines = []
    for first, *others in rows:
        cells = "".join(f"<td>{cell}</td>" for cell in others)
        lines.append(f'<tr><th scope="row">{first}</th>{cells}</tr>')
    return scroll_box(
        f'<table class="{key}"><thead><tr>{top}</tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table>",
        label,
    )


def scroll_box(content: str, label: str) -> str:
    """A box that scrolls sideways by itself, by keyboard too."""
    return (
        f'<div class="scroll" role="region" tabindex="0" '
        f'aria-label="{escape(label)}">{content}</div>'
    )


def details(summary: str, content: str) -> str:
    """What is there for those who ask; `summary` is HTML."""
    return f"<details><summary>{summary}</summary>{content}</details>"


def mark(index: int) -> str:
    """The colour and mark of a class or run, drawn in a line of text."""
    shape = _MARKS[palette.MARKERS[index % len(palette.MARKERS)]]
    color = palette.COLORS[index % len(palette.COLORS)]
    return (
        '<svg class="mark" viewBox="0 0 12 12" aria-hidden="true">'
        f'<path fill="{color}" d="{shape}"/></svg>'
    )


def legend(names: Mapping[int, str]) -> str:
    """Names behind the marks of their indices."""
    items = "".join(
        f"<li>{mark(index)}{name(text)}</li>" for index, text in names.items()
    )
    return f'<ul class="legend">{items}</ul>'


def number(value: float | None, digits: int = 3) -> str:
    """A number with a true minus; a dash for one that is absent."""
    if value is None or not math.isfinite(value):
        return "–"
    return f"{value:,.{digits}f}".replace("-", "−")


def percent(share: float | None, digits: int = 1) -> str:
    """A share as a percentage."""
    if share is None or not math.isfinite(share):
        return "–"
    return f"{number(100 * share, digits)}\N{NO-BREAK SPACE}%"
