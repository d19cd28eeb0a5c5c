"""Small galleries of random rows, for the tests of this folder."""

from __future__ import annotations

import numpy as np

from supcon_tf import gallery

CHECKPOINT = {"checkpoint": "step-00000001", "sha256": "a" * 64}


def from_rows(rows, labels=None, class_names=(), **fields):
    """A gallery of representations [N, dim], without classes by default."""
    count = len(rows)
    labels = np.full(count, -1) if labels is None else labels
    defaults = {
        "ids": tuple(map(str, range(count))),
        "digests": np.arange(count),
        "made_of": CHECKPOINT,
    }
    return gallery.Gallery(
        np.asarray(rows, np.float32),
        np.asarray(labels, np.int32),
        class_names,
        **defaults | fields,
    )


def lettered(ids, class_names=(), labels=None, seed=0, **fields):
    """A gallery of random rows, with a row for each letter of `ids`."""
    rows = np.random.default_rng(seed).normal(size=[len(ids), 4])
    digests = np.array([ord(letter) for letter in ids], np.int64)
    fields |= {"ids": tuple(ids), "digests": digests}
    return from_rows(rows, labels, class_names, **fields)


def equal(first, second):
    """Whether two galleries hold the same rows of the same types."""
    fields = "class_names", "ids", "made_of", "threshold"
    arrays = "representations", "labels", "digests"
    return all(
        getattr(first, name) == getattr(second, name) for name in fields
    ) and all(
        np.array_equal(getattr(first, name), getattr(second, name))
        and getattr(first, name).dtype == getattr(second, name).dtype
        for name in arrays
    )
