"""Tables as plain text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def text_table(rows: Iterable[Sequence[str]]) -> str:
    """Lines up cells: the first column to the left, the others to the right."""
    rows = list(rows)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(
            [first.ljust(widths[0])]
            + [c.rjust(w) for c, w in zip(others, widths[1:], strict=True)]
        )
        for first, *others in rows
    )
