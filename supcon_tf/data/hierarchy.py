"""Classes that have parents: a table of their ancestors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from supcon_tf import exceptions, rows

NAMES = "names"  # the names of classes are paths


def read_ancestors(hierarchy: str, class_names: Sequence[str]) -> np.ndarray:
    """The ancestors of every class, from the highest down to itself.

    Args:
      hierarchy: "names", where classes are called as in animal/dog/poodle; or a
        .csv, .tsv or .jsonl file with the columns `class` and `parents`, the
        latter as in animal/dog.
      class_names: in the order of the labels.

    Returns:
      [classes, H] int64, H the most ancestors of a class and 1. Numbers of one
      column tell ancestors apart; one of fewer stands for itself below.

    Raises:
      ValueError: the file lacks a class, or no class has a parent.
    """
    if hierarchy == NAMES:
        parents = [name.split("/")[:-1] for name in class_names]
    else:
        known = {
            name: [*filter(None, path.split("/"))]
            for _, (name, path) in rows.read_rows(
                hierarchy, ["class", "parents"]
            )
        }
        missing = [name for name in class_names if name not in known]
        exceptions.require(
            not missing,
            f"{hierarchy} must have a row for every class",
            f"none for {', '.join(missing[:3])}",
        )
        parents = [known[name] for name in class_names]
    highest = max(map(len, parents))
    exceptions.require(
        highest > 0,
        f"`hierarchy` {hierarchy} must give some class a parent",
        ", ".join(class_names[:3]),
    )
    columns = []
    for level in range(highest + 1):
        # A class by its number, an ancestor by all of its path.
        own = [
            tuple(path[: level + 1]) if level < len(path) else place
            for place, path in enumerate(parents)
        ]
        numbers = {one: number for number, one in enumerate(dict.fromkeys(own))}
        columns.append([numbers[one] for one in own])
    return np.array(columns, np.int64).T
