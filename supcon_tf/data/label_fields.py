"""Fields of a table that hold the label of an image, or several."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from supcon_tf import exceptions, rows

# What else people put between several labels.
_OTHER_SEPARATORS = (";", ",", " ")
_SHOWN = 3  # How many fields a message lists.


def split(field: str, is_multi_label: bool) -> list[str]:
    """The labels that a field holds."""
    if not is_multi_label:
        return [field]
    return [*filter(None, map(str.strip, field.split(rows.SEPARATOR)))]


def hot(
    labels_of: Sequence[Sequence[str]], number: dict[str, int]
) -> np.ndarray:
    """Which of the numbered labels fields hold, [fields, labels] uint8."""
    has_label = np.zeros([len(labels_of), len(number)], np.uint8)
    for row, labels in enumerate(labels_of):
        has_label[row, [number[x] for x in labels if x in number]] = 1
    return has_label


def check_separator(
    path: str, fields: Sequence[str], is_multi_label: bool
) -> None:
    """Raises ValueError for several labels that something else separates.

    They would become one new class. A mark separates labels if its parts are
    fewer than the different fields, or if the parts of one field stand alone
    in others; not where the right separator is used anywhere.
    """
    right = rows.SEPARATOR
    if is_multi_label and any(right in field for field in fields):
        return
    marks = _OTHER_SEPARATORS
    remedy = f"separate them by {right}, or end a name that has it by {right}"
    if not is_multi_label:
        marks = right, ";", ","
        remedy = f"call the column labels, and separate them by {right}"
    alone = {field for field in fields if not any(x in field for x in marks)}
    for mark in marks:
        parts = {
            field: {*map(str.strip, field.split(mark))}
            for field in fields
            if mark in field
        }
        joined = [field for field in parts if parts[field] <= alone]
        labels = ({*fields} - {*parts}).union(*parts.values())
        if is_multi_label and len(labels) < len(fields):
            joined = joined or list(parts)
        exceptions.require(
            not joined,
            f"{path} must have {right} between several labels ({remedy})",
            f"{mark!r} in {exceptions.listed(joined, _SHOWN)}",
        )
