"""Lists of image files with their labels: .csv, .tsv or .jsonl."""

from __future__ import annotations

import array
import dataclasses
import math
import os
from collections.abc import Iterable

import numpy as np

from supcon_tf import exceptions, rows
from supcon_tf.data import image_files, sources

_SPLITS = {"train": "train", "test": "test", "val": "val", "validation": "val"}
_SHOWN = 3  # How many bad rows or labels a message lists.


@dataclasses.dataclass(frozen=True)
class _Rows:
    """The rows of a split, in order; a million of them in little memory.

    Attributes:
      paths: as written.
      labels: numbers of the texts of their labels.
      weights: 1 where none is written.
    """

    paths: list[str] = dataclasses.field(default_factory=list)
    labels: array.array = dataclasses.field(
        default_factory=lambda: array.array("q")
    )
    weights: array.array = dataclasses.field(
        default_factory=lambda: array.array("f")
    )

    def part(self, is_own: np.ndarray) -> _Rows:
        """Some of the rows, by a mask."""
        places = np.flatnonzero(is_own)
        return _Rows(
            [self.paths[place] for place in places],
            array.array("q", np.array(self.labels)[places].tobytes()),
            array.array("f", np.array(self.weights)[places].tobytes()),
        )


def load_manifest(
    path: str | None,
    split: str,
    test_fraction: float,
    split_seed: int,
    check_images: bool,
    skip_bad_images: bool,
) -> sources.Source:
    """Loads one split of a manifest; for the arguments see `loading.load`.

    Columns, or fields of JSON lines, are `path`, relative to the file or whole,
    as gs:// is; `label`, or `labels` with `|` between them or as a JSON list;
    and, where they are wanted, `split` (train, test or val) and `weight`, not
    negative, which are scaled to a mean of 1. Others are left alone.

    Returns:
      The source, its examples in the order of the file. Where there are
      `labels`, its `labels` are [examples, classes] uint8.

    Raises:
      ValueError: a line, named by file and number, breaks one of these rules,
        names a file twice or one that is not there; or only the test split
        has a label.
    """
    exceptions.require(
        path is not None,
        "`data_dir` must be the file for the dataset `manifest`",
        None,
    )
    splits, texts, is_multi_label = _read(path)
    train, test = _train_and_test(path, splits, test_fraction, split_seed)
    own = train if split == "train" else test
    several = [
        [*filter(None, map(str.strip, text.split(rows.SEPARATOR)))]
        if is_multi_label
        else [text]
        for text in texts
    ]
    class_names = _class_names(path, several, train, test)
    number = {name: place for place, name in enumerate(class_names)}
    labels = np.array(own.labels)
    if is_multi_label:
        hot = np.zeros([len(texts), len(class_names)], np.uint8)
        for place in np.unique(labels):
            hot[place, [number[name] for name in several[place]]] = 1
        labels = hot[labels]
    else:
        labels = np.array([number.get(text, -1) for text in texts])[labels]
    root = os.path.dirname(path)
    if not skip_bad_images:
        _check_there(path, root, own.paths)
    return image_files.make_source(
        "manifest",
        split,
        class_names,
        root,
        own.paths,
        labels,
        check_images=check_images,
        skip_bad_images=skip_bad_images,
        weights=_scaled(path, np.array(own.weights)),
    )


def _read(path: str) -> tuple[dict[str, _Rows], list[str], bool]:
    """The rows by split, "" for none; texts of labels; are they several?"""
    splits = {name: _Rows() for name in ("", *_SPLITS.values())}
    texts: dict[str, int] = {}
    seen: set[str] = set()
    is_multi_label = False
    columns = "label", "labels", "split", "weight"
    for place, fields in rows.read_rows(path, ["path"], columns):
        name, label, labels, split, weight = fields
        if not name or name in seen:
            rule = "a path" if not name else "another path than those before"
            exceptions.require(False, f"{place} must have {rule}", repr(name))
        if labels is None and not (label or "").strip():
            exceptions.require(
                False, f"{place} must have a label or labels", repr(label)
            )
        if split is not None and split not in _SPLITS:
            rule = f"{place} must have a split of {', '.join(_SPLITS)}"
            exceptions.require(False, rule, repr(split))
        seen.add(name)
        is_multi_label |= labels is not None
        text = (label if labels is None else labels).strip()
        own = splits[_SPLITS[split] if split else ""]
        own.paths.append(name)
        own.labels.append(texts.setdefault(text, len(texts)))
        own.weights.append(1.0 if weight is None else _weight(place, weight))
    return splits, [*texts], is_multi_label


def _weight(place: str, text: str) -> float:
    try:
        weight = float(text)
    except ValueError:
        weight = math.nan
    exceptions.require(
        0 <= weight < math.inf, f"{place} must have a weight of 0 or more", text
    )
    return weight


def _scaled(path: str, weights: np.ndarray) -> np.ndarray | None:
    """Weights with a mean of 1; None where all are 1."""
    if (weights == 1).all():
        return None
    exceptions.require(
        weights.any(), f"{path} must have a weight above 0 in each split", "0"
    )
    return weights / weights.mean()


def _train_and_test(
    path: str, splits: dict[str, _Rows], test_fraction: float, split_seed: int
) -> tuple[_Rows, _Rows]:
    """The training rows, and those of test, else of val, else by a hash."""
    unsplit = splits[""]
    if not unsplit.paths:
        test = splits["test"] if splits["test"].paths else splits["val"]
        return splits["train"], test
    exceptions.require(
        not any(splits[name].paths for name in _SPLITS.values()),
        f"{path} must give all rows a split, or none",
        f"{len(unsplit.paths)} without, such as {unsplit.paths[0]}",
    )
    is_test = image_files.is_test(unsplit.paths, test_fraction, split_seed)
    return unsplit.part(~is_test), unsplit.part(is_test)


def _class_names(
    path: str, several: list[list[str]], train: _Rows, test: _Rows
) -> list[str]:
    """The labels of the training rows, sorted, which those of test are too."""
    known, tested = (
        {name for place in {*part.labels} for name in several[place]}
        for part in (train, test)
    )
    missing = sorted(tested - known)
    exceptions.require(
        not missing,
        f"{path} must have training rows of every label",
        f"{len(missing)} that only the test split has: {_shown(missing)}",
    )
    return sorted(known)


def _check_there(path: str, root: str, names: Iterable[str]) -> None:
    """Raises ValueError for local files that are not there, by their lines."""
    places = ((name, image_files.full_path(root, name)) for name in names)
    missing = {
        name
        for name, place in places
        if "://" not in place and not os.path.exists(place)
    }
    if not missing:
        return
    named = (
        f"{name} ({place})"
        for place, (name,) in rows.read_rows(path, ["path"])
        if name in missing
    )
    exceptions.require(
        False,
        f"{path} must name files that are there",
        f"{len(missing)} that are not: {_shown([*named])}; leave them out with "
        "`skip_bad_images`",
    )


def _shown(names: list[str]) -> str:
    more = ", ..." if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
