"""Fields of a table with one or several labels of an image."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from supcon_tf import exceptions
from supcon_tf.disk import rows

# Usual separators of labels that are not ours.
_OTHER_SEPARATORS = (";", ",", " ")
_FLAGS = {"0", "1", "0.0", "1.0"}  # whether an image has a label
_MAX_LISTED = 3  # fields in a message


def split(field: str, is_multi_label: bool) -> list[str]:
    """The labels of a field."""
    if not is_multi_label:
        return [field]
    return [*filter(None, map(str.strip, field.split(rows.SEPARATOR)))]


def multi_hot(
    label_lists: Sequence[Sequence[str]], class_ids: dict[str, int]
) -> np.ndarray:
    """Labels of each field as 0 or 1 for each class, [fields, classes] uint8.

    Labels without a class id are left out.
    """
    has_label = np.zeros([len(label_lists), len(class_ids)], np.uint8)
    for row, labels in enumerate(label_lists):
        columns = [class_ids[label] for label in labels if label in class_ids]
        has_label[row, columns] = 1
    return has_label


def check(path: str, fields: Sequence[str], is_multi_label: bool) -> None:
    """Raises ValueError for fields that are not names of labels.

    Each combination of labels would become a class, or two classes, 0 and 1,
    would be those of every image.
    """
    _check_brackets(path, fields)
    if is_multi_label:
        _check_names(path, fields)
    _check_separator(path, fields, is_multi_label)


def _check_brackets(path: str, fields: Sequence[str]) -> None:
    """Raises ValueError for the texts of lists, as pandas writes them."""
    given = [*filter(None, fields)]
    are_lists = all(field[0] == "[" and field[-1] == "]" for field in given)
    is_separated = any(rows.SEPARATOR in field for field in given)
    exceptions.require(
        not (given and are_lists) or is_separated,
        f"{path} must have labels without brackets and quotes, separated by "
        f"{rows.SEPARATOR} in a column labels",
        exceptions.listed(given, _MAX_LISTED),
    )


def _check_names(path: str, fields: Sequence[str]) -> None:
    """Raises ValueError for 0 or 1 of every class in the place of names."""
    label_lists = [split(field, True) for field in fields]
    if not all({*labels} <= _FLAGS for labels in label_lists):
        return
    # Boxes in an image may have one label too, but differ in number.
    if len({*map(len, label_lists)}) > 1:
        return
    repetitive = [
        field
        for field, labels in zip(fields, label_lists, strict=True)
        if len({*labels}) < len(labels)
    ]
    exceptions.require(
        not repetitive,
        f"{path} must have the names of the labels of each image, not 0 or 1 "
        "for every class",
        exceptions.listed(repetitive, _MAX_LISTED),
    )


def _check_separator(
    path: str, fields: Sequence[str], is_multi_label: bool
) -> None:
    """Raises ValueError for several labels with another separator.

    They would become one new class. A mark separates labels if its parts are
    fewer than the different fields, or if the parts of a field are whole fields
    elsewhere; not if the right separator is used in any field.
    """
    separator = rows.SEPARATOR
    if is_multi_label and any(separator in field for field in fields):
        return
    marks = _OTHER_SEPARATORS
    remedy = (
        f"separate them by {separator}, or end a name that has it by "
        f"{separator}"
    )
    if not is_multi_label:
        marks = separator, ";", ","
        remedy = f"call the column labels, and separate them by {separator}"
    plain = {field for field in fields if not any(m in field for m in marks)}
    for mark in marks:
        parts = {
            field: {*map(str.strip, field.split(mark))}
            for field in fields
            if mark in field
        }
        joined = [field for field in parts if parts[field] <= plain]
        labels = ({*fields} - {*parts}).union(*parts.values())
        if is_multi_label and len(labels) < len(fields):
            joined = joined or list(parts)
        exceptions.require(
            not joined,
            f"{path} must have {separator} between several labels ({remedy})",
            f"{mark!r} in {exceptions.listed(joined, _MAX_LISTED)}",
        )
