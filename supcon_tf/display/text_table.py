"""Tables as plain text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def text_table(rows: Iterable[Sequence[str]]) -> str:
    """Lines up cells: the first column to the left, the others to the right."""
    return "\n".join(map("  ".join, lined_up(rows)))


def lined_up(
    rows: Iterable[Sequence[str]], left: int = 1
) -> list[tuple[str, ...]]:
    """Pads cells to the width of their column: `left` columns to the left."""
    columns = []
    for index, column in enumerate(zip(*rows, strict=True)):
        pad = str.ljust if index < left else str.rjust
        width = max(map(len, column))
        columns.append([pad(cell, width) for cell in column])
    return [*zip(*columns, strict=True)]
