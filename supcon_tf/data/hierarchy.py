"""Hierarchies of classes: a table of their ancestors."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from supcon_tf import exceptions
from supcon_tf.disk import rows

NAMES = "names"  # the names of classes are paths

# Marks between parents that are not ours: all parents would become one.
_OTHER_MARKS = ("|", ">")


class Tree(NamedTuple):
    """A hierarchy of classes.

    Attributes:
      ancestors: of every class, from the highest down to the class, [classes,
        H] int64, H the most ancestors of a class and 1. Equal numbers in a
        column are the same ancestor; a class of fewer ancestors is its own in
        the columns below.
      depths: the number of ancestors of every class, [classes] int64.
    """

    ancestors: np.ndarray
    depths: np.ndarray


def read_tree(hierarchy: str, class_names: Sequence[str]) -> Tree:
    """The tree of classes.

    Args:
      hierarchy: "names", where the names of classes are paths such as
        animal/dog/poodle; or a .csv, .tsv or .jsonl file with the columns
        `class` and `parents`, the latter as in animal/dog.
      class_names: in the order of the labels.

    Raises:
      ValueError: the file lacks a class, or gives it different parents, not
        all of its parents or itself among them; or no class has a parent.
    """
    if hierarchy == NAMES:
        parents = [_parts(name.rpartition("/")[0]) for name in class_names]
    else:
        parents_of = _read_parents(hierarchy)
        missing = [name for name in class_names if name not in parents_of]
        exceptions.require(
            not missing,
            f"{hierarchy} must have a row for every class",
            f"none for {', '.join(missing[:3])}",
        )
        _check_paths(hierarchy, parents_of, class_names)
        parents = [parents_of[name] for name in class_names]
    highest = max(map(len, parents))
    exceptions.require(
        highest > 0,
        f"`hierarchy` {hierarchy} must give some class a parent",
        ", ".join(class_names[:3]),
    )
    columns = []
    for level in range(highest + 1):
        # An ancestor is identified by its whole path, a class by its index.
        ancestors = [
            tuple(path[: level + 1]) if level < len(path) else index
            for index, path in enumerate(parents)
        ]
        numbers = {
            ancestor: number
            for number, ancestor in enumerate(dict.fromkeys(ancestors))
        }
        columns.append([numbers[ancestor] for ancestor in ancestors])
    depths = np.array([*map(len, parents)], np.int64)
    return Tree(np.array(columns, np.int64).T, depths)


def read_ancestors(hierarchy: str, class_names: Sequence[str]) -> np.ndarray:
    """The ancestors of `read_tree`, [classes, H] int64."""
    return read_tree(hierarchy, class_names).ancestors


def _parts(path: str) -> list[str]:
    """The names in a path; the blanks around them do not count."""
    return [*filter(None, map(str.strip, path.split("/")))]


def _read_parents(path: str) -> dict[str, list[str]]:
    """The parents of each class of a file, the highest first."""
    parents_of: dict[str, list[str]] = {}
    for line, fields in rows.read_rows(path, ["class", "parents"]):
        # Class names have this spelling of letters with accents.
        name, field = (unicodedata.normalize("NFC", text) for text in fields)
        exceptions.require(
            "/" in field or not any(mark in field for mark in _OTHER_MARKS),
            f"{line} must have / between parents, as in animal/dog",
            field,
        )
        parents = _parts(field)
        earlier = parents_of.setdefault(name.strip(), parents)
        exceptions.require(
            earlier == parents,
            f"{line} must give {name.strip()} the parents of the row before, "
            f"{'/'.join(earlier) or 'none'}",
            "/".join(parents) or "none",
        )
    return parents_of


def _check_paths(
    file: str, parents_of: dict[str, list[str]], class_names: Sequence[str]
) -> None:
    """Raises ValueError for paths that end in their class, or begin too low.

    Every class would be alone in its lowest parent. A table of edges, with a
    row for each parent too, would lose all levels but one.
    """
    paths = {name: parents_of[name] for name in class_names if parents_of[name]}
    names = exceptions.listed([*paths], 3)
    exceptions.require(
        not paths or any(path[-1] != name for name, path in paths.items()),
        f"{file} must give the parents of a class without the class itself",
        f"paths that end in their classes, {names}",
    )
    for name, path in paths.items():
        highest = path[0]
        above = parents_of.get(highest)
        exceptions.require(
            not above or highest in class_names,
            f"{file} must give {name} all of its parents, the highest first",
            f"{'/'.join(path)} for {name}, and {'/'.join(above or ())} for "
            f"{highest}",
        )
